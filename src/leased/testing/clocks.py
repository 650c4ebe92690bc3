"""Time that a test moves, for stores and for blocking callers; it decides nothing about leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leased.clocks import step

if TYPE_CHECKING:
    from leased.testing.loop_clock import MovableLoopClock


class MovableClock:
    """A clock that goes on by itself and can be moved: `move(31)` lets 31 seconds pass at once, for all who share it.

    `flowing=False` makes it stand still in between, for tests of stores that compare times exactly: whoever waits
    there waits until it is moved. `for_loop()` is the same time for asyncio callers. Threads may share it.
    """

    def __init__(self, *, flowing: bool = True) -> None:
        self.flowing = flowing
        self._began = time.monotonic()
        self._moved = 1_000.0
        self._ahead = time.time() - 1_000.0 if flowing else 1_750_000_000.0 - 1_000.0
        self._mutex = threading.Lock()
        self._waiting: set[Callable[[], None]] = set()

    def now(self) -> float:
        """Monotonic seconds."""
        return self._moved + (time.monotonic() - self._began if self.flowing else 0.0)

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._ahead + self.now()

    def move(self, seconds: float) -> None:
        """Let so many seconds pass at once; whoever waits notices. Raises `ValueError` for a negative number."""
        if seconds < 0:
            raise ValueError(f"time does not run back: {seconds} s; set_wall() sets the clock on the wall")
        with self._mutex:
            self._moved += seconds
            waiting = tuple(self._waiting)
        for notice in waiting:
            notice()

    def set_wall(self, wall: float) -> None:
        """Set the wall clock, forward or back, as an operator or a time server may; no time passes by that."""
        self._ahead = wall - self.now()

    async def sleep(self, seconds: float) -> None:
        """Block this thread for so long."""
        await self.signal().wait(seconds)

    def signal(self) -> MovableSignal:
        """A new signal between threads."""
        return MovableSignal(self)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work here and now, to its end."""
        step(work)

    def for_loop(self) -> MovableLoopClock:
        """The same time for asyncio callers."""
        from leased.testing.loop_clock import MovableLoopClock

        return MovableLoopClock(self)

    @contextmanager
    def noticing(self, notice: Callable[[], None]) -> Iterator[None]:
        """Have `notice` called, from any thread, whenever the clock was moved."""
        with self._mutex:
            self._waiting.add(notice)
        try:
            yield
        finally:
            with self._mutex:
                self._waiting.discard(notice)


class MovableSignal:
    """A signal between threads whose waits end by a movable clock."""

    __slots__ = ("_changed", "_clock", "_is_set")

    def __init__(self, clock: MovableClock) -> None:
        self._clock = clock
        self._is_set = False
        self._changed = threading.Condition()

    def set(self) -> None:
        """Wake the waiter."""
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    async def wait(self, seconds: float) -> bool:
        """Block this thread until the signal is set, or the clock has gone on by so much."""
        until = self._clock.now() + seconds
        with self._clock.noticing(self._notice), self._changed:
            while not self._is_set and (left := until - self._clock.now()) > 0:
                self._changed.wait(min(left, threading.TIMEOUT_MAX) if self._clock.flowing else None)
            was_set, self._is_set = self._is_set, False
        return was_set

    def _notice(self) -> None:
        with self._changed:
            self._changed.notify_all()
