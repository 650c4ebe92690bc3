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

    _is_set = False
    _waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the waiter."""
        self._is_set = True
        waiter = self._waiter
        if waiter is None:
            return
        loop = waiter.get_loop()
        if loop is asyncio._get_running_loop():
            if not waiter.done():
                waiter.set_result(None)
            return
        with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(_wake, waiter)

    async def wait(self, seconds: float) -> bool:
        """Suspend this task until the signal is set, at most so long."""
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()  # before looking, for other threads set first and look then
        timers: _Timers | None = None
        try:
            if not self._is_set and seconds > 0:
                timers = _timers_of(loop)
                timers.start(waiter, seconds)
                await waiter
        finally:
            if timers is not None:
                timers.stop(waiter)
            self._waiter = None
        was_set, self._is_set = self._is_set, False
        return was_set


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Timers:
    """Timers of one loop, exact, and cheap for those that are stopped long before their time, as most are.

    What is further away than two ticks is only noted, and gets a timer of the loop's in its last ticks: setting and
    cancelling one costs as much as all the rest of a wait.
    """

    __slots__ = ("_exact", "_far", "_ticking", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self._far: dict[asyncio.Future[None], float] = {}
        self._exact: dict[asyncio.Future[None], asyncio.TimerHandle] = {}
        self._ticking = False

    def start(self, waiter: asyncio.Future[None], seconds: float) -> None:
        """Wake who waits for this after so many seconds, unless that is stopped before."""
        loop = waiter.get_loop()
        if seconds < _NEAR:
            self._exact[waiter] = loop.call_later(seconds, _wake, waiter)
            return
        self._far[waiter] = loop.time() + seconds
        if not self._ticking:
            self._ticking = True
            loop.call_later(_TICK, self._tick)

    def stop(self, waiter: asyncio.Future[None]) -> None:
        """Do not wake it."""
        if self._far.pop(waiter, None) is None:
            timer = self._exact.pop(waiter, None)
            if timer is not None:
                timer.cancel()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        soon = loop.time() + _NEAR
        for waiter in [waiter for waiter, at in self._far.items() if at < soon]:
            self._exact[waiter] = loop.call_at(self._far.pop(waiter), _wake, waiter)
        self._ticking = bool(self._far)
        if self._ticking:
            loop.call_later(_TICK, self._tick)


_TICK = 0.25
_NEAR = 2 * _TICK

_timers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Timers] = weakref.WeakKeyDictionary()
_used_last: _Timers | None = None


def _timers_of(loop: asyncio.AbstractEventLoop) -> _Timers:
    global _used_last
    timers = _used_last
    if timers is None or timers.loop() is not loop:
        timers = _used_last = _timers.get(loop) or _timers.setdefault(loop, _Timers(loop))
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

    signal = LoopSignal
    """A new signal."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work as a task of this loop, whatever becomes of the caller."""
        task = asyncio.get_running_loop().create_task(work)
        _started.add(task)
        task.add_done_callback(_started.discard)
        return task
