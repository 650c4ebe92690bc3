"""The worker processes of a run: started, stopped, continued, killed and replaced. It touches no server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import TracebackType

from nemesis.history import Recorder, now
from nemesis.worker import Orders

ROOT = Path(__file__).parent.parent
FACES = ("blocking", "async") * 3
KEYS = ("north", "east", "south")
AT_THE_END = 60.0
"""Seconds that workers have to finish what they are doing, if only to start: a busy machine takes long for that."""


class Fleet:
    """Worker processes of both faces. A `with` statement kills those that are left at its end."""

    def __init__(
        self,
        url: str,
        *,
        directory: Path,
        recorder: Recorder,
        seconds: float,
        chance: Random,
        bug: str = "",
        peer: str = "",
        python: str = sys.executable,
    ) -> None:
        """Workers on the store at this URL that record into this directory and work for so long."""
        self._url = url
        self._directory = directory
        self._recorder = recorder
        self._seconds = seconds
        self._chance = chance
        self.until = 0.0
        self._bug = bug
        self._peer = peer
        self._python = python
        self._alive: dict[str, subprocess.Popen[bytes]] = {}
        self._names: dict[str, int] = {}
        self.failed: list[str] = []

    def start(self) -> None:
        """Start them, and let them begin together; from then on `until` is the time of the lines' clock to end at."""
        for number, face in enumerate(["blocking"] * len(FACES) if self._peer else FACES):
            self._start(f"{face}{number}", face)
        for process in self._alive.values():
            assert process.stdout is not None
            process.stdout.readline()
        self.until = now() + self._seconds
        for process in self._alive.values():
            self._begin(process)

    def harass(self) -> None:
        """Stop and kill workers until it is time to end."""
        while now() < self.until:
            time.sleep(self._chance.uniform(0.1, 0.9))
            some = self._chance.sample(sorted(self._alive), 2)
            if self._chance.random() < 0.25:
                self._replace(some[0])
            else:
                self._stop(some, self._chance.choice((0.2, 0.6, 1.5, 3.0, 3.0)))

    def finish(self) -> None:
        """Wait for all to end; `failed` names those that did not end well."""
        give_up_at = time.monotonic() + AT_THE_END
        for name, process in self._alive.items():
            try:
                code = process.wait(max(0.0, give_up_at - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.failed.append(f"worker {name} did not end")
            else:
                self._note(name, code)

    def __enter__(self) -> Fleet:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Kill those that are left."""
        for process in self._alive.values():
            process.kill()
            process.communicate()

    def _start(self, place: str, face: str) -> subprocess.Popen[bytes]:
        self._names[place] = self._names.get(place, 0) + 1
        name = f"{place}.{self._names[place]}"
        orders = Orders(
            name,
            face,
            self._url,
            str(self._directory),
            KEYS,
            str(self._chance.random()),
            bug=self._bug,
            peer=self._peer,
            python=self._python,
        )
        self._alive[name] = subprocess.Popen(
            orders.command(), cwd=ROOT, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._recorder.record("born", who=name)
        return self._alive[name]

    def _begin(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # how it ended is told by its exit status
            process.stdin.write(f"{self.until}\n".encode())
            process.stdin.flush()

    def _stop(self, names: Sequence[str], seconds: float) -> None:
        alive = [name for name in names if self._alive[name].poll() is None]
        for name in alive:
            self._recorder.record("stopped", who=name)
            self._alive[name].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        for name in alive:
            self._alive[name].send_signal(signal.SIGCONT)
            self._recorder.record("continued", who=name)

    def _replace(self, name: str) -> None:
        process = self._alive.pop(name)
        if process.poll() is None:
            self._recorder.record("killed", who=name)
            process.kill()
            process.communicate()
        else:
            self._note(name, process.returncode)
        place = name.rpartition(".")[0]
        self._begin(self._start(place, place.rstrip("0123456789")))

    def _note(self, name: str, code: int) -> None:
        if code:
            self.failed.append(f"worker {name} ended with code {code}")


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEASED_")}
    return {"PYTHONPATH": str(ROOT / "src"), **kept}  # a Python with another library has ours from here
