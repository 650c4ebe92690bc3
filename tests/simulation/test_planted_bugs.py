"""The simulation is worth its time only while it finds what is wrong: bugs are planted, and must be found."""

import json
from pathlib import Path

import pytest

from leased import policy
from leased.testing.simulation.hunting import BUGS, hunt
from leased.testing.simulation.planting import Bug, Edit, planted

RECORD = "python -m leased.testing.simulation --bugs --seeds 4000 --record tests/simulation/seeds.json"
SEEDS = json.loads(Path(__file__).with_name("seeds.json").read_text())
PROMISES = {*(f"SAFE{number}" for number in range(1, 14)), *(f"LIVE{number}" for number in (1, 2, 3, 4, 5, 6, 7, 10))}


FRESH = 150


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """At one of its recorded seeds, by the promise that it breaks; where the code has moved on, at a fresh one."""
    assert hunt(bug, seeds=[*SEEDS["bugs"][bug.name], *range(FRESH)]) is not None, (
        f"not found any more: record new seeds with {RECORD}"
    )


def test_every_promise_has_a_bug_that_breaks_it() -> None:
    """A promise whose check nothing can fail is not checked."""
    assert {bug.promise for bug in BUGS} >= PROMISES


def test_bugs_have_names_of_their_own() -> None:
    """Seeds are recorded by name."""
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    assert set(SEEDS["bugs"]) == {bug.name for bug in BUGS}


def test_a_bug_is_gone_after_its_block() -> None:
    """Also when the block fails."""
    bug = Bug("no slack", "SAFE3", (Edit("leased.policy", "usable", " - SLACK", ""),))
    whole = policy.usable(10.0, margin=0.0)

    def fail() -> None:
        with planted(bug):
            raise ValueError(policy.usable(10.0, margin=0.0))

    with pytest.raises(ValueError, match=r"^10\.0$"):
        fail()
    assert policy.usable(10.0, margin=0.0) == whole == 10.0 - policy.SLACK


@pytest.mark.parametrize(
    "edit",
    [
        Edit("leased.policy", "usable", "no such piece", ""),
        Edit("leased.policy", "usable", "a", ""),
        Edit("leased.policy", "no_such_function", "a", ""),
        Edit("leased.policy", "SLACK", "a", ""),
    ],
    ids=["absent", "ambiguous", "no function", "not a function"],
)
def test_a_bug_that_does_not_fit_the_source_is_refused(edit: Edit) -> None:
    """A bug must not pass as planted when the code has moved on."""
    with pytest.raises(LookupError), planted(Bug("misfit", "SAFE3", (edit,))):
        pass
