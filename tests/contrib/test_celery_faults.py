"""Real Celery workers whose tasks are too slow, whose store is away, and whose leases are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

import leased
from tests.contrib.celery_workers import Workers
from tests.servers.process import Server
from tests.until import until

Start: TypeAlias = Callable[..., Server]


@pytest.fixture
def store(private_valkey: Start) -> Server:
    """The server of the locks, which is not the broker's."""
    return private_valkey()


@pytest.fixture
def workers(private_valkey: Start, store: Server, tmp_path: Path) -> Iterator[Workers]:
    """A worker with prefork whose store gives up soon."""
    found = Workers(private_valkey(), tmp_path / "lines", pool="prefork", store=f"{store.url}?leased_timeout=0.5")
    yield found
    found.close()


def begun(workers: Workers, *, times: int = 1) -> None:
    """Wait until tasks have begun so many times."""
    until(lambda: len(workers.lines()) >= times, what="the task has begun", seconds=60)


def test_a_soft_time_limit_ends_task_and_lease(workers: Workers, store: Server) -> None:
    """P4: the exception of the limit goes through the block, which frees the key although its ttl is long."""
    with pytest.raises(Exception, match="SoftTimeLimitExceeded"):
        workers.result(workers.send("too_slow", "ann"))
    assert [line[:3] for line in workers.lines()][1:] == [["interrupted", "ann", "False"]]
    with leased.connect(store.url) as locks:
        assert locks.status("import:ann").state == "free"


def test_a_hard_time_limit_kills_and_the_key_is_free_after_its_ttl(workers: Workers, store: Server) -> None:
    """P4, M1: the process is killed while it holds: Celery delivers no such task again, so the next one waits for the
    ttl, and no longer; in a process that replaced the first."""
    with pytest.raises(Exception, match="TimeLimitExceeded"):
        workers.result(workers.send("hung", "ann"))
    next_one = workers.send("import_user", "ann")
    with leased.connect(store.url) as locks:
        left = locks.status("import:ann").expires_in
    assert left is None or left <= 4
    assert workers.result(next_one) > 0
    assert [line[0] for line in workers.lines()] == ["begin", "begin", "end"]
    assert workers.lines()[0][-1] != workers.lines()[1][-1]


def test_a_hard_time_limit_under_gevent(private_valkey: Start, tmp_path: Path) -> None:
    """P4: there it is an exception in the greenlet, and the key is free at once."""
    server = private_valkey()
    workers = Workers(server, tmp_path / "lines", pool="gevent")
    try:
        with pytest.raises(Exception, match="TimeLimitExceeded"):
            workers.result(workers.send("hung", "ann"))
        with leased.connect(f"{workers.url}/6") as locks:
            until(lambda: locks.status("import:ann").state == "free", what="it is freed", seconds=2)
    finally:
        workers.close()


def test_a_store_that_is_away_when_a_task_begins_loses_no_task(workers: Workers, store: Server) -> None:
    """P4, P2: nothing runs without the lease; the task is retried until the store answers, and then it runs once."""
    store.kill()
    task = workers.send("import_user", "ann")
    skipped = workers.send("skip_user", "bob")
    with pytest.raises(leased.StoreUnavailable):
        workers.result(skipped)
    assert workers.lines() == []
    store.start()
    assert workers.result(task) > 0
    assert [line[0] for line in workers.lines()] == ["begin", "end"]


def test_retries_because_of_the_store_end_as_the_task_says(workers: Workers, store: Server) -> None:
    """P4: with its `max_retries` used up it fails with what the store raised."""
    store.kill()
    with pytest.raises(leased.StoreUnavailable):
        workers.result(workers.send("give_up", "ann"))
    assert workers.lines() == []


def test_a_store_that_is_away_in_the_middle_for_less_than_the_lease(
    workers: Workers, store: Server, tmp_path: Path
) -> None:
    """H1, H6: renewals fail for a while and succeed again: the task ends with its value under its first token."""
    task = workers.send("unlucky", "ann")
    begun(workers)
    store.pause()
    begun(workers, times=2)
    store.resume()
    with leased.connect(store.url) as locks:
        until(lambda: (locks.status("import:ann").expires_in or 0) > 4.5, what="it is renewed")
    (tmp_path / "go on").touch()
    first = int(workers.lines()[0][2])
    assert (workers.result(task), [line[0] for line in workers.lines()]) == (first, ["begin", "risk"])


def test_a_store_that_is_away_beyond_the_lease(workers: Workers, store: Server, tmp_path: Path) -> None:
    """H2, H4: the task fails with `LockLost` at its end, and is tried again since it says so (`autoretry_for`): under
    a new lease with a higher token."""
    task = workers.send("unlucky", "ann")
    begun(workers)
    store.pause()
    begun(workers, times=3)
    (tmp_path / "go on").touch()
    store.resume()
    token = workers.result(task)
    said = [line[0] for line in workers.lines()]
    assert (said[:3], said[3]) == (["begin", "risk", "lost"], "begin")
    assert token > int(workers.lines()[0][2])


def test_a_store_that_is_away_when_a_task_ends(workers: Workers, store: Server, tmp_path: Path) -> None:
    """H4: what the task has made counts; its key is free after the ttl, as the log says."""
    task = workers.send("unlucky", "ann")
    begun(workers)
    store.pause()
    (tmp_path / "go on").touch()
    token = workers.result(task)
    assert token == int(workers.lines()[0][2])
    store.resume()
    with leased.connect(store.url) as locks, locks.lock("import:ann", wait=30):
        pass


def test_a_lease_that_is_lost_in_the_middle(workers: Workers, store: Server, tmp_path: Path) -> None:
    """H4: the task fails, although its function ended well, and says why; it harms no other task's lease."""
    task = workers.send("loses", "ann")
    begun(workers)
    with leased.connect(store.url) as locks:
        assert locks.force_release("import:ann")
        with locks.lock("import:ann", ttl=60) as other:
            (tmp_path / "go on").touch()
            with pytest.raises(Exception, match=r"LockLost|is over"):
                workers.result(task)
            other.ensure_held()
            assert locks.status("import:ann").fencing_token == other.fencing_token


@pytest.mark.parametrize("how", ["retried", "killed"])
def test_locks_inside_a_task_are_taken_over_by_its_next_slice(workers: Workers, store: Server, how: str) -> None:
    """O7: what a task left behind, retried or killed in the middle, it takes at once when it comes again: locks inside
    have its id as their owner."""
    task = workers.send("in_slices", how)
    first, second = workers.result(task)
    assert second > first
    assert {line[2] for line in workers.lines()} == {f"celery:{task}"}
    with leased.connect(store.url) as locks:
        assert locks.status(f"account:{how}").state == locks.status(f"import:{how}").state == "free"
