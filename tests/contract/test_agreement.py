"""Every built-in store answers as the pure model does, whatever it is asked; and a store with a bug does not."""

import os

import pytest
from hypothesis import HealthCheck, Phase

from leased.testing import worlds
from leased.testing.agreement import agree
from leased.testing.contract import CHECKS
from leased.testing.runner import run_checks
from leased.testing.worlds import Async, Blocking, Place

from . import model_store
from .mutants import MUTANTS, Mutant

TIMES = int(os.environ.get("LEASED_AGREEMENT_TIMES", "1"))
"""How many times the examples of a push are tried: 20 in the nightly run."""


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("place", [worlds.memory(Blocking()), worlds.memory(Async())], ids=str)
def test_memory_agrees_with_the_model(place: Place, part: int) -> None:
    """The memory store answers every history as the model does: 500 of 60 steps in all."""
    agree(place, examples=125 * TIMES, name=f"part{part}")


@pytest.mark.parametrize(
    ("place", "part"),
    [(worlds.sqlite(Blocking()), part) for part in range(4)] + [(worlds.sqlite(Async()), part) for part in range(4)],
    ids=str,
)
def test_sqlite_agrees_with_the_model(place: Place, part: int) -> None:
    """The SQLite store answers every history as the model does, restarts included: 300 of 60 steps in all."""
    agree(place, examples=(50 if place.face.name == "blocking" else 25) * TIMES, name=f"part{part}")


def test_the_model_keeps_the_contract() -> None:
    """The model itself passes every check of the suite: the two statements of the contract do not contradict."""
    report = run_checks(model_store.place(Blocking()))
    assert report.ok, [result for result in report.results if not result.ok]
    assert len(report.results) == len(CHECKS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    """A store with this bug disagrees with the model in one of a few hundred histories."""
    place = model_store.place(Blocking(), mutant.rules())
    with pytest.raises(AssertionError):
        agree(
            place,
            examples=300,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
