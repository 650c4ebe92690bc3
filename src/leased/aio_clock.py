"""The clock of asyncio callers: waiting suspends the task, started work is a task that nothing cancels."""

from __future__ import annotations

import asyncio
import time
import weakref
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
        timers: _Timers | None = None
        try:
            if not self._is_set and seconds > 0:
                timers = _timers_of(loop)
                timers.start(self, seconds)
                await waiter
        finally:
            if timers is not None:
                timers.stop(self)
            self._waiter = self._loop = None
        was_set, self._is_set = self._is_set, False
        return was_set

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Timers:
    """Timers of one loop, exact, and cheap for those that are stopped long before their time, as most are.

    What is further away than two ticks is only noted, and gets a timer of the loop's in its last ticks: setting and
    cancelling one costs as much as all the rest of a wait.
    """

    __slots__ = ("_exact", "_far", "_ticking")

    def __init__(self) -> None:
        self._far: dict[LoopSignal, float] = {}
        self._exact: dict[LoopSignal, asyncio.TimerHandle] = {}
        self._ticking = False

    def start(self, signal: LoopSignal, seconds: float) -> None:
        """Wake who waits for the signal after so many seconds, unless that is stopped before."""
        loop = asyncio.get_running_loop()
        if seconds < 2 * _TICK:
            self._exact[signal] = loop.call_later(seconds, signal._wake)
            return
        self._far[signal] = loop.time() + seconds
        if not self._ticking:
            self._ticking = True
            loop.call_later(_TICK, self._tick)

    def stop(self, signal: LoopSignal) -> None:
        """Do not wake it."""
        if self._far.pop(signal, None) is None:
            timer = self._exact.pop(signal, None)
            if timer is not None:
                timer.cancel()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        soon = loop.time() + 2 * _TICK
        for signal in [signal for signal, at in self._far.items() if at < soon]:
            self._exact[signal] = loop.call_at(self._far.pop(signal), signal._wake)
        self._ticking = bool(self._far)
        if self._ticking:
            loop.call_later(_TICK, self._tick)


_TICK = 0.25

_timers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Timers] = weakref.WeakKeyDictionary()


def _timers_of(loop: asyncio.AbstractEventLoop) -> _Timers:
    timers = _timers.get(loop)
    if timers is None:
        timers = _timers[loop] = _Timers()
    return timers


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
