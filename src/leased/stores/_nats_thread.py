"""The event loop that blocking callers of a driver for asyncio need: one in a thread of this process, whoever asks."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from leased.stores._forks import ForkMutex, follow_forks, keep_forever

_T = TypeVar("_T")
_END_WITHIN = 1.0


class Closable(Protocol):
    """Something that lives on the loop and is to be closed before it ends."""

    def close(self) -> None:
        """Close it; never waits."""
        ...


class LoopThread:
    """Starts with its first work and keeps no program running. A forked child has one of its own."""

    def __init__(self) -> None:
        self._mutex = ForkMutex()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended = False
        self._followed: weakref.WeakSet[Closable] = weakref.WeakSet()
        follow_forks(self)

    def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Block until the work is done, which has to end by itself; an interrupt of the caller cancels it."""
        asked = asyncio.run_coroutine_threadsafe(work(), self._running())
        try:
            return asked.result()
        except concurrent.futures.CancelledError:
            raise RuntimeError("the event loop of blocking callers has ended") from None
        except BaseException:
            asked.cancel()
            raise

    def follow(self, closable: Closable) -> None:
        """On the loop: close it before the loop ends."""
        self._followed.add(closable)

    def tell(self, callback: Callable[[], object]) -> None:
        """Have it called there, if there is such a loop."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(callback)

    def end(self) -> None:
        """Cancel what runs there and end the thread, so that nothing is half done when the interpreter ends."""
        with self._mutex.lock:
            self._ended = True
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)
            thread.join(_END_WITHIN)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._mutex.lock:
            if self._ended:
                raise RuntimeError("the interpreter is ending")
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(loop, self._followed), name="leased-nats", daemon=True
                )
                self._thread.start()
                self._loop = loop
            return self._loop

    def before_fork(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.before_fork()

    def after_fork_in_parent(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """See `leased.stores._forks`. The loop and all that hangs on it are the parent's."""
        self._mutex.after_fork_in_child()
        if self._loop is not None:
            keep_forever((self._loop, self._thread))
        self._loop = self._thread = None
        self._followed = weakref.WeakSet()


def _serve(loop: asyncio.AbstractEventLoop, followed: weakref.WeakSet[Closable]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        for closable in list(followed):
            loop.call_soon(closable.close)
        loop.run_until_complete(asyncio.sleep(0))
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_END_WITHIN / 2))
    finally:
        loop.close()


blocking_loop = LoopThread()
"""The one of this process."""

atexit.register(blocking_loop.end)
