"""A Django project in processes that are told to end, and in processes that fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import leased
from leased.contrib.django import _settings
from tests.contrib.test_django import ROOT, environment, manage, postgres
from tests.servers.process import Server
from tests.until import until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_command_and_frees_its_key(tmp_path: Path, number: signal.Signals) -> None:
    """P4: the command is left by an exception, so that its own clean-up runs; the key is free at once although its
    lease would last for long; the exit status is that of a program that the signal killed. A supervisor that sends it
    twice changes nothing."""
    store = f"sqlite:{tmp_path / 'locks.db'}"
    work = manage(environment({}, STORE=store), "locked", "--ttl", "10m", "key", "work")
    assert work.stdout is not None
    assert work.stdout.readline().startswith("runs")
    with leased.connect(store) as locks:
        assert locks.status("key").held
        work.send_signal(number)
        if number != signal.SIGINT:
            work.send_signal(number)
        said, told = work.communicate(timeout=60)
        # The second signal may come after the key was freed, and kill it then: a shell says the same of both.
        assert (work.returncode in (128 + number, -number), said) == (True, "ends\n"), (work.returncode, told)
        assert "Traceback" not in told
        assert locks.status("key").state == "free"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_for_the_key(tmp_path: Path, number: signal.Signals) -> None:
    """P4, L12: nothing runs, and nothing is left to take the key later."""
    store = tmp_path / "locks.db"
    with leased.connect(f"sqlite:{store}") as locks:
        with locks.lock("key", ttl=60):
            work = manage(environment({}, STORE=f"sqlite:{store}"), "locked", "--wait", "10m", "key", "work")
            until(lambda: _has_open(work.pid, store), what="it asks for the key", seconds=60)
            work.send_signal(number)
            said, told = work.communicate(timeout=60)
            assert (work.returncode, said) == (128 + number, ""), told
        assert locks.status("key").state == "free"


def test_a_command_that_handles_its_signal(tmp_path: Path) -> None:
    """P4: what a project or a command has made of a signal stays so."""
    program = (
        "import os, signal, sys, threading\n"
        "import django; django.setup()\n"
        "from django.core.management import call_command\n"
        "heard = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: heard.append(1))\n"
        "class Input:\n"
        "    def readline(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.stdin = Input()\n"
        "call_command('locked', 'key', 'work')\n"
        "thread = threading.Thread(target=call_command, args=('locked', 'key', 'work'))\n"
        "thread.start(); thread.join()\n"
        "print(len(heard), signal.getsignal(signal.SIGHUP) is signal.SIG_DFL)\n"
    )
    said = _run(program, environment({}, STORE=f"sqlite:{tmp_path / 'locks.db'}"))
    assert said[-1] == "2 True"
    assert [line for line in said if line == "ends"] == ["ends", "ends"]


_PREFORKS = """
import os, sys
import django; django.setup()
import leased
from leased.contrib.django import locks

with locks().lock("parent", ttl=60) as parent:
    children = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            found = locks()
            assert parent.lost and parent.lost_reason == "forked"
            assert found.lock("parent").try_acquire() is None
            for turn in range(5):
                with found.lock("shared", ttl=60, wait=60) as shared:
                    assert found.status("shared").fencing_token == shared.fencing_token
                    print(number, shared.fencing_token, flush=True)
            os._exit(0)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    parent.ensure_held()
    assert ends == [0, 0, 0], ends
assert locks().status("shared").state == locks().status("parent").state == "free"
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_locks_in_a_server_that_forks_its_workers(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """P4, L13: opened and used before the fork, as with gunicorn's `preload_app`: each worker has its own connection,
    none has the parent's lease, they keep each other out, and the parent holds on."""
    if kind == "sqlite":
        database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db")}
    else:
        server: Server = request.getfixturevalue("postgres_server")
        database = postgres(server)
    given = environment({"default": database}, OPTIONS={"namespace": f"forks-{tmp_path.name}"})
    said = [line.split() for line in _run(_PREFORKS, given)]
    assert sorted(number for number, _ in said) == sorted("012" * 5)
    assert len({token for _, token in said}) == 15


def test_two_threads_that_ask_for_the_locks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """P4: both get the same, as L9 and O1 need, and no mutex is held that a child could inherit locked."""
    both, connect = threading.Barrier(2, timeout=30), leased.connect

    def slowly(url: str) -> leased.Locks:
        both.wait()
        return connect(url)

    monkeypatch.setattr(leased, "connect", slowly)
    monkeypatch.setattr(_settings, "store_url", lambda: "memory:first-use")
    monkeypatch.setattr(_settings, "_given", dict)
    found: list[leased.Locks] = []
    threads = [threading.Thread(target=lambda: found.append(_settings.locks())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is _settings.locks()


def _has_open(process: int, path: Path) -> bool:
    """Whether this process has opened the file."""
    where = Path(f"/proc/{process}/fd")
    try:
        return any(os.path.samefile(one, path) for one in where.iterdir())
    except FileNotFoundError:
        return False


def _run(program: str, given: dict[str, str]) -> list[str]:
    """The lines that a program of the project prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=given, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
