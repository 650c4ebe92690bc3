"""Scripts in Lua and statements in SQL have no mutator: each of these mistakes has to be noticed on a real server.

The contract suite must see it, or else the machine that compares a store with the model; no other test is asked.
A push tries some of each store, `make mutants` all.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase

from leased.testing import worlds
from leased.testing.agreement import agree
from leased.testing.contract import CHECKS
from leased.testing.runner import run_check
from leased.testing.worlds import Blocking, Place
from tests.contract.mysql_places import mysql
from tests.contract.postgres_places import postgres
from tests.contract.redis_places import redis
from tests.mutants.stores import BUGS, LUA, StoreBug, planted
from tests.servers.process import Server

ALL = os.environ.get("LEASED_MUTANTS") == "all"
EVERY = 8
"""A push tries one in so many."""

_SERVERS = {"redis": "valkey_server", "postgres": "postgres_server", "mysql": "mariadb_server"}
_PLACES = {"redis": redis, "postgres": postgres, "mysql": mysql}


def place_of(store: str, request: pytest.FixtureRequest) -> Place:
    """The store on a real server, for blocking callers."""
    if store == "sqlite":
        return worlds.sqlite(Blocking())
    server: Server = request.getfixturevalue(_SERVERS[store])
    return _PLACES[store](Blocking(), lambda: server.url)


def noticed(place: Place) -> str:
    """What has noticed that something is wrong with the store; empty if nothing has."""
    for check in CHECKS:
        if not run_check(check, place).ok:
            return check.__name__
    try:
        agree(place, examples=100, steps=50, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    except Exception as error:  # noqa: BLE001 - whatever it is, the store is not as it should be
        return f"agreement: {error}"
    return ""


@pytest.mark.parametrize("bug", BUGS if ALL else BUGS[::EVERY], ids=str)
def test_the_mistake_is_noticed(bug: StoreBug, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Reliability 3f: a store with this mistake breaks its contract in the eyes of the suite or the machine."""
    place = place_of(bug.store, request)
    with planted(bug, tmp_path):
        found = noticed(place)
    assert found, f"nothing has noticed: {bug}"
    print(f"{bug}: {found[:100]}")


def test_every_mistake_is_about_code_that_is_there(tmp_path: Path) -> None:
    """A mistake whose place has moved would otherwise go unnoticed until somebody runs all of them."""
    for number, bug in enumerate(BUGS):
        with planted(bug, tmp_path / f"{number}"):
            pass
    assert len(BUGS) >= 60
    assert {path.stem for path in LUA.glob("*.lua")} >= {bug.place for bug in BUGS if bug.store == "redis"}
