"""Rows that others lock, transactions that meet, and connections that end: what callers are told, and when it is."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import NoneType
from typing import Any

import psycopg
import pytest

from leased.clocks import step
from leased.errors import LeasedError, StoreUnavailable
from leased.model import Acquire, Contended, Held, Look, Lost, Release, Released
from leased.policy import FENCE_RETENTION
from leased.stores import _postgres_session as session
from tests.servers.process import Server
from tests.stores.postgres.conftest import Make, claim

Raw = psycopg.Connection[Any]


@pytest.fixture
def other(postgres_server: Server) -> Iterator[Raw]:
    """Somebody else's connection, with transactions of its own."""
    with psycopg.connect(postgres_server.url) as connection:
        yield connection


def lock(other: Raw, table: str, key: str) -> None:
    """Lock the row of a key, from outside."""
    query = f"SELECT FROM {table}_record WHERE key = %s FOR UPDATE".encode()
    assert other.execute(query, [key.encode()]).rowcount == 1


def waiting(raw: Raw, count: int = 1) -> None:
    """Return once so many connections wait for a lock."""
    give_up_at = time.monotonic() + 10
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while raw.execute(query).fetchone() != (count,):
        assert time.monotonic() < give_up_at, "nobody waits for a lock"
        time.sleep(0.002)


def test_a_row_that_is_locked_from_outside(
    raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server
) -> None:
    """C121: it is no contention but an error that says that nothing was applied, within the caller's time; other keys
    are served meanwhile, and the key itself once the row is free."""
    store, held, free = make(postgres_server.url), claim("locked", owner="run"), claim("other")
    step(store.acquire(held, timeout=5))
    lock(other, table, "locked")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: store.acquire(claim("locked", owner="run"), timeout=0.5),
        lambda: store.renew("locked", held.token, ttl=30.0, number=1, timeout=0.5),
        lambda: store.release("locked", held.token, timeout=0.5),
        lambda: store.abandon("locked", held.token, timeout=0.5),
        lambda: store.force_release("locked", timeout=0.5),
    )
    for call in calls:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="lock") as caught:
            step(call())
        assert caught.value.applied is False
        assert time.monotonic() - started < 0.9
        assert isinstance(step(store.acquire(free, timeout=0.5)), Held)
    assert isinstance(step(store.look("locked", held.token, timeout=0.5)), Held), "a look waits for nobody"
    assert isinstance(step(store.acquire(claim("locked"), timeout=0.5)), Contended), "nor does a refusal"
    other.rollback()
    assert step(store.release("locked", held.token, timeout=5))


def test_a_locked_row_spoils_no_batch(raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """In a batch only the member whose row somebody else has locked fails, and it alone."""
    store = make(postgres_server.url)
    claims = [claim(f"key {number}") for number in range(5)]
    step(store.many([Acquire(one) for one in claims], timeout=5))
    lock(other, table, "key 2")
    outcomes = step(store.many([Release(one.key, one.token) for one in claims], timeout=1.0))
    assert [type(outcome) for place, outcome in enumerate(outcomes) if place != 2] == [Released] * 4
    assert all(outcome for place, outcome in enumerate(outcomes) if place != 2)
    assert isinstance(outcomes[2], StoreUnavailable)
    assert outcomes[2].applied is False
    fresh = [claim(one.key) for one in claims]
    outcomes = step(store.many([Acquire(one) for one in fresh], timeout=1.0))
    assert [isinstance(outcome, Held) for outcome in outcomes] == [True, True, False, True, True]
    other.rollback()


def test_locked_rows_hold_up_no_batch(raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """C121: members whose rows somebody else has locked cost a batch a moment in all, whatever time it has; the others
    are answered then, also those that need a transaction of their own. Alone, a call waits for longer than that."""
    store = make(postgres_server.url)
    claims = [claim(f"key {number:02}", late=True) for number in range(20)]
    step(store.many([Acquire(one) for one in claims], timeout=5))
    for one in claims[::2]:
        lock(other, table, one.key)
    started = time.monotonic()
    outcomes = step(store.many([Release(one.key, one.token) for one in claims], timeout=30))
    assert time.monotonic() - started < 0.8
    assert outcomes[1::2] == [Released()] * 10
    for outcome in outcomes[::2]:
        assert isinstance(outcome, StoreUnavailable)
        assert outcome.applied is False
        assert "somebody holds a lock" in str(outcome)
    thread, answers = in_thread(store.many([Release("key 00", claims[0].token)], timeout=30))
    waiting(raw)
    started = time.monotonic()
    while time.monotonic() - started < 0.3:
        waiting(raw)
    other.rollback()
    thread.join(20)
    assert answers == [[Released()]]


def test_a_key_that_somebody_writes_for_the_first_time(
    raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server
) -> None:
    """A row that is inserted and not yet committed holds up its own key alone."""
    store = make(postgres_server.url)
    step(store.acquire(claim("there"), timeout=5))
    other.execute(
        f"INSERT INTO {table}_record SELECT namespace, 'new', token, owner, held_by, metadata, fencing_token, renewal,"
        " acquired_at, expires_in, free_in, max_hold, ttl, hold_at_least, lock_delay, late, forced, marked_until,"
        f" watched_until FROM {table}_record WHERE key = 'there'".encode()
    )
    outcomes = step(store.many([Acquire(claim("a")), Acquire(claim("new")), Acquire(claim("z"))], timeout=1.5))
    assert [isinstance(outcome, Held) for outcome in outcomes] == [True, False, True]
    assert isinstance(outcomes[1], StoreUnavailable)
    assert outcomes[1].applied is False
    other.commit()
    assert isinstance(step(store.acquire(claim("new"), timeout=5)), Contended)


@pytest.fixture
def between(raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server) -> Iterator[Raw]:
    """Somebody else's connection that stops transactions, until it rolls back, after they have seen to a row."""
    step(make(postgres_server.url).status("key", timeout=5))
    wait = f"pg_advisory_xact_lock(hashtext('{table}'))"
    raw.execute(
        f"CREATE FUNCTION {table}_stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF current_query() LIKE '%VALUES%DO NOTHING%' THEN PERFORM {wait}; END IF; RETURN NULL; END $$".encode()
    )
    raw.execute(f"CREATE TRIGGER stop AFTER INSERT ON {table}_record EXECUTE FUNCTION {table}_stop()".encode())
    other.execute(f"SELECT {wait}".encode())
    yield other
    raw.execute(f"DROP FUNCTION {table}_stop CASCADE".encode())


@pytest.mark.parametrize("way", ["acquire", "abandon"])
def test_a_row_that_is_swept_before_it_is_locked(
    raw: Raw, between: Raw, table: str, make: Make, postgres_server: Server, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """O1, O5: when the row of a long open key is deleted between the steps of a call, what the call answers is stored
    all the same: a grant excludes others, an abandoned token is never granted."""
    monkeypatch.setattr(session, "_LONGEST_LOCK", 10.0)
    store, asked = make(postgres_server.url), claim("key")
    store.offset = -2 * FENCE_RETENTION
    lapsed = claim("key", ttl=1.0, late=True)
    step(store.acquire(lapsed, timeout=5))
    store.offset = 0.0
    call = store.acquire(asked, timeout=15) if way == "acquire" else store.abandon("key", asked.token, timeout=15)
    thread, answers = in_thread(call)
    waiting(raw)
    assert raw.execute(f"DELETE FROM {table}_record".encode()).rowcount == 1
    between.rollback()
    thread.join(20)
    assert [type(answer) for answer in answers] == [Held if way == "acquire" else NoneType]
    outcome = step(store.acquire(claim("key") if way == "acquire" else asked, timeout=5))
    assert isinstance(outcome, Contended)
    assert outcome.ended is (way == "abandon")


def test_a_record_that_cannot_be_written(raw: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """Where a trigger of somebody else swallows what is written, nobody is told that he holds the key."""
    store = make(postgres_server.url)
    lapsed = claim("key", ttl=0.001, late=True)
    step(store.acquire(lapsed, timeout=5))
    while step(store.look("key", lapsed.token, timeout=5)) != Lost("expired"):
        time.sleep(0.001)
    raw.execute(
        f"CREATE FUNCTION {table}_swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        f"CREATE TRIGGER swallow BEFORE UPDATE ON {table}_record FOR EACH ROW"
        f" EXECUTE FUNCTION {table}_swallow()".encode()
    )
    try:
        with pytest.raises(
            StoreUnavailable, match="vanished|did not answer"
        ):  # its time may end in the middle of a try
            step(store.acquire(claim("key"), timeout=0.3))
        assert step(store.status("key", timeout=5)).state != "held"
    finally:
        raw.execute(f"DROP FUNCTION {table}_swallow CASCADE".encode())


def test_a_refusal_writes_and_locks_nothing(raw: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """Asking for a key that somebody has, alone or in a batch, leaves no trace at its row: nobody queues there."""
    store, held = make(postgres_server.url), claim("key")
    step(store.acquire(held, timeout=5))
    query = f"SELECT xmin, xmax, ctid FROM {table}_record WHERE key = 'key'".encode()
    before = raw.execute(query).fetchone()
    for _ in range(3):
        assert isinstance(step(store.acquire(claim("key"), timeout=5)), Contended)
        assert step(store.renew("key", "nobody's", ttl=30.0, number=1, timeout=5)) == Lost("taken")
        assert step(store.release("key", "nobody's", timeout=5)) == Released("not_holder")
        asked = [Acquire(claim("key")), Release("other", "nobody's"), Look("third", "nobody's")]
        refused, *_ = step(store.many(asked, timeout=5))
        assert isinstance(refused, Contended)
    assert raw.execute(query).fetchone() == before
    assert raw.execute(f"SELECT count(*) FROM {table}_record".encode()).fetchone() == (1,)


def in_thread(work: Any) -> tuple[threading.Thread, list[Any]]:
    """Run blocking work beside this thread; what it answers or raises is in the list afterwards."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(step(work))
        except LeasedError as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


@pytest.mark.parametrize("way", ["renew", "release", "look"])
def test_time_is_read_after_the_wait_for_a_row(
    raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A call that begins while the lease lives and gets the row after its end finds it over: nothing is revived."""
    monkeypatch.setattr(session, "_LONGEST_LOCK", 10.0)
    store, held = make(postgres_server.url), claim("key", ttl=1.0)
    step(store.acquire(held, timeout=5))
    lock(other, table, "key")
    call = {
        "renew": lambda: store.renew("key", held.token, ttl=30.0, number=1, timeout=15),
        "release": lambda: store.release("key", held.token, timeout=15),
        "look": lambda: store.force_release("key", timeout=15),
    }[way]()
    thread, answers = in_thread(call)
    waiting(raw)
    while step(store.look("key", held.token, timeout=5)) != Lost("expired"):
        time.sleep(0.01)
    other.rollback()
    thread.join(20)
    assert answers == [{"renew": Lost("expired"), "release": Released("expired"), "look": False}[way]]


def test_a_grant_that_waited_for_the_row_has_its_whole_time(
    raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that gets an open key's row late is granted from that moment, and says what is left then."""
    monkeypatch.setattr(session, "_LONGEST_LOCK", 10.0)
    store, first = make(postgres_server.url), claim("key")
    step(store.acquire(first, timeout=5))
    assert step(store.release("key", first.token, timeout=5))
    lock(other, table, "key")
    thread, answers = in_thread(store.acquire(claim("key", ttl=5.0), timeout=15))
    waiting(raw)
    time.sleep(0.3)  # what the wait must not take from the lease
    other.rollback()
    thread.join(20)
    assert 4.9 < answers[0].lease.left <= 5.0


@pytest.mark.parametrize("first", ["claim", "abandon"])
def test_a_claim_and_its_abandon_wait_for_the_same_row(
    raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """O5: whatever the order in which a claim and its abandon get the row, afterwards its token holds nothing; that
    the claim began before the abandon was committed does not help it."""
    monkeypatch.setattr(session, "_LONGEST_LOCK", 10.0)
    store, before, asked = make(postgres_server.url), claim("key"), claim("key")
    step(store.acquire(before, timeout=5))
    assert step(store.release("key", before.token, timeout=5))
    lock(other, table, "key")
    calls = {"claim": store.acquire(asked, timeout=15), "abandon": store.abandon("key", asked.token, timeout=15)}
    threads = [in_thread(calls.pop(first))]
    waiting(raw)
    threads.append(in_thread(calls.popitem()[1]))
    waiting(raw, 2)
    other.rollback()
    for thread, _ in threads:
        thread.join(20)
    answers = [answer for _, (answer,) in threads]
    assert [type(answer) for answer in answers] == ([Held, NoneType] if first == "claim" else [NoneType, Contended])
    assert isinstance(step(store.look("key", asked.token, timeout=5)), Lost)
    outcome = step(store.acquire(asked, timeout=5))
    assert isinstance(outcome, Contended)
    assert outcome.ended


def test_an_interrupt_in_the_middle_of_a_call(
    raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server
) -> None:
    """L12: a call that Ctrl-C ends leaves no connection in use, and the server stops working for it."""
    store, held = make(postgres_server.url, own={"pool": "1"}), claim("key")
    step(store.acquire(held, timeout=5))
    lock(other, table, "key")
    main = threading.main_thread()

    def interrupt() -> None:
        waiting(raw)
        assert main.ident is not None
        signal.pthread_kill(main.ident, signal.SIGINT)

    beside = threading.Thread(target=interrupt)
    beside.start()
    with pytest.raises(KeyboardInterrupt):
        step(store.renew("key", held.token, ttl=30.0, number=1, timeout=5))
    beside.join()
    other.rollback()
    assert isinstance(step(store.look("key", held.token, timeout=5)), Held)
    assert step(store.release("key", held.token, timeout=5))


def test_deadlocks_stay_inside(raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """C123: when the server ends one of two transactions that wait for each other, ours is done again, unseen."""
    store, gone = make(f"{postgres_server.url}?options=-c%20deadlock_timeout%3D50ms"), claim("key")
    step(store.abandon("key", gone.token, timeout=5))
    other.execute("SET deadlock_timeout = '10s'")
    other.commit()
    assert other.execute(f"SELECT FROM {table}_mark FOR UPDATE".encode()).rowcount == 1
    thread, answers = in_thread(store.abandon("key", gone.token, timeout=5))
    waiting(raw)
    lock(other, table, "key")  # waits for our transaction, which waits for this one
    other.rollback()
    thread.join(20)
    assert answers == [None]
    log = "SELECT deadlocks > 0 FROM pg_stat_database WHERE datname = current_database()"
    give_up_at = time.monotonic() + 10
    while raw.execute(log).fetchone() != (True,):
        assert time.monotonic() < give_up_at, "there was no deadlock"
        time.sleep(0.02)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_threads_count_right(raw: Raw, make: Make, postgres_server: Server, isolation: str) -> None:
    """Eight callers that read, wait and write an unprotected number under the lock lose no count, whatever isolation
    the server gives to whoever asks for none; what it cannot serialize is done again, unseen (C123)."""
    given = isolation.replace(" ", "%5C%20")
    url = f"{postgres_server.url}?options=-c%20default_transaction_isolation%3D{given}"
    stores = [make(url) for _ in range(8)]
    seen = {"count": 0, "number": 0}

    def count(store: Any) -> None:
        for _ in range(15):
            asked = claim("counter")
            while not isinstance(outcome := step(store.acquire(asked, timeout=5)), Held):
                time.sleep(0.001)
            before = dict(seen)
            assert outcome.lease.fencing_token > before["number"]
            time.sleep(0.0005)
            seen.update(count=before["count"] + 1, number=outcome.lease.fencing_token)
            assert step(store.release(asked.key, asked.token, timeout=5))

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(count, store) for store in stores]:
            done.result()
    assert seen["count"] == 120


def test_batches_in_any_order_do_not_deadlock(raw: Raw, make: Make, postgres_server: Server) -> None:
    """C123: batches of many callers on the same keys, in whatever order they name them, all get their answers."""
    query = "SELECT sum(deadlocks) FROM pg_stat_database"
    before = raw.execute(query).fetchone()
    stores = [make(postgres_server.url) for _ in range(4)]

    def use(store: Any, turn: int) -> None:
        for number in range(20):
            keys = [f"key {(turn * 7 + number + place * (turn + 1)) % 11}" for place in range(11)]
            claims = [claim(key) for key in dict.fromkeys(keys)]
            outcomes = step(store.many([Acquire(one) for one in claims], timeout=5))
            assert all(isinstance(outcome, Held | Contended) for outcome in outcomes)
            mine = [one for one, outcome in zip(claims, outcomes, strict=True) if isinstance(outcome, Held)]
            assert all(step(store.many([Release(one.key, one.token) for one in mine], timeout=5)))

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(use, store, turn) for turn, store in enumerate(stores)]:
            done.result()
    assert raw.execute(query).fetchone() == before


def test_the_server_ends_every_connection(raw: Raw, make: Make, postgres_server: Server) -> None:
    """C119: holding rests on the row: over a new connection the renewal succeeds, unnoticed by its caller."""
    store, held = make(postgres_server.url, own={"pool": "3"}), claim("key")
    step(store.acquire(held, timeout=5))
    pid = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'leased'"
    for number in (1, 2):
        raw.execute(pid)
        while raw.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leased'").fetchone() != (0,):
            time.sleep(0.002)
        assert isinstance(step(store.renew("key", held.token, ttl=30.0, number=number, timeout=5)), Held)


def test_a_connection_that_is_ended_in_the_middle(
    raw: Raw, other: Raw, table: str, make: Make, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C121: a write whose connection is ended before its answer has an unknown effect, and the next call works."""
    monkeypatch.setattr(session, "_LONGEST_LOCK", 10.0)
    store, held = make(postgres_server.url), claim("key")
    step(store.acquire(held, timeout=5))
    lock(other, table, "key")
    thread, answers = in_thread(store.renew("key", held.token, ttl=30.0, number=1, timeout=10))
    waiting(raw)
    raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    thread.join(20)
    other.rollback()
    assert isinstance(answers[0], StoreUnavailable)
    assert answers[0].applied is None
    assert isinstance(step(store.look("key", held.token, timeout=5)), Held)


def test_holders_and_waiters_share_few_connections(raw: Raw, make: Make, postgres_server: Server) -> None:
    """C115: holding or waiting occupies no connection: 30 callers get along with two."""
    store = make(postgres_server.url, own={"pool": "2"})
    holders = [claim(f"held {number}") for number in range(5)]
    for held in holders:
        step(store.acquire(held, timeout=5))

    def wait(number: int) -> None:
        asked = claim(f"held {number % 5}")
        while not isinstance(step(store.acquire(asked, timeout=5)), Held):
            time.sleep(0.005)
        assert step(store.release(asked.key, asked.token, timeout=5))

    with ThreadPoolExecutor(25) as threads:
        waiters = [threads.submit(wait, number) for number in range(25)]
        for held in holders:
            assert step(store.release(held.key, held.token, timeout=5))
        for waiter in waiters:
            waiter.result()
    give_up_at = time.monotonic() + 10.0  # connections of tests before this one may still be ending
    while raw.execute("SELECT count(*) > 2 FROM pg_stat_activity WHERE application_name = 'leased'").fetchone() != (
        False,
    ):
        assert time.monotonic() < give_up_at


def test_a_server_that_may_not_write_is_no_contention(raw: Raw, make: Make, postgres_server: Server) -> None:
    """C121: where nothing may be written the cause is told, and nobody is said to hold the key."""
    store = make(f"{postgres_server.url}?options=-c%20default_transaction_read_only%3Don")
    step(make(postgres_server.url).acquire(claim("another"), timeout=5))
    with pytest.raises(StoreUnavailable, match="25006") as caught:
        step(store.acquire(claim("key"), timeout=5))
    assert caught.value.applied is False
    assert "default_transaction_read_only" in str(caught.value)
    (outcome,) = step(store.many([Look("key", "nobody's")], timeout=5))
    assert outcome == Lost("expired")
