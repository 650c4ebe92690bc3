"""Compare-and-set keeps the contract, whatever the server tells of a write that was refused."""

from itertools import product

import pytest

from leased.testing.agreement import agree
from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Async, Blocking, Face, Place
from tests.stores.cas.shelves import place as place_of

FACES: tuple[Face, ...] = (Blocking(), Async())
PLACES = [place_of(face, tells=tells) for face, tells in product(FACES, (True, False))]


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Check, place: Place) -> None:
    """The core over compare-and-set keeps this promise of the contract."""
    result = run_check(check, place)
    if result.error:
        raise result.error
    assert result.outcome == "passed", result.message


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("part", range(2))
def test_it_agrees_with_the_model(place: Place, part: int) -> None:
    """It answers every history as the model does."""
    agree(place, examples=25, name=f"cas-{part}")
