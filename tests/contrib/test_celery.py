"""Real Celery workers on Redis: one task at a time for each user, through retries, a kill and a redelivery."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

import leased
from tests.contrib.celery_workers import ROOT, Workers
from tests.servers.process import Server
from tests.until import until

Start: TypeAlias = Callable[..., Server]


@pytest.fixture(params=["prefork", "gevent"])
def workers(request: pytest.FixtureRequest, private_valkey: Start, tmp_path: Path) -> Iterator[Workers]:
    """A worker of each pool, and its own Redis."""
    found = Workers(private_valkey(), tmp_path / "lines", pool=request.param)
    yield found
    found.close()


def test_one_task_at_a_time_for_each_user(workers: Workers) -> None:
    """P4, O7: tasks of one user never overlap, tasks of two users do; each is retried until it has run, and owns the
    lease by its id; fencing tokens rise."""
    busy = [workers.send("import_user", "ann", 0.2) for _ in range(4)]
    other = workers.send("import_user", "bob", 1.0)
    tokens = [workers.result(task) for task in busy]
    workers.result(other)
    assert len(set(tokens)) == 4
    ann = [line for line in workers.lines() if line[1] == "ann"]
    assert [line[0] for line in ann] == ["begin", "end"] * 4
    assert all(ann[at][2] == ann[at + 1][2] for at in range(0, 8, 2))
    assert all(line[3] == f"celery:{line[2]}" for line in ann if line[0] == "begin")
    ends = [int(line[3]) for line in ann if line[0] == "end"]
    assert ends == sorted(tokens)
    assert any(line[1] == "bob" for line in workers.lines()[1:-1])


def test_tasks_that_are_skipped_or_give_up(workers: Workers) -> None:
    """P4: skipped where that was asked for; failed with `LockNotAcquired` where its retries are used up."""
    with leased.connect(f"{workers.url}/6") as locks, locks.lock("import:ann", ttl=60):
        assert workers.result(workers.send("skip_user", "ann")) is None
        assert workers.result(workers.send("skip_user", "bob")) == "ran for bob"
        with pytest.raises(Exception, match="'import:ann' is held by"):
            workers.result(workers.send("give_up", "ann"))
    assert workers.result(workers.send("skip_user", "ann")) == "ran for ann"


def test_a_task_that_is_delivered_again_takes_over_its_own_lease(private_valkey: Start, tmp_path: Path) -> None:
    """P4, O1: a worker process is killed in the middle of a task; delivered again, the task takes over its lease at
    once instead of waiting for the ttl, with a higher fencing token."""
    workers = Workers(private_valkey(), tmp_path / "lines", pool="prefork")
    try:
        task = workers.send("import_user", "ann", 2.0)
        until(lambda: workers.lines(), what="the task has begun", seconds=60)
        os.kill(int(workers.lines()[0][-1]), signal.SIGKILL)
        token = workers.result(task)
        begun = [line for line in workers.lines() if line[0] == "begin"]
        assert [line[2] for line in begun] == [task, task]
        assert begun[0][-1] != begun[1][-1]
        assert [line[0] for line in workers.lines()] == ["begin", "begin", "end"]
        assert token > 0
    finally:
        workers.close()


def test_under_gevent_a_task_that_is_delivered_again_takes_over_its_own_lease(
    private_valkey: Start, tmp_path: Path
) -> None:
    """P4, O1: the whole worker is killed, all of its greenlets with it; what the broker delivers to the next worker
    takes over its lease."""
    workers = Workers(private_valkey(), tmp_path / "lines", pool="gevent")
    try:
        task = workers.send("import_user", "ann", 0.5)
        until(lambda: workers.lines(), what="the task has begun", seconds=60)
        workers.program.kill()
        workers.program.wait()
        workers.deliver_again()
        workers.start()
        assert workers.result(task) > 0
        begun = [line for line in workers.lines() if line[0] == "begin"]
        assert {line[2] for line in begun} == {task}
        assert len({line[-1] for line in begun}) == 2
    finally:
        workers.close()


def test_a_worker_that_is_told_to_end_finishes_and_frees_its_keys(workers: Workers) -> None:
    """P4: a warm shutdown waits for what runs; nothing is left held, and the next worker goes on with what is left."""
    first = workers.send("import_user", "ann", 1.0)
    until(lambda: workers.lines(), what="the task has begun", seconds=60)
    second = workers.send("import_user", "ann", 0.0)
    workers.program.terminate()
    workers.program.wait(60)
    assert workers.result(first) > 0
    with leased.connect(f"{workers.url}/6") as locks:
        assert not locks.status("import:ann").held
    workers.start()
    assert workers.result(second) > workers.result(first)


def test_tasks_that_are_cancelled(private_valkey: Start, tmp_path: Path) -> None:
    """P4: one that waits for its retry never runs and keeps nobody out; one that is killed in the middle keeps its key
    for a ttl and no longer."""
    workers = Workers(private_valkey(), tmp_path / "lines", pool="prefork")
    try:
        running = workers.send("import_user", "ann", 60.0)
        until(lambda: workers.lines(), what="the task has begun", seconds=60)
        waiting, patient = workers.send("import_user", "ann"), workers.send("import_user", "ann")
        workers.revoke(waiting)
        with pytest.raises(Exception, match="revoked"):
            workers.result(waiting)
        workers.revoke(running, signal_name="SIGKILL")
        with pytest.raises(Exception, match=r"terminated|revoked|SIGKILL"):
            workers.result(running)
        assert workers.result(patient) > 0
        begun = [line[2] for line in workers.lines() if line[0] == "begin"]
        assert begun == [running, patient]
    finally:
        workers.close()


def test_called_as_a_function(tmp_path: Path, private_valkey: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a worker there is no task: the lock has no owner and raises as any other."""
    server = private_valkey()
    monkeypatch.setenv("TEST_REDIS", f"redis://{server.host}:{server.port}")
    program = (
        "from tests.contrib.celery_app import REDIS, skip_user\n"
        "import leased\n"
        "assert skip_user('ann') == 'ran for ann'\n"
        "with leased.connect(f'{REDIS}/6') as locks, locks.lock('import:bob', ttl=60):\n"
        "    try:\n"
        "        skip_user('bob')\n"
        "    except leased.LockNotAcquired as error:\n"
        "        print(error.key)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("import:bob\n", 0), done.stderr
