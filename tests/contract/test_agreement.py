"""Every built-in store answers as the pure model does, whatever it is asked; and a store with a bug does not."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase

from leased.testing import worlds
from leased.testing.agreement import agree
from leased.testing.contract import CHECKS
from leased.testing.runner import run_checks
from leased.testing.worlds import Async, Blocking, Face, Place
from tests.contract import model_store, real_time
from tests.contract.mutants import MUTANTS, Mutant

TIMES = int(os.environ.get("LEASED_AGREEMENT_TIMES", "1"))
"""How many times the examples of a push are tried: 20 in the nightly run."""


PART = 25
"""Examples in one test, so that each is short and they can run side by side."""


def parts(place: Place, *, examples: int) -> list[Any]:
    """The tests that so many examples in this place make."""
    return [pytest.param(place, f"part{part}", id=f"{place}-{part}") for part in range(examples // PART)]


@pytest.mark.parametrize(
    ("place", "part"),
    parts(worlds.memory(Blocking()), examples=250) + parts(worlds.memory(Async()), examples=250),
)
def test_memory_agrees_with_the_model(place: Place, part: str) -> None:
    """The memory store answers every history as the model does: 500 of 60 steps in all."""
    agree(place, examples=PART * TIMES, name=part)


@pytest.mark.parametrize(
    ("place", "part"),
    parts(worlds.sqlite(Blocking()), examples=200) + parts(worlds.sqlite(Async()), examples=100),
)
def test_sqlite_agrees_with_the_model(place: Place, part: str) -> None:
    """The SQLite store answers every history as the model does, restarts included: 300 of 60 steps in all."""
    agree(place, examples=PART * TIMES, name=part)


@pytest.mark.parametrize("face", [Blocking(), Async()], ids=lambda face: face.name)
def test_joining_changes_no_answer(face: Face) -> None:
    """A store behind what joins calls into batches answers as the store itself."""
    agree(worlds.joined(worlds.sqlite(face)), examples=PART * TIMES)


@pytest.mark.parametrize("place", [real_time.memory(Async()), real_time.sqlite(Blocking())], ids=str)
def test_stores_with_a_clock_of_their_own_agree(place: Place) -> None:
    """Where the store's time goes on by itself, answers agree up to that time, and fencing tokens in their order."""
    agree(place, examples=PART * TIMES)


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
