"""Time in the MySQL store: the server's, in UTC, whatever zone it is in and whoever sets its clock."""

from __future__ import annotations

import datetime as dt
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from leased.clocks import BlockingClock, step
from leased.errors import InvalidRequest
from leased.model import Contended, Held, Lost, Terms
from leased.observe import Event
from leased.policy import MAX_TTL
from leased.stores import mysql
from leased.targets import Options
from leased.testing.worlds import Driver
from tests.contract.mysql_places import Admin
from tests.servers import mariadb
from tests.servers.moving_clock import MovingClock
from tests.servers.process import Server
from tests.stores.mysql.conftest import Database, Make, claim

ZONE = "Europe/Berlin"


@pytest.fixture(scope="module")
def clock() -> MovingClock:
    """The clock of the server below."""
    return MovingClock()


@pytest.fixture(scope="module")
def zoned_server(clock: MovingClock) -> Iterator[Server]:
    """A MariaDB in a zone with daylight saving, whose clock can be set."""
    with mariadb.start(clock=clock) as server:
        made = subprocess.run(
            ["mariadb-tzinfo-to-sql", f"/usr/share/zoneinfo/{ZONE}", ZONE], capture_output=True, text=True, check=True
        )
        with closing(Admin(f"{server.url.rpartition('/')[0]}/mysql")) as admin:
            for statement in filter(str.strip, made.stdout.split(";\n")):
                admin.run(statement)
            admin.run(f"SET GLOBAL time_zone = '{ZONE}'")
        yield server


@pytest.mark.parametrize(
    "change", [dt.datetime(2027, 3, 28, 1, tzinfo=dt.UTC), dt.datetime(2027, 10, 31, 1, tzinfo=dt.UTC)], ids=str
)
def test_a_night_of_the_change_is_as_any_other(change: dt.datetime, zoned_server: Server, clock: MovingClock) -> None:
    """C068: acquire, renew, status and expiry do not notice that the server's hands jump by an hour."""

    def set_clock(seconds_after: float) -> None:
        clock.right()
        clock.step(change.timestamp() + seconds_after - time.time())

    set_clock(-1000)
    store = mysql.open(zoned_server.url, face="blocking", options=Options(BlockingClock()))
    with closing(Admin(zoned_server.url)) as admin:
        before = admin.run("SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())")
        mine, other = claim(f"mine-{change}", ttl=1500), claim(f"other-{change}", ttl=3000)
        granted = [step(store.acquire(one, timeout=5)) for one in (mine, other)]
        assert all(isinstance(one, Held) for one in granted)
        set_clock(100)
        assert admin.run("SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())") != before
    status = step(store.status(mine.key, timeout=5))
    assert status.expires_in == pytest.approx(400, abs=30)
    assert status.expires_at == pytest.approx(change.timestamp() + 500, abs=30)
    assert isinstance(step(store.acquire(claim(mine.key), timeout=5)), Contended)
    renewed = step(store.renew(other.key, other.token, ttl=3000, number=1, timeout=5))
    assert isinstance(renewed, Held)
    assert renewed.lease.left == pytest.approx(3000, abs=30)
    set_clock(600)
    assert step(store.look(mine.key, mine.token, timeout=5)) == Lost("expired")
    again = step(store.acquire(claim(mine.key), timeout=5))
    assert isinstance(again, Held)
    assert isinstance(granted[0], Held)
    assert again.lease.fencing_token > granted[0].lease.fencing_token
    step(store.close())


def test_fencing_tokens_rise_when_the_clock_is_set_back(zoned_server: Server, clock: MovingClock) -> None:
    """M4: a key whose record is still there gets a higher number, though the clock shows an earlier time."""
    clock.right()
    store = mysql.open(zoned_server.url, face="blocking", options=Options(BlockingClock()))
    numbers = []
    for seconds in (0.0, -3600.0, -3600.0):
        clock.step(seconds)
        mine = claim("set-back")
        held = step(store.acquire(mine, timeout=5))
        assert isinstance(held, Held)
        numbers.append(held.lease.fencing_token)
        step(store.abandon(mine.key, mine.token, timeout=5))
        step(store.force_release(mine.key, timeout=5))
        clock.step(120.0)
    assert numbers == sorted(set(numbers))
    clock.right()
    step(store.close())


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_clock_that_is_set_is_told(zoned_server: Server, clock: MovingClock, seconds: float) -> None:
    """P3: now and then, and with every renewal, the server's clock is compared with the one that nobody can set."""
    clock.right()
    events: list[Event] = []
    options = Options(BlockingClock(), observer=events.append, own={"pool": "1"})
    store = mysql.open(zoned_server.url, face="blocking", options=options)

    def use() -> None:
        mine = claim("used")
        step(store.acquire(mine, timeout=5))
        step(store.release(mine.key, mine.token, timeout=5))

    for _ in range(130):  # two steps of the sweep at least
        use()
    assert events == []
    clock.step(seconds)
    give_up_at = time.monotonic() + 20.0
    while not events:
        assert time.monotonic() < give_up_at
        use()
    (event,) = events
    assert event.name == "clock_warning"
    assert event.data["step"] == pytest.approx(seconds, abs=5)
    clock.right()
    step(store.close())


def test_the_longest_lease_is_exact(database: Database, driver: Driver, make: Make) -> None:
    """C061: the documented maximum is kept to the microsecond; nothing wraps or is shortened."""
    store, mine = make(database.url), claim("key", ttl=MAX_TTL, terms=Terms(hold_at_least=MAX_TTL, lock_delay=60.0))
    driver.run(store.acquire(mine, timeout=5))
    rows = database.run(
        "SELECT expires_at - acquired_at, free_at - acquired_at, deadline - acquired_at, ttl FROM leased_record"
    )
    length = round(MAX_TTL * 1e6)
    assert rows == ((length, length + 60_000_000, length, length),)
    driver.run(store.renew("key", mine.token, ttl=MAX_TTL, number=1, timeout=5))
    assert database.run("SELECT deadline - expires_at FROM leased_record") == ((0,),)


def test_clients_with_wrong_clocks_agree(database: Database) -> None:
    """C067: what a client's clock shows plays no part in who holds a key."""
    import leased

    class Wrong(BlockingClock):
        wall = staticmethod(lambda: time.time() + 180.0)

    stores = [mysql.open(database.url, face="blocking", options=Options(clock)) for clock in (BlockingClock(), Wrong())]
    mine = claim("key", ttl=60)
    assert isinstance(step(stores[0].acquire(mine, timeout=5)), Held)
    assert isinstance(step(stores[1].acquire(claim("key"), timeout=5)), Contended)
    assert step(stores[1].status("key", timeout=5)).expires_in == pytest.approx(60, abs=10)
    with pytest.raises(InvalidRequest), leased.connect(database.url) as locks:
        locks.lock("key", ttl=2.0**63)
    for store in stores:
        step(store.close())


def test_a_holder_that_is_killed_is_over_in_time(database: Database, make: Make, driver: Driver) -> None:
    """C047, C090: every record has an expiry from its first moment, and the key is free after it without any help."""
    store, mine = make(database.url), claim("key", ttl=0.2)
    assert isinstance(driver.run(store.acquire(mine, timeout=5)), Held)
    assert database.run("SELECT COUNT(*) FROM leased_record WHERE expires_at <= acquired_at") == ((0,),)
    make_free: Callable[[], bool] = lambda: driver.run(store.status("key", timeout=5)).state == "free"  # noqa: E731
    give_up_at = time.monotonic() + 10.0
    while not make_free():
        assert time.monotonic() < give_up_at
    assert isinstance(driver.run(store.acquire(claim("key"), timeout=5)), Held)
