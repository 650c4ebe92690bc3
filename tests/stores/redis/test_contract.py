"""The contract, checked on real servers: both programs, both faces, alone and joined into batches."""

import pytest

from leased.testing import worlds
from leased.testing.agreement import agree
from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Async, Blocking, Face, Place
from tests.contract.redis_places import redis
from tests.servers.process import Server

UNCOUNTED = {"check_nothing_grows_with_history", "check_one_key_does_not_grow"}
"""The server removes old records by itself, a day of its own clock later: nothing that a moved clock can show."""


@pytest.fixture(params=["valkey", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """A server of either program."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return server.url


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
def test_contract(check: Check, face: Face, url: str) -> None:
    """The store keeps this promise of the contract, on Valkey and on Redis."""
    holds(check, redis(face, lambda: url))


@each_face()
@each_check()
def test_contract_when_joined(check: Check, face: Face, valkey_server: Server) -> None:
    """The store keeps this promise behind what joins concurrent calls, as users have it."""
    holds(check, worlds.joined(redis(face, lambda: valkey_server.url)))


@each_face()
@pytest.mark.parametrize("part", range(4))
def test_redis_agrees_with_the_model(part: int, face: Face, valkey_server: Server) -> None:
    """The store answers every history as the model does: 200 of 60 steps in all."""
    agree(redis(face, lambda: valkey_server.url), examples=25, name=f"part{part}")
