"""Real time: the clock of this machine that counts suspend, and the clock of callers that may block."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")

if sys.platform == "linux":
    now: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
elif sys.platform == "darwin":
    now = partial(time.clock_gettime, time.CLOCK_MONOTONIC)  # counts suspend there, and time.monotonic does not
else:
    now = time.monotonic
"""Monotonic seconds, counting the time the machine is suspended where the system can."""


class ThreadSignal:
    """A signal between threads: a lock that is free while the signal is set."""

    __slots__ = ("_closed",)

    def __init__(self) -> None:
        self._closed = threading.Lock()
        self._closed.acquire()

    def set(self) -> None:
        """Wake the waiter."""
        try:
            self._closed.release()
        except RuntimeError:
            return  # set already

    async def wait(self, seconds: float) -> bool:
        """Block this thread until the signal is set, at most so long."""
        return self._closed.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))


class BlockingClock:
    """The clock of callers that may block: sleeping blocks the thread, started work runs here and now."""

    now = staticmethod(now)
    """Monotonic seconds, counting suspend."""

    wall = staticmethod(time.time)
    """Seconds since the epoch."""

    async def sleep(self, seconds: float) -> None:
        """Block this thread for so long."""
        time.sleep(max(seconds, 0.0))

    def signal(self) -> ThreadSignal:
        """A new signal between threads."""
        return ThreadSignal()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work here and now, to its end."""
        step(work)


def step(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in which nothing has to wait: every leaf below it blocks instead."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("an async store was used from blocking code; open it with leased.connect()")
