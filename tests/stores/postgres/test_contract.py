"""The contract of stores on PostgreSQL: both faces, alone and joined, direct and through a pooler, both versions."""

import pytest

from leased.testing import worlds
from leased.testing.agreement import agree
from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Async, Blocking, Face, Place
from tests.contract.postgres_places import postgres

FACES: tuple[Face, ...] = (Blocking(), Async())
UNHEARD = {
    "check_a_bell_rings_for_every_release",
    "check_every_watcher_is_told",
    "check_an_ended_watch_is_silent",
    "check_a_release_after_watching_is_never_missed",
}
"""What cannot be shown where nothing is heard by push."""


def keeps(check: Check, place: Place, *, pushed: bool = True) -> None:
    """The store keeps this promise, or this one cannot be shown there."""
    result = run_check(check, place)
    if result.error:
        raise result.error
    expected = "passed" if pushed or check.__name__ not in UNHEARD else "not run"
    assert result.outcome == expected, result.message


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Check, face: Face, request: pytest.FixtureRequest) -> None:
    """The store keeps this promise of the contract."""
    keeps(check, postgres(face, lambda: request.getfixturevalue("postgres_server").url))


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract_when_calls_are_joined(check: Check, face: Face, request: pytest.FixtureRequest) -> None:
    """The store keeps this promise also where concurrent calls arrive as batches, as `connect` opens it."""
    keeps(check, worlds.joined(postgres(face, lambda: request.getfixturevalue("postgres_server").url)))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract_on_another_version(check: Check, request: pytest.FixtureRequest) -> None:
    """The store keeps this promise on the newer server as well."""
    keeps(check, postgres(Blocking(), lambda: request.getfixturevalue("wheel_postgres_server").url))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract_through_a_pooler(check: Check, request: pytest.FixtureRequest) -> None:
    """C111: it keeps this promise through a pooler, where a transaction gets any connection; only push is missing."""
    keeps(check, postgres(Async(), lambda: request.getfixturevalue("pgbouncer_server").url), pushed=False)


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)
def test_it_agrees_with_the_model(face: Face, request: pytest.FixtureRequest) -> None:
    """Whatever is asked in whatever order, the answers are those of the model."""
    url = request.getfixturevalue("postgres_server").url
    agree(postgres(face, lambda: url), examples=10)


def test_batches_agree_with_the_model(request: pytest.FixtureRequest) -> None:
    """So do those of joined callers."""
    url = request.getfixturevalue("postgres_server").url
    agree(worlds.joined(postgres(Blocking(), lambda: url)), examples=5, name="joined")
