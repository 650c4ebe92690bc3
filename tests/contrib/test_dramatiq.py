"""Real Dramatiq workers on Redis: one actor at a time for each user, through retries, limits and a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import leased
from leased.contrib.dramatiq import one_at_a_time
from leased.errors import InvalidRequest
from tests.servers.process import Server
from tests.until import until

ROOT = Path(__file__).parents[2]
Start: TypeAlias = Callable[..., Server]


class Workers:
    """A Redis of its own, a worker on it, and what its actors wrote. Messages are sent by programs of their own."""

    def __init__(self, server: Server, lines: Path, **environment: str) -> None:
        self.url = f"redis://{server.host}:{server.port}"
        self._lines = lines
        lines.touch()
        self._environment = {
            **os.environ,
            **environment,
            "TEST_REDIS": self.url,
            "TEST_LINES": str(lines),
            "PYTHONWARNINGS": "",
        }
        self.start()

    def start(self) -> None:
        """Start a worker, in a process group of its own."""
        command = [sys.executable, "-m", "dramatiq", "tests.contrib.dramatiq_app", "--processes", "1", "--threads", "4"]
        self._program = subprocess.Popen(command, cwd=ROOT, env=self._environment, start_new_session=True)

    def kill(self) -> None:
        """Kill the worker and its children."""
        os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait()

    def send(self, actor: str, *args: Any) -> None:
        """Send a message, and wait for nothing."""
        program = f"from tests.contrib import dramatiq_app as app; app.{actor}.send(*{args!r})"
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=self._environment, timeout=60, check=True)

    def ask(self, *calls: tuple[str, list[Any]]) -> list[Any]:
        """Send these messages, and give their results, or `None` for one that failed."""
        program = (
            "import json, sys\n"
            "from dramatiq.results import ResultFailure\n"
            "from tests.contrib import dramatiq_app as app\n"
            "sent = [getattr(app, name).send(*args) for name, args in json.loads(sys.argv[1])]\n"
            "def result(message):\n"
            "    try:\n"
            "        return message.get_result(block=True, timeout=60_000)\n"
            "    except ResultFailure as failure:\n"
            "        return f'{failure.orig_exc_type}: {failure.orig_exc_msg}'\n"
            "print(json.dumps([result(message) for message in sent]))\n"
        )
        command = [sys.executable, "-c", program, json.dumps(calls)]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        results: list[Any] = json.loads(done.stdout)
        return results

    def lines(self) -> list[list[str]]:
        """What the actors wrote."""
        return [line.split() for line in self._lines.read_text().splitlines()]

    def close(self) -> None:
        """End the worker."""
        if self._program.poll() is None:
            self.kill()


@pytest.fixture
def workers(private_valkey: Start, tmp_path: Path) -> Iterator[Workers]:
    """A worker, and its own Redis."""
    found = Workers(private_valkey(), tmp_path / "lines")
    yield found
    found.close()


def test_one_actor_at_a_time_for_each_user(workers: Workers) -> None:
    """P4, O7: actors of one user never overlap, each is retried until it has run and owns the lease by its
    message's id; fencing tokens rise; another user is not held up."""
    tokens = workers.ask(*[("import_user", ["ann", 0.2])] * 4, ("import_user", ["bob", 1.0]))[:4]
    assert len(set(tokens)) == 4
    ann = [line for line in workers.lines() if line[1] == "ann"]
    assert [line[0] for line in ann] == ["begin", "end"] * 4
    assert all(ann[at][2] == ann[at + 1][2] for at in range(0, 8, 2))
    assert all(line[3] == f"dramatiq:{line[2]}" for line in ann if line[0] == "begin")
    assert [int(line[3]) for line in ann if line[0] == "end"] == sorted(tokens)
    assert any(line[1] == "bob" for line in workers.lines()[1:-1])


def test_actors_that_are_skipped_or_give_up(workers: Workers) -> None:
    """P4: skipped where that was asked for; dead where its retries are used up, and nothing ran."""
    with leased.connect(f"{workers.url}/6") as locks, locks.lock("import:ann", ttl=60):
        skipped, other, dead = workers.ask(("skip_user", ["ann"]), ("skip_user", ["bob"]), ("give_up", ["ann"]))
        assert (skipped, other) == (None, "ran for bob")
        assert dead.startswith("Retry: 'import:ann' is held by")
    assert workers.ask(("give_up", ["ann"]), ("skip_user", ["ann"]))[0] == "ran for ann"


def test_an_actor_that_fails_frees_the_key_and_comes_back_as_the_same_owner(workers: Workers) -> None:
    """P4: its retries are Dramatiq's own; each attempt has a lease of its own."""
    assert workers.ask(("fail_twice", ["ann"])) == ["ran for ann"]
    tries = workers.lines()
    assert len(tries) == 3
    assert {line[3] for line in tries} == {f"dramatiq:{tries[0][2]}"}
    with leased.connect(f"{workers.url}/6") as locks:
        assert not locks.status("import:ann").held


def test_locks_inside_an_actor_are_taken_over_by_its_next_slice(workers: Workers) -> None:
    """O7: what a message left behind when it failed it takes at once when it comes again: locks inside have its id as
    their owner."""
    ((first, second),) = workers.ask(("in_slices", ["ann"]))
    assert second > first
    assert len({line[2] for line in workers.lines()}) == 1
    assert workers.lines()[0][2].startswith("dramatiq:")


def test_a_store_that_is_away_when_an_actor_begins_loses_no_message(private_valkey: Start, tmp_path: Path) -> None:
    """P4, P2: nothing runs without the lease; the message is retried until the store answers, and then it is handled
    once. One that is not to be retried fails with what the store raised."""
    store = private_valkey()
    store.kill()
    given = {"TEST_STORE": f"{store.url}?leased_timeout=0.5"}
    workers = Workers(private_valkey(), tmp_path / "lines", **given)
    try:
        workers.send("import_user", "ann")
        (failed,) = workers.ask(("skip_user", ["bob"]))
        assert failed.startswith("StoreUnavailable: ")
        assert workers.lines() == []
        store.start()
        until(lambda: len(workers.lines()) == 2, what="it is handled", seconds=60)
        assert [line[0] for line in workers.lines()] == ["begin", "end"]
    finally:
        workers.close()


def test_a_time_limit_ends_actor_and_lease(workers: Workers) -> None:
    """P4: what Dramatiq interrupts does not keep the key until its ttl."""
    assert workers.ask(("too_slow", ["ann"])) == ["ran for ann"]
    with leased.connect(f"{workers.url}/6") as locks:
        assert not locks.status("import:ann").held


def test_a_message_that_is_delivered_again_takes_over_its_own_lease(workers: Workers, tmp_path: Path) -> None:
    """P4, O1: a worker is killed in the middle of an actor; delivered again, the message takes over its lease long
    before the ttl, with a higher fencing token."""
    workers.send("import_user", "ann", 2.0)
    until(lambda: workers.lines(), what="the actor has begun", seconds=60)
    with leased.connect(f"{workers.url}/6") as locks:
        before = locks.status("import:ann")
        workers.kill()
        workers.start()
        until(lambda: len(workers.lines()) == 3, what="it was done by another worker", seconds=60)
        assert before.expires_at is not None
        begun = [line for line in workers.lines() if line[0] == "begin"]
        assert [line[2] for line in begun] == [begun[0][2]] * 2
        assert begun[0][-1] != begun[1][-1]
        assert int(workers.lines()[-1][3]) > (before.fencing_token or 0)
        until(lambda: not locks.status("import:ann").held, what="it was released")
        assert locks.status("import:ann").state == "free"


def test_a_broker_that_does_not_tell_the_message(private_valkey: Start, tmp_path: Path) -> None:
    """Without `CurrentMessage` the lease could belong to nobody: refused, and it says what is missing."""
    workers = Workers(private_valkey(), tmp_path / "lines", TEST_WITHOUT="1")
    try:
        (told,) = workers.ask(("skip_user", ["ann"]))
        assert told.startswith("InvalidRequest: a worker runs this actor")
    finally:
        workers.close()


def test_called_as_a_function() -> None:
    """Outside of a worker there is no message: the lock has no owner and raises as any other."""
    with leased.connect("memory:dramatiq") as locks:

        @one_at_a_time("import:{user}", store=locks)
        def import_user(user: str) -> str:
            return str(leased.current().owner)

        assert import_user("ann") == "None"
        with locks.lock("import:bob"), pytest.raises(leased.LockNotAcquired) as busy:
            import_user("bob")
        assert busy.value.key == "import:bob"
        with pytest.raises(InvalidRequest, match="cannot be filled in"):
            one_at_a_time("import:{nobody}", store=locks)(lambda user: user)("ann")
        with pytest.raises(InvalidRequest, match="cannot be filled in"):  # `None` has no digits
            one_at_a_time("import:{user:05d}", store=locks)(lambda user: user)(None)


def test_actors_that_would_run_later_are_refused() -> None:
    """An async actor would run after the lease is over."""

    async def actor() -> None:
        """Never runs."""

    with pytest.raises(InvalidRequest, match="is a coroutine function"):
        one_at_a_time("key", store="memory:")(actor)
