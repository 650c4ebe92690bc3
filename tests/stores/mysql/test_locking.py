"""Rows that others lock and transactions that meet: what callers of the MySQL store are told, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest

from leased.clocks import now, step
from leased.errors import StoreUnavailable
from leased.model import Acquire, Contended, Held, Look, Lost, Release, Released
from leased.store import Store
from leased.stores import _sql_rules as rules
from leased.stores import mysql
from leased.stores._sql_session import Call
from leased.testing.worlds import Blocking, Driver
from tests.contract.mysql_places import Admin
from tests.stores.mysql.conftest import Database, Make, claim
from tests.until import until


@pytest.fixture
def other(database: Database) -> Iterator[Admin]:
    """Somebody else, with transactions of his own."""
    with closing(Admin(database.url)) as found:
        yield found


def lock(other: Admin, *keys: str) -> None:
    """Begin a transaction and lock the rows of these keys, in this order."""
    other.run("START TRANSACTION")
    for key in keys:
        assert other.run(f"SELECT 1 FROM leased_record WHERE namespace = '' AND `key` = '{key}' FOR UPDATE")


def somebody_waits(database: Database) -> bool:
    """Whether a transaction waits for a row. (The table of transactions would not do: it is made anew only once nobody
    has read it for a tenth of a second.)"""
    return int(database.run("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")[0][1]) > 0


def waits(database: Database) -> int:
    """How often anybody has waited for a row."""
    return int(database.run("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'")[0][1])


def beside(driver: Driver, call: Any) -> tuple[threading.Thread, list[Any]]:
    """Run a call in a thread; the list has its answer or its error once that has ended."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(driver.run(call))
        except Exception as error:  # noqa: BLE001 - it is judged by the test
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


def connections(database: Database) -> set[int]:
    """The numbers of all connections to this database but our own."""
    question = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    return {number for (number,) in database.run(question)}


@pytest.mark.parametrize("seconds", [0.3, 1.7])
def test_a_row_that_is_locked_from_outside(
    seconds: float, database: Database, other: Admin, driver: Driver, make: Make
) -> None:
    """C121, S4: it is no contention but an error, within the caller's time, which knows that nothing was changed and
    says why; no connection is lost over it. Other keys are served, and this one later."""
    store, held = make(database.url), claim("locked")
    driver.run(store.acquire(held, timeout=5))
    lock(other, "locked")
    before = connections(database)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: store.renew("locked", held.token, ttl=30.0, number=1, timeout=seconds),
        lambda: store.release("locked", held.token, timeout=seconds),
        lambda: store.abandon("locked", held.token, timeout=seconds),
        lambda: store.force_release("locked", timeout=seconds),
    )
    for call in calls:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="somebody holds a lock") as caught:
            driver.run(call())
        assert caught.value.applied is False
        assert time.monotonic() - began < seconds + 1.0
    assert connections(database) == before
    assert isinstance(driver.run(store.acquire(claim("another"), timeout=5)), Held)
    assert isinstance(driver.run(store.look("locked", held.token, timeout=5)), Held)
    other.run("ROLLBACK")
    driver.run(store.abandon("locked", held.token, timeout=5))
    assert isinstance(driver.run(store.acquire(claim("locked"), timeout=5)), Held)


def test_a_locked_row_on_a_server_that_cannot_refuse_at_once(
    database: Database, other: Admin, driver: Driver, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C121, S4: MySQL waits for a second at the least, so what has less left than that is not asked again."""
    monkeypatch.setattr(mysql, "at_once", lambda _settings: "")
    store, held = make(database.url), claim("locked")
    driver.run(store.acquire(held, timeout=5))
    lock(other, "locked")
    before = connections(database)
    with pytest.raises(StoreUnavailable, match="somebody holds a lock") as caught:
        driver.run(store.release("locked", held.token, timeout=2.1))
    assert caught.value.applied is False
    assert connections(database) == before
    other.run("ROLLBACK")
    assert driver.run(store.release("locked", held.token, timeout=5)) == Released()


def test_what_has_little_time_does_the_same(database: Database, driver: Driver, make: Make) -> None:
    """S4: a call too short to wait for a row is asked in other words, with the same answers."""
    store, first, late = make(database.url), claim("key"), claim("late", late=True)
    driver.run(store.status("key", timeout=5))
    granted = driver.run(store.acquire(first, timeout=1))
    assert isinstance(granted, Held)
    assert isinstance(driver.run(store.acquire(claim("key"), timeout=1)), Contended)
    assert isinstance(driver.run(store.renew("key", first.token, ttl=60.0, number=1, timeout=1)), Held)
    assert driver.run(store.release("key", first.token, timeout=1)) == Released()
    second = driver.run(store.acquire(claim("key"), timeout=1))
    assert isinstance(second, Held)
    assert second.lease.fencing_token > granted.lease.fencing_token
    assert isinstance(driver.run(store.acquire(late, timeout=1)), Held)
    driver.run(store.abandon("late", late.token, timeout=1))
    assert driver.run(store.force_release("key", timeout=1))
    assert driver.run(store.list("", after="", limit=9, timeout=1)) == []


def test_a_wait_for_a_row_ends_before_the_call(database: Database, other: Admin, driver: Driver, make: Make) -> None:
    """A statement that waits for a row gives up by itself and is asked again: it does not run on without a caller."""
    store, held = make(database.url), claim("locked")
    driver.run(store.acquire(held, timeout=5))
    lock(other, "locked")
    before = waits(database)
    thread, answers = beside(driver, store.release("locked", held.token, timeout=30))
    until(lambda: waits(database) >= before + 2)
    other.run("ROLLBACK")
    thread.join(10)
    assert answers == [Released()]


def test_a_lease_that_lapses_while_its_row_is_locked_is_not_revived(
    database: Database, other: Admin, driver: Driver, make: Make
) -> None:
    """M7: the time is that after the wait; the start of the statement (`NOW()`) would revive what has lapsed."""
    store, held = make(database.url), claim("locked", ttl=0.7)
    driver.run(store.acquire(held, timeout=5))
    lock(other, "locked")
    thread, answers = beside(driver, store.renew("locked", held.token, ttl=30.0, number=1, timeout=5))
    until(lambda: somebody_waits(database))
    ((expires_at,),) = database.run("SELECT expires_at FROM leased_record")
    clock = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
    until(lambda: bool(database.run(clock)[0][0] > expires_at))
    other.run("ROLLBACK")
    thread.join(10)
    assert answers == [Lost("expired")]


def test_a_deadlock_is_retried_inside(database: Database, other: Admin, driver: Driver, make: Make) -> None:
    """C123: a transaction that the server undoes for another one is tried again; its caller hears nothing of it."""
    store, held = make(database.url), claim("wanted")
    driver.run(store.acquire(held, timeout=5))
    token = "SELECT token FROM leased_record WHERE `key` = 'wanted'"
    other.run("CREATE TABLE heavy (a INT PRIMARY KEY)")
    before = int(database.run("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")[0][1])
    other.run("START TRANSACTION")  # one that has done more than ours, so that ours is the one that is undone
    other.run(f"INSERT INTO heavy VALUES {', '.join(f'({number})' for number in range(1000))}")
    other.run(f"INSERT INTO leased_mark SELECT '', ({token}), 'x', 0")
    thread, answers = beside(driver, store.abandon("wanted", held.token, timeout=30))
    until(lambda: somebody_waits(database))
    other.run("UPDATE leased_record SET late = late WHERE namespace = '' AND `key` = 'wanted'")
    other.run("ROLLBACK")
    thread.join(20)
    assert answers == [None]
    assert int(database.run("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")[0][1]) > before
    assert isinstance(driver.run(store.look("wanted", held.token, timeout=5)), Lost)


def test_a_batch_waits_for_no_locked_row(database: Database, other: Admin, driver: Driver, make: Make) -> None:
    """One row that somebody has locked holds up none of the others of a batch; it is asked by itself."""
    store = make(database.url)
    claims = [claim(f"key-{number}") for number in range(5)]
    first = driver.run(store.many([Acquire(one) for one in claims], timeout=5))
    assert all(isinstance(outcome, Held) for outcome in first)
    lock(other, "key-2")
    began = time.monotonic()
    looked = driver.run(store.many([Look(one.key, one.token) for one in claims], timeout=5))
    assert all(isinstance(outcome, Held) for outcome in looked)
    assert time.monotonic() - began < 1.0
    ended = driver.run(store.many([Release(one.key, one.token) for one in claims], timeout=0.5))
    assert [type(outcome) for outcome in ended] == [Released, Released, StoreUnavailable, Released, Released]


@pytest.mark.parametrize("way", ["one", "late", "many"])
def test_no_grant_is_answered_without_its_row(
    way: str, database: Database, other: Admin, driver: Driver, make: Make
) -> None:
    """S4: a row that somebody's clean-up deletes while a grant waits for it is made again, not granted from memory."""
    store = make(database.url)
    first, mine = claim("key", late=way == "late"), claim("key", late=way == "late")
    driver.run(store.acquire(first, timeout=5))
    driver.run(store.release("key", first.token, timeout=5))
    other.run("START TRANSACTION")
    other.run("DELETE FROM leased_record WHERE `key` = 'key'")
    more = [claim("beside")] if way == "many" else []
    call = store.many([Acquire(one) for one in (mine, *more)], timeout=10)
    thread, answers = beside(driver, call)
    until(lambda: somebody_waits(database))
    other.run("COMMIT")
    thread.join(20)
    assert all(isinstance(outcome, Held) for outcome in answers[0])
    assert database.run("SELECT COUNT(*) FROM leased_record WHERE `key` = 'key' AND token IS NOT NULL") == ((1,),)
    assert isinstance(driver.run(store.look("key", mine.token, timeout=5)), Held)


@pytest.mark.parametrize("there", [True, False], ids=["record", "no-record"])
def test_a_locked_key_cannot_be_deleted(
    there: bool, database: Database, other: Admin, driver: Driver, make: Make
) -> None:
    """S4: from `lock` to `finish` the row stays, whether it was there before or not: what is written is kept."""
    store, mine = make(database.url), claim("key")
    driver.run(store.status("key", timeout=5))
    if there:
        driver.run(store.acquire(mine, timeout=5))
        driver.run(store.release("key", mine.token, timeout=5))

    async def work() -> None:
        session, call = await store._pool.take(5.0), Call(now() + 5.0)
        seen = await session.lock("key", mine.token, call=call)
        assert other.run("SELECT 1 FROM leased_record FOR UPDATE SKIP LOCKED") == ()
        with pytest.raises(pymysql.OperationalError, match="1205"):
            other.run("SET STATEMENT innodb_lock_wait_timeout = 0 FOR DELETE FROM leased_record")
        granted, effect = rules.acquire(seen, claim=claim("key"))
        assert isinstance(granted, Held)
        await session.finish("key", effect, call=call)
        store._pool.give(session)

    driver.run(work())
    assert driver.run(store.status("key", timeout=5)).state == "held"


def test_a_transaction_of_the_caller_is_his_own(database: Database, other: Admin, driver: Driver, make: Make) -> None:
    """C113: whatever is asked of the store, also what it refuses, neither ends nor commits anybody else's work."""
    store = make(database.url)
    other.run("CREATE TABLE work (done INT)")
    other.run("START TRANSACTION")
    other.run("INSERT INTO work VALUES (1)")
    assert isinstance(driver.run(store.acquire(claim("key", ttl=0.05), timeout=5)), Held)
    until(lambda: driver.run(store.status("key", timeout=5)).state == "free")
    assert isinstance(driver.run(store.acquire(claim("key"), timeout=5)), Held)
    assert isinstance(driver.run(store.acquire(claim("key"), timeout=5)), Contended)
    assert database.run("SELECT * FROM work") == ()
    other.run("ROLLBACK")
    assert other.run("SELECT * FROM work") == ()
    assert driver.run(store.status("key", timeout=5)).state == "held"


def test_facts_are_read_after_the_grant(database: Database, other: Admin, driver: Driver, make: Make) -> None:
    """C124: a transaction that began before the wait still sees what was then; one that begins after the grant sees
    the work of the holder before. The store's own connections have no part in that."""
    store, first = make(database.url), claim("key")
    other.run("CREATE TABLE work (done INT)")
    driver.run(store.acquire(first, timeout=5))
    other.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    database.run("INSERT INTO work VALUES (1)")
    driver.run(store.release("key", first.token, timeout=5))
    assert isinstance(driver.run(store.acquire(claim("key"), timeout=5)), Held)
    assert other.run("SELECT * FROM work") == ()
    other.run("COMMIT")
    assert other.run("SELECT * FROM work") == ((1,),)


WORKERS, SECONDS, LOCKED_KEYS, OLD_ROWS = 64, 3.0, 10, 3000


@pytest.mark.real_clock
@pytest.mark.parametrize("face", [Blocking()], ids=["blocking"])  # the statements are those of the other face
def test_workers_do_not_deadlock_among_themselves(database: Database, make: Make, face: Any) -> None:
    """C123: 64 workers on ten keys and on fresh ones, while old rows are swept: no error reaches anybody."""
    store: Store = make(database.url, own={"pool": "32"})
    face.driver().run(store.status("any", timeout=5))
    row = "('old', '{}', NULL, NULL, '', '', 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0)"
    columns = (
        "namespace, `key`, token, owner, held_by, metadata, fencing_token, renewal, acquired_at, expires_at, free_at,"
        " deadline, ttl, hold_at_least, lock_delay, late, forced, marked_until"
    )
    rows = ", ".join(row.format(number) for number in range(OLD_ROWS))
    database.run(f"INSERT INTO leased_record ({columns}) VALUES {rows}")
    stop_at = time.monotonic() + SECONDS
    inside = dict.fromkeys(range(LOCKED_KEYS), 0)
    problems: list[BaseException] = []
    done = [0] * WORKERS

    def work(worker: int) -> None:
        try:
            while time.monotonic() < stop_at:
                done[worker] += 1
                number = done[worker] % LOCKED_KEYS
                mine = claim(f"shared-{number}", late=worker % 3 == 0)
                if isinstance(step(store.acquire(mine, timeout=20)), Held):
                    inside[number] += 1
                    assert inside[number] == 1
                    inside[number] -= 1
                    step(store.release(mine.key, mine.token, timeout=20))
                else:
                    step(store.abandon(mine.key, mine.token, timeout=20))
                fresh = claim(f"fresh-{worker}-{done[worker]}")
                assert isinstance(step(store.acquire(fresh, timeout=20)), Held)
                step(store.release(fresh.key, fresh.token, timeout=20))
        except BaseException as error:  # noqa: BLE001 - raised below
            problems.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []

    def some_are_swept() -> bool:
        """On a machine that was busy the sweep may not have had its turn yet: it comes with further calls."""
        more = claim("more")
        step(store.acquire(more, timeout=20))
        step(store.release(more.key, more.token, timeout=20))
        return database.run("SELECT COUNT(*) FROM leased_record WHERE namespace = 'old'") < ((OLD_ROWS,),)

    until(some_are_swept, seconds=30)
