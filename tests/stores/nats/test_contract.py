"""The contract, checked on a real server: both faces, alone and joined into batches."""

import pytest

from leased.testing import worlds
from leased.testing.agreement import agree
from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Async, Blocking, Face, Place
from tests.contract.nats_places import nats
from tests.servers.process import Server

UNCOUNTED = {"check_nothing_grows_with_history", "check_one_key_does_not_grow"}
"""What a value keeps is counted for the core, over a dictionary; which keys are swept here, in `test_sweep`."""


def each_check() -> pytest.MarkDecorator:
    """Run a test once per check of the contract."""
    return pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


def each_face() -> pytest.MarkDecorator:
    """Run a test on both faces."""
    return pytest.mark.parametrize("face", [Blocking(), Async()], ids=lambda face: face.name)


def holds(check: Check, place: Place) -> None:
    """Fail unless the check passes there."""
    result = run_check(check, place)
    if result.error:
        raise result.error
    assert result.outcome == ("not run" if check.__name__ in UNCOUNTED else "passed"), result.message


@each_face()
@each_check()
def test_contract(check: Check, face: Face, nats_server: Server) -> None:
    """The store keeps this promise of the contract."""
    holds(check, nats(face, lambda: nats_server.url))


@each_face()
@each_check()
def test_contract_when_joined(check: Check, face: Face, nats_server: Server) -> None:
    """The store keeps this promise behind what joins concurrent calls, as users have it."""
    holds(check, worlds.joined(nats(face, lambda: nats_server.url)))


@each_face()
@pytest.mark.parametrize("part", range(2))
def test_it_agrees_with_the_model(part: int, face: Face, nats_server: Server) -> None:
    """The store answers every history as the model does."""
    agree(nats(face, lambda: nats_server.url), examples=25, name=f"nats-part{part}")
