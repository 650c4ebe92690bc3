"""The two kinds of contenders: a worker is a process that stays, a command is run anew each time. Neither compares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.measure import Block, Role

ROOT = Path(__file__).parent.parent
_PATIENCE = 120.0


class ContenderFailed(RuntimeError):
    """A contender cannot do its work; `reason` is what it said itself."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the contender {name!r} failed: {reason}")
        self.name = name
        self.reason = reason


def one_cpu() -> int:
    """The CPU on which rows put everything that they measure on one."""
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


class Worker:
    """A contender in a process of its own; see `bench.worker`. Leaving its block ends the process."""

    def __init__(
        self,
        name: str,
        spec: str,
        *,
        directory: Path,
        role: Role = "leased",
        python: str | None = None,
        cpu: int | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.role: Role = role
        directory.mkdir(parents=True, exist_ok=True)
        place = "-" if cpu is None or not hasattr(os, "sched_setaffinity") else str(cpu)
        self._process = subprocess.Popen(
            [python or sys.executable, "-m", "bench.worker", spec, str(directory), place, json.dumps(options)],
            cwd=ROOT,
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> None:
        """Wait until it has set up what it needs; before the first request."""
        self._read()

    def ask(self, **request: Any) -> Block:
        """Do a block of work."""
        self.send(**request)
        return self.receive()

    def send(self, **request: Any) -> None:
        """Begin a block of work; `receive` has to follow."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Block:
        """What came of the block that was begun."""
        return Block(**self._read())

    def __enter__(self) -> Worker:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process."""
        if error is not None:
            self._process.kill()
        self._process.communicate(timeout=_PATIENCE)

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ContenderFailed(self.name, f"it died with status {self._process.wait()}")
        told = json.loads(line)
        if "failed" in told:
            raise ContenderFailed(self.name, told["failed"])
        return told


class Command:
    """A program that is started and waited for. Its CPU is what the system counted, its children included."""

    def __init__(self, name: str, arguments: Sequence[str], *, role: Role = "leased", **environment: str) -> None:
        self.name = name
        self.role: Role = role
        self._arguments = list(arguments)
        self._environment = {**clean_environment(), **environment}

    def ask(self, *, count: int) -> Block:
        """Run it so many times, one after the other."""
        cpu, began = 0.0, time.perf_counter()
        for _ in range(count):
            pid = os.posix_spawn(self._arguments[0], self._arguments, self._environment, file_actions=_QUIET)
            _, status, usage = os.wait4(pid, 0)
            if status:
                raise RuntimeError(f"{self._arguments} ended with wait status {status}")
            cpu += usage.ru_utime + usage.ru_stime
        return Block(time.perf_counter() - began, cpu)


def clean_environment() -> dict[str, str]:
    """The environment without what would change leased or Python, such as a ban on keeping compiled modules."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("LEASED_", "PYTHON"))}


_QUIET = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
