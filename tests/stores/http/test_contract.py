"""The contract, checked through a lock service: over four stores, from both faces, alone and joined into batches."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from leased.testing import worlds
from leased.testing.agreement import agree
from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Async, Blocking, Face, Place
from tests.contract import http_places
from tests.server.stage import Stage

GROWTH = {"check_nothing_grows_with_history", "check_one_key_does_not_grow"}
"""Counted where the store behind the service lets a test count."""

PUSHED = {
    "check_a_bell_rings_for_every_release",
    "check_every_watcher_is_told",
    "check_an_ended_watch_is_silent",
    "check_a_release_after_watching_is_never_missed",
}
"""Nothing is pushed to this side: who waits does so at the service."""

HISTORIES = {"http-memory": 25, "http-sqlite": 25, "http-redis": 10, "http-postgres": 10}
"""So many are compared: what the last two answer is compared with the model by their own tests, too."""

TIMES = int(os.environ.get("LEASED_AGREEMENT_TIMES", "1"))

Opener = Callable[[Face], Place]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """The server that has the services of all these tests, one after the other."""
    with closing(Stage()) as found:
        yield found


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def place_of(request: pytest.FixtureRequest, stage: Stage) -> Opener:
    """A service over a store of this kind."""
    if request.param == "memory":
        return lambda face: http_places.over_memory(face, stage)
    if request.param == "sqlite":
        return lambda face: http_places.over_sqlite(face, stage)
    if request.param == "redis":
        server = request.getfixturevalue("valkey_server")
        return lambda face: http_places.over_redis(face, stage, url=server.url)
    server = request.getfixturevalue("postgres_server")
    return lambda face: http_places.over_postgres(face, stage, url=server.url)


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
    left_out = PUSHED if "memory" in place.store else PUSHED | GROWTH
    assert result.outcome == ("not run" if check.__name__ in left_out else "passed"), result.message


@each_face()
@each_check()
def test_contract(check: Check, face: Face, place_of: Opener) -> None:
    """The store keeps this promise of the contract through the service."""
    holds(check, place_of(face))


@each_face()
@each_check()
def test_contract_when_joined(check: Check, face: Face, stage: Stage) -> None:
    """The store keeps this promise behind what joins concurrent calls, as users have it."""
    holds(check, worlds.joined(http_places.over_memory(face, stage)))


@each_face()
def test_it_agrees_with_the_model(face: Face, place_of: Opener) -> None:
    """The service answers every history as the model does, of 60 steps, with each store and face."""
    place = place_of(face)
    agree(place, examples=HISTORIES[place.store] * TIMES)
