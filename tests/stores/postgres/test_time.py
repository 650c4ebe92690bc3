"""The server's clock alone counts: limits of durations, time zones, clocks that are set, holders that are killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import leased
from leased.clocks import step
from leased.model import Acquire, Contended, Held, Renew, Terms
from leased.observe import Event
from leased.policy import FENCE_RETENTION, MAX_TTL
from leased.stores import _postgres_session, _sql_store
from tests.servers.moving_clock import MovingClock
from tests.servers.process import Server
from tests.servers.proxy import Proxy, Traffic
from tests.stores.postgres.conftest import Make, claim

Raw = psycopg.Connection[Any]

HOLDER = """
import sys
from leased.clocks import BlockingClock, step
from leased.model import Claim
from leased.stores import postgres
from leased.targets import Options
store = postgres.open(sys.argv[1], face="blocking", options=Options(clock=BlockingClock(), own={"table": sys.argv[2]}))
print("ready", flush=True)
number = 0
while True:
    number += 1
    claim = Claim("key", f"{sys.argv[3]} {number}", 0.5, late=number % 2 == 0)
    step(store.acquire(claim, timeout=5.0))
    step(store.release(claim.key, claim.token, late=number % 3 == 0, timeout=5.0))
"""


def test_the_longest_times_are_kept_exactly(raw: Raw, make: Make, postgres_server: Server) -> None:
    """C061: the largest ttl, hold and delays fit, to the µs, also when they are renewed, alone and in a batch."""
    store = make(postgres_server.url)
    longest = Terms(max_hold=MAX_TTL, hold_at_least=MAX_TTL, lock_delay=MAX_TTL)
    first, second = claim("one", ttl=MAX_TTL, terms=longest), claim("two", ttl=MAX_TTL, terms=longest)
    answers = [step(store.acquire(first, timeout=5)), *step(store.many([Acquire(second), Acquire(first)], timeout=5))]
    renewals = [Renew(one.key, one.token, MAX_TTL, 1) for one in (first, second)]
    answers += [*step(store.many(renewals, timeout=5))]
    answers.append(step(store.renew(first.key, first.token, ttl=MAX_TTL, number=2, timeout=5)))
    for answer in answers:
        assert isinstance(answer, Held)
        assert answer.lease.ttl == MAX_TTL
        assert MAX_TTL - 5 < answer.lease.left <= MAX_TTL
    status = step(store.status("one", timeout=5))
    assert round(status.free_in - status.expires_in, 6) == MAX_TTL


@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Apia", "UTC"])
def test_the_zone_of_the_session_does_not_matter(
    private_postgres: Callable[..., Server], make: Make, moving_clock: MovingClock, zone: str
) -> None:
    """C068: across both changes of the clocks of a zone a lease lasts as long as in any other night."""
    server = private_postgres(settings={"timezone": zone}, clock=moving_clock)
    store = make(server.url)
    for at in (1_772_953_199.0, 1_793_512_799.0):  # a second before the clocks change in New York in 2026
        moving_clock.right()
        moving_clock.step(at - time.time())
        held = claim("key", ttl=4.0)
        assert 3.9 < step(store.acquire(held, timeout=5)).lease.left <= 4.0
        moving_clock.step(2.0)
        assert 1.0 < step(store.look("key", held.token, timeout=5)).lease.left < 2.1
        moving_clock.step(2.5)
        assert step(store.status("key", timeout=5)).state == "free"


def test_a_server_whose_clock_is_set_is_reported(
    private_postgres: Callable[..., Server], make: Make, moving_clock: MovingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of the server's clock is told as a warning, and numbers rise all the same."""
    monkeypatch.setattr(_postgres_session, "_TOLD_EVERY", 0.0)
    server = private_postgres(clock=moving_clock)
    events: list[Event] = []
    store = make(server.url, observer=events.append)
    numbers = []
    for seconds in (0.0, -3_600.0, 7_200.0):
        moving_clock.step(seconds)
        held = claim(f"key {seconds}")
        numbers.append(step(store.acquire(claim("key", owner="run"), timeout=5)).lease.fencing_token)
        step(store.acquire(held, timeout=5))
        step(store.release(held.key, held.token, timeout=5))
    assert numbers == sorted(set(numbers))
    assert {event.name for event in events} == {"clock_warning"}
    assert [round(event.data["step"] / 100) for event in events] == [-36, 72]


def test_a_list_after_the_clock_was_set_back(raw: Raw, make: Make, postgres_server: Server) -> None:
    """Keys that were released stay open and are not listed; each page is as full as if they were not there."""
    store = make(postgres_server.url)
    store.offset = 1_000.0
    for number in range(12):
        held = claim(f"key {number:02}", ttl=2_000.0)
        step(store.acquire(held, timeout=5))
        if number % 4:
            step(store.release(held.key, held.token, timeout=5))
    store.offset = 0.0
    assert step(store.status("key 01", timeout=5)).state == "free"
    for limit in (1, 2, 3, 4):
        listed: list[str] = []
        while page := step(store.list("key", after=listed[-1] if listed else "", limit=limit, timeout=5)):
            assert len(page) == min(limit, 3 - len(listed))
            listed += [status.key for status in page]
        assert listed == ["key 00", "key 04", "key 08"]


@pytest.mark.parametrize("way", ["alone", "in a batch"])
def test_keys_that_another_program_has_used(raw: Raw, make: Make, postgres_server: Server, way: str) -> None:
    """M4: a program that never heard of a key is granted it above its earlier numbers, or refused, as any other is."""
    before, numbers, held = make(postgres_server.url), {}, claim("held", owner="run")
    for key in ("open", "late", "new"):
        if key != "new":
            used = claim(key, late=key == "late")
            numbers[key] = step(before.acquire(used, timeout=5)).lease.fencing_token
            step(before.release(key, used.token, timeout=5))
    number = step(before.acquire(held, timeout=5)).lease.fencing_token
    asked = [claim(key, owner="other") for key in ("open", "late", "new", "held")]
    again = [claim("held", owner="run"), claim("open"), claim("late", owner="other")]
    outcomes = []
    for claims in (asked, again):
        store = make(postgres_server.url)
        if way == "alone":
            outcomes += [step(store.acquire(one, timeout=5)) for one in claims]
        else:
            outcomes += step(store.many([Acquire(one) for one in claims], timeout=5))
    kinds = [Held, Held, Held, Contended, Held, Contended, Held]
    assert [type(outcome) for outcome in outcomes] == kinds
    assert outcomes[0].lease.fencing_token > numbers["open"]
    assert outcomes[6].lease.fencing_token > outcomes[1].lease.fencing_token > numbers["late"]
    assert outcomes[4].lease.fencing_token > number
    assert all(29.0 < outcome.lease.left <= 30.0 for outcome in outcomes if isinstance(outcome, Held))


def test_what_is_kept_for_numbers_goes_after_a_day(raw: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """M4, S9: the record of a released key stays for a day, so that numbers rise whatever the clock does, then goes."""
    store, held = make(postgres_server.url), claim("key")
    step(store.acquire(held, timeout=5))
    step(store.release("key", held.token, timeout=5))

    def kept() -> bool:
        query = f"SELECT FROM {table}_record WHERE key = 'key'".encode()
        return raw.execute(query).rowcount == 1

    for days, expected in ((0.9, True), (3.0, False)):
        store.offset = days * FENCE_RETENTION
        for number in range(70):
            other = claim(f"{days} {number}")
            step(store.acquire(other, timeout=5))
        assert kept() is expected


def test_sweeping_goes_on_where_it_stopped(
    raw: Raw, table: str, make: Make, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S9: step by step all that is over goes, of every namespace, however early its lease ended; what is held, closed
    or watched stays, and what was over only once the sweep had passed it goes the next time."""
    monkeypatch.setattr(_sql_store, "_SWEEP_EVERY", 1)
    monkeypatch.setattr(_sql_store, "_SWEEP_MOST", 4)
    stores = [make(postgres_server.url, namespace=namespace) for namespace in ("", "a", "b")]
    for store in stores:
        for number in range(9):
            ended = claim(f"ended {number}", ttl=30 * FENCE_RETENTION)
            step(store.acquire(ended, timeout=5))
            step(store.release(ended.key, ended.token, timeout=5))
        step(store.acquire(claim("held", ttl=30 * FENCE_RETENTION), timeout=5))
        store.offset = 1.1 * FENCE_RETENTION
    end = step(stores[1].watch("watched", lambda: None))

    def left() -> set[bytes]:
        return {key for (key,) in raw.execute(f"SELECT key FROM {table}_record".encode()).fetchall()}

    for _ in range(15):
        step(stores[1].renew("held", "nobody's", ttl=30.0, number=1, timeout=5))
    assert left() == {b"held", b"watched"}
    end()


def test_sweeping_waits_for_nobody(raw: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """C123: what somebody has locked is swept another time."""
    store = make(postgres_server.url)
    for number in range(10):
        held = claim(f"old {number}")
        step(store.acquire(held, timeout=5))
        step(store.release(held.key, held.token, timeout=5))
    store.offset = 3 * FENCE_RETENTION
    with psycopg.connect(postgres_server.url) as other:
        other.execute(f"SELECT FROM {table}_record WHERE key = 'old 3' FOR UPDATE".encode())
        for number in range(70):
            step(store.acquire(claim(f"new {number}"), timeout=0.5))
    old = raw.execute(f"SELECT key FROM {table}_record WHERE key < 'old 9' AND key > 'old'".encode()).fetchall()
    assert old == [(b"old 3",)]


def sent(chunks: int) -> Callable[[Traffic], bool]:
    """Whether so many chunks have gone to the server."""
    return lambda traffic: traffic.chunks_up >= chunks


def test_holders_that_are_killed_leave_nothing_without_end(
    raw: Raw, table: str, make: Make, postgres_server: Server, proxy_to: Callable[[Server], Proxy]
) -> None:
    """C047, C090: whenever a holder is killed, the key is open one ttl later, and no transaction is left behind."""
    store, proxy = make(postgres_server.url), proxy_to(postgres_server)
    for turn in range(8):
        before = proxy.traffic.chunks_up
        program = subprocess.Popen(
            [sys.executable, "-c", HOLDER, proxy.url, table, f"holder {turn}"], stdout=subprocess.PIPE
        )
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            proxy.wait_until(sent(before + 10 + turn))  # each at another place
        finally:
            os.kill(program.pid, signal.SIGKILL)
            program.communicate()
        give_up_at, asked = time.monotonic() + 2.0, claim("key", ttl=0.2)
        while isinstance(step(store.acquire(asked, timeout=5)), Contended):
            assert time.monotonic() < give_up_at, "the key did not open"
            time.sleep(0.01)
        assert step(store.release("key", asked.token, timeout=5))


def test_a_whole_block_through_connect(raw: Raw, table: str, postgres_server: Server) -> None:
    """The public face on this store: blocks exclude each other, numbers rise, a waiter gets the key by push."""
    url = f"{postgres_server.url}?leased_table={table}"
    with leased.connect(url) as locks:
        with locks.lock("key", owner="first") as first:
            status = locks.status("key")
            assert (status.state, status.owner) == ("held", "first")
            with pytest.raises(leased.LockNotAcquired):
                locks.lock("key").acquire()
        with locks.lock("key", wait=5) as second:
            assert second.fencing_token > first.fencing_token
        assert locks.assurance.known
