"""The clock of asyncio callers: waiting suspends the task, started work is a task that nothing cancels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from leased.clocks import now


class LoopSignal:
    """A signal for one task, set from any thread or loop."""

    __slots__ = ("_is_set", "_loop", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the waiter."""
        self._is_set = True
        loop = self._loop
        if loop is None:
            return
        if loop is asyncio._get_running_loop():
            self._wake()
            return
        with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(self._wake)

    async def wait(self, seconds: float) -> bool:
        """Suspend this task until the signal is set, at most so long."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiter, self._loop = waiter, loop
        timer = loop.call_later(min(seconds, _LONGEST), self._wake) if seconds > 0 else None
        try:
            if not self._is_set and timer is not None:
                await waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._waiter = self._loop = None
        was_set, self._is_set = self._is_set, False
        return was_set

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


_LONGEST = 86_400.0

_started: set[asyncio.Task[None]] = set()


class LoopClock:
    """The clock of the running event loop; one object serves any number of loops."""

    now = staticmethod(now)
    """Monotonic seconds, counting suspend."""

    wall = staticmethod(time.time)
    """Seconds since the epoch."""

    async def sleep(self, seconds: float) -> None:
        """Suspend this task for so long; 0 lets whoever is ready go first."""
        await asyncio.sleep(max(seconds, 0.0))

    def signal(self) -> LoopSignal:
        """A new signal."""
        return LoopSignal()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work as a task of this loop, whatever becomes of the caller."""
        task = asyncio.get_running_loop().create_task(work)
        _started.add(task)
        task.add_done_callback(_started.discard)
        return task
