"""Time that tests move, for threads and for event loops. It flows as real time does, or stands still in between."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from leased.clocks import step

_NOBODY_MOVES = 20.0
"""Real seconds after which a wait on a clock that stands still is a mistake of the test."""


class Hands:
    """What all clocks of one world show. `move` lets time pass at once, and whoever waits notices it."""

    def __init__(self, *, flowing: bool = True) -> None:
        self.flowing = flowing
        self._moved = 0.0
        self._mutex = threading.Lock()
        self._listeners: set[Callable[[], None]] = set()

    def now(self) -> float:
        """Monotonic seconds."""
        return 1_000.0 + self._moved + (time.monotonic() if self.flowing else 0.0)

    def wall(self) -> float:
        """Seconds since the epoch; they move alike."""
        return 1_750_000_000.0 + self.now()

    def move(self, seconds: float) -> None:
        """Let so many seconds pass at once."""
        with self._mutex:
            self._moved += seconds
            listeners = tuple(self._listeners)
        for poke in listeners:
            poke()

    @contextmanager
    def listening(self, poke: Callable[[], None]) -> Iterator[None]:
        """Call `poke` whenever time was moved."""
        with self._mutex:
            self._listeners.add(poke)
        try:
            yield
        finally:
            with self._mutex:
                self._listeners.discard(poke)


class ThreadHandSignal:
    """A signal between threads whose time-out is on the hands."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._set = False
        self._until: float | None = None
        self._changed = threading.Condition()

    @property
    def rests(self) -> bool:
        """Whether somebody waits here, and has nothing to do before the hands move again."""
        until = self._until
        return until is not None and until > self._hands.now() and not self._set

    def set(self) -> None:
        """Wake the waiter."""
        with self._changed:
            self._set = True
            self._changed.notify_all()

    async def wait(self, seconds: float) -> bool:
        """Block this thread until the signal is set, or the hands have moved so far."""
        until = self._hands.now() + seconds
        with self._hands.listening(self._poke), self._changed:
            self._until = until
            while not self._set and (left := until - self._hands.now()) > 0:
                moved = self._changed.wait(min(left, _NOBODY_MOVES) if self._hands.flowing else _NOBODY_MOVES)
                if not moved and not self._hands.flowing:
                    raise AssertionError("a wait on a clock that nobody moved")
            self._until = None
            seen, self._set = self._set, False
            return seen

    def _poke(self) -> None:
        with self._changed:
            self._changed.notify_all()


class LoopHandSignal:
    """A signal for a task whose time-out is on the hands."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._set = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the waiter, from any thread."""
        self._set = True
        self._poke()

    async def wait(self, seconds: float) -> bool:
        """Suspend this task until the signal is set, or the hands have moved so far."""
        until = self._hands.now() + seconds
        loop = self._loop = asyncio.get_running_loop()
        with self._hands.listening(self._poke):
            while not self._set and (left := until - self._hands.now()) > 0:
                self._waiter = loop.create_future()
                timer = loop.call_later(min(left, _NOBODY_MOVES), self._wake) if self._hands.flowing else None
                try:
                    if not self._set:
                        await self._waiter
                finally:
                    self._waiter = None
                    if timer is not None:
                        timer.cancel()
        seen, self._set = self._set, False
        return seen

    def _poke(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ThreadClock:
    """The hands for blocking callers: sleeping blocks the thread, started work runs here and now."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.now, self.wall = hands.now, hands.wall

    async def sleep(self, seconds: float) -> None:
        """Block this thread until the hands have moved so far."""
        await ThreadHandSignal(self.hands).wait(seconds)

    def signal(self) -> ThreadHandSignal:
        """A new signal between threads."""
        return ThreadHandSignal(self.hands)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work here and now, to its end."""
        step(work)


class LoopClock:
    """The hands for tasks: sleeping suspends, started work is a task that nothing cancels."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.now, self.wall = hands.now, hands.wall
        self.started: set[asyncio.Task[None]] = set()

    async def sleep(self, seconds: float) -> None:
        """Suspend this task until the hands have moved so far; 0 lets whoever is ready go first."""
        if seconds <= 0:
            await asyncio.sleep(0)
        else:
            await LoopHandSignal(self.hands).wait(seconds)

    def signal(self) -> LoopHandSignal:
        """A new signal."""
        return LoopHandSignal(self.hands)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work as a task of this loop."""
        task = asyncio.get_running_loop().create_task(work)
        self.started.add(task)
        task.add_done_callback(self.started.discard)
        return task
