"""Tries all mutants of one module in one session of pytest: each in a child of its own, with the tests that reach it.

`python -m mutation.trial MODULE FILE TEST…` writes what came of it to the file; it judges nothing.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from mutation.changes import Mutant, mutants_of
from mutation.planting import plant

PATIENCE = 10.0
"""Seconds that the tests of a mutant may take beyond ten times what they took without it."""

_ONE_TEST = 8.0


@dataclass(slots=True)
class Reached:
    """What the tests do without any change: which lines each reaches, and how many seconds it takes.

    `unsure` are tests of the module with a tracer of their own, beneath which nothing is seen: they may reach any line.
    """

    lines: dict[int, set[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)


class Trial:
    """A plugin in the place of the loop that runs tests. The parent itself runs none, so every child begins clean."""

    def __init__(self, name: str, *, jobs: int, only: str) -> None:
        self.name = name
        self.jobs = jobs
        self.only = only
        self.found: dict[str, Any] = {"module": name, "killed": 0, "survived": [], "unreached": [], "failed": []}

    @property
    def module(self) -> ModuleType:
        """The one whose mutants these are; pytest wants to see it before anybody else."""
        return import_module(self.name)

    @property
    def path(self) -> Path:
        """Where its source is."""
        return Path(str(self.module.__file__))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests once, then for each mutant those that reach it."""
        reached: Reached = pickle.loads(_in_child(lambda: pickle.dumps(self._baseline(session)), seconds=900.0))
        self.found["failed"] = reached.failed
        if reached.failed:
            return True
        waiting = [mutant for mutant in mutants_of(self.path.read_text()) if self.only in mutant.name]
        self.found["mutants"] = len(waiting)
        _in_turn(waiting, jobs=self.jobs, work=lambda mutant: self._judge(session, mutant, reached))
        return True

    def _baseline(self, session: pytest.Session) -> Reached:
        reached, path = Reached(), str(self.path)
        for item in session.items:
            touched: set[int] = set()

            def trace(frame: FrameType, event: str, _: object, touched: set[int] = touched) -> Any:
                if frame.f_code.co_filename != path:
                    return None
                touched.add(frame.f_lineno)
                return trace

            threading.settrace(trace)
            started = time.perf_counter()
            if _traced(trace, partial(item.config.hook.pytest_runtest_protocol, item=item, nextitem=None)):
                reached.unsure |= {item.nodeid} if touched else set()
            threading.settrace(None)
            reached.seconds[item.nodeid] = time.perf_counter() - started
            for line in touched:
                reached.lines.setdefault(line, set()).add(item.nodeid)
            if session.testsfailed:
                reached.failed.append(item.nodeid)
                break
        return reached

    def _judge(self, session: pytest.Session, mutant: Mutant, reached: Reached) -> None:
        """See whether a test notices; a child that hangs, or goes away on its own, has noticed too.

        What no test was seen to reach may be reached in a forked child, or under a tracer of the test's own.
        """
        names = {name for line in self._lines(mutant, reached) for name in reached.lines.get(line, ())}
        unseen = not names
        names = names | reached.unsure if names else set().union(*reached.lines.values())
        items = [item for item in session.items if item.nodeid in names]
        items.sort(key=lambda item: reached.seconds[item.nodeid])
        most = 10.0 * sum(min(reached.seconds[item.nodeid], _ONE_TEST) for item in items) + PATIENCE
        answer = _in_child(lambda: self._try(session, items, mutant), seconds=most)
        if answer in (b"same", b"survived"):
            self.found["unreached" if unseen else "survived"].append(mutant.name)
        else:
            self.found["killed"] += 1

    def _lines(self, mutant: Mutant, reached: Reached) -> list[int]:
        """Where the change is: a statement over several lines is traced at one of them."""
        for back in range(12):
            if mutant.line - back in reached.lines:
                return [mutant.line - back]
        return [mutant.line]

    def _try(self, session: pytest.Session, items: list[pytest.Item], mutant: Mutant) -> bytes:
        if not plant(self.module, mutant.source):
            return b"same"
        for item in items:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if session.testsfailed:
                return b"killed"
        return b"survived"


def _traced(trace: Callable[..., Any], work: Callable[[], object]) -> bool:
    """Do the work under this tracer; true if it set another one meanwhile."""
    others: list[object] = []
    settrace = sys.settrace

    def note(other: Any) -> None:
        others.append(other)
        settrace(other)

    settrace(trace)
    sys.settrace = note
    try:
        work()
    finally:
        sys.settrace = settrace
        settrace(None)
    return bool(others)


def _in_turn(waiting: list[Mutant], *, jobs: int, work: Callable[[Mutant], None]) -> None:
    """Do the work for each; threads only wait for children."""
    mutex = threading.Lock()

    def go_on() -> None:
        while True:
            with mutex:
                if not waiting:
                    return
                mutant = waiting.pop(0)
            work(mutant)

    others = [threading.Thread(target=go_on) for _ in range(jobs - 1)]
    for other in others:
        other.start()
    go_on()
    for other in others:
        other.join()


def _in_child(work: Callable[[], bytes], *, seconds: float) -> bytes:
    """What the work gives in a forked child; nothing if the child was stopped, or ended otherwise."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            os.close(reading)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            answer = work()
            with open(writing, "wb") as pipe:
                pipe.write(answer)
        finally:
            os._exit(0)
    os.close(writing)
    answer, give_up_at = b"", time.monotonic() + seconds
    while (left := give_up_at - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        part = os.read(reading, 65536)
        if not part:
            break
        answer += part
    os.close(reading)
    with suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    with suppress(OSError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return answer


def main(arguments: list[str]) -> int:
    """Try the mutants of one module; 0 if that was possible."""
    name, target, *tests = arguments
    jobs = int(os.environ.get("MUTATION_JOBS", "2"))
    trial = Trial(name, jobs=jobs, only=os.environ.get("MUTATION_ONLY", ""))
    plain = [option for plugin in ("randomly", "xdist", "cacheprovider") for option in ("-p", f"no:{plugin}")]
    status = pytest.main([*plain, "-q", "--no-header", "--capture=sys", *tests], plugins=[trial])
    Path(target).write_text(json.dumps(trial.found))
    return 0 if status in (0, 5) and "mutants" in trial.found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
