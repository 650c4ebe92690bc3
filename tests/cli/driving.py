"""Drives the real command as users do: processes, signals, scripts, process lists. It judges nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import leased

T = TypeVar("T")

PATIENCE = 9.0
BUSY, LOST, USAGE, UNAVAILABLE = 75, 76, 64, 69
LEASED = (sys.executable, "-W", "error", "-m", "leased")

_BLOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=5)
connection.execute("BEGIN IMMEDIATE")
print("blocked", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


def eventually(condition: Callable[[], T], what: str, *, within: float = PATIENCE) -> T:
    """What the condition gives as soon as that is true; a failure that says what did not happen otherwise."""
    give_up_at = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < give_up_at, f"not within {within} s: {what}"
        time.sleep(0.01)
    return value


def processes(mark: str) -> list[int]:
    """Living processes with this text in their arguments: dead ones that nobody has collected have none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes()
        except OSError:
            continue
        if mark.encode() in arguments:
            found.append(int(path.parent.name))
    return found


def threads(pid: int) -> int:
    """How many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


class Cli:
    """The command, in a home directory and with a store of its own."""

    LEASED = LEASED

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "locks.db"
        self.url = f"sqlite:{self.file}"
        self.environment = {
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "LEASED_URL": self.url,
            "PATH": os.environ["PATH"],
            "PYTHONDONTWRITEBYTECODE": "1",
            "TERM": "xterm",
            **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},  # the checkout under test
        }
        self.locks = leased.connect(self.url)
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        """The command, started in a session of its own: nothing it does to its terminal or group reaches the tests."""
        settings: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": self.environment,
            "cwd": self.directory,
            "text": True,
            "start_new_session": True,
        }
        process = subprocess.Popen([*LEASED, *arguments], **{**settings, **more})
        self._started.append(process)
        return process

    def run(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """The command, run to its end. `input` is what it finds on standard input."""
        text = more.pop("input", None)
        process = self.start(*arguments, **({"stdin": subprocess.PIPE, **more} if text is not None else more))
        out, err = process.communicate(text, timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def data(self, *arguments: str, **more: Any) -> Any:
        """The one line of JSON that the command prints, read; the command has to succeed."""
        done = self.run(*arguments, **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def script(self, name: str, text: str) -> str:
        """An executable shell script in the directory; there `$here` is that directory."""
        path = self.directory / name
        path.write_text(f"#!/bin/sh\nhere='{self.directory}'\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def path(self, name: str) -> Path:
        """A file in the directory."""
        return self.directory / name

    def wait_for(self, name: str) -> str:
        """The text of a file in the directory, once it is there and not empty."""
        return eventually(lambda: self.path(name).read_text() if self.path(name).exists() else "", f"{name} is written")

    def held(self, key: str) -> bool:
        """Whether the store says that the key is held or closed."""
        return self.locks.status(key).held

    @contextmanager
    def blocked_store(self) -> Iterator[None]:
        """While the block runs nobody can write to the store, though everybody can read it."""
        arguments = [sys.executable, "-c", _BLOCKER, str(self.file)]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as blocker:
            assert blocker.stdout is not None
            assert blocker.stdout.readline() == "blocked\n"
            yield
            blocker.communicate()

    def close(self) -> None:
        """End whatever was started and still runs; their guards end the commands."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate(timeout=PATIENCE)
        self.locks.close()
