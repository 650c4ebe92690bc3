"""Time that a test moves, for asyncio callers; it shows what a `MovableClock` shows and has no time of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leased.testing.clocks import MovableClock

_LONGEST = 86_400.0


class MovableLoopClock:
    """A movable clock as tasks see it; one object serves any number of loops."""

    def __init__(self, clock: MovableClock) -> None:
        self._clock = clock
        self._started: set[asyncio.Task[None]] = set()
        self.now = clock.now
        self.wall = clock.wall

    async def sleep(self, seconds: float) -> None:
        """Suspend this task for so long; 0 lets whoever is ready go first."""
        if seconds > 0:
            await self.signal().wait(seconds)
        else:
            await asyncio.sleep(0)

    def signal(self) -> MovableLoopSignal:
        """A new signal for a task."""
        return MovableLoopSignal(self._clock)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work as a task of this loop, whatever becomes of the caller."""
        task = asyncio.get_running_loop().create_task(work)
        self._started.add(task)
        task.add_done_callback(self._started.discard)
        return task


class MovableLoopSignal:
    """A signal for one task, set from any thread or loop, whose waits end by a movable clock."""

    __slots__ = ("_clock", "_is_set", "_loop", "_waiter")

    def __init__(self, clock: MovableClock) -> None:
        self._clock = clock
        self._is_set = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the waiter."""
        self._is_set = True
        self._notice()

    async def wait(self, seconds: float) -> bool:
        """Suspend this task until the signal is set, or the clock has gone on by so much."""
        until = self._clock.now() + seconds
        self._loop = asyncio.get_running_loop()
        with self._clock.noticing(self._notice):
            while not self._is_set and (left := until - self._clock.now()) > 0:
                await self._rest(self._loop, min(left, _LONGEST) if self._clock.flowing else None)
        self._loop = None
        was_set, self._is_set = self._is_set, False
        return was_set

    async def _rest(self, loop: asyncio.AbstractEventLoop, seconds: float | None) -> None:
        self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer:
                timer.cancel()

    def _notice(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
