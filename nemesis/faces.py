"""The two faces of the library behind one spelling, so that a worker's program is written once."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from types import ModuleType, TracebackType
from typing import Any, Protocol

import leased
import leased.aio
from leased.clocks import step


class GaveUp(Exception):
    """The caller ended its own wait."""


class Face(Protocol):
    """How callers of one face wait, and run beside each other."""

    @property
    def module(self) -> ModuleType:
        """The library as its callers import it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        ...

    async def acquire_for(self, lock: Any, wait: float, *, patience: float) -> Any:
        """A handle, unless the caller's patience (seconds) ends first: `GaveUp`."""
        ...

    def run(self, works: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Run these side by side, to their ends."""
        ...


class Blocking:
    """Threads."""

    module: ModuleType = leased

    async def sleep(self, seconds: float) -> None:
        """See `Face`."""
        time.sleep(seconds)

    async def acquire_for(self, lock: Any, wait: float, *, patience: float) -> Any:
        """See `Face`."""
        cancel = threading.Event()
        timer = threading.Timer(patience, cancel.set)
        timer.start()
        try:
            return lock.acquire(wait, cancel=cancel)
        except leased.LockNotAcquired as error:
            if cancel.is_set():
                raise GaveUp from error
            raise
        finally:
            timer.cancel()

    def run(self, works: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """See `Face`."""
        threads = [threading.Thread(target=_stepped, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class Asyncio:
    """Tasks of one loop."""

    module: ModuleType = leased.aio

    async def sleep(self, seconds: float) -> None:
        """See `Face`."""
        await asyncio.sleep(seconds)

    async def acquire_for(self, lock: Any, wait: float, *, patience: float) -> Any:
        """See `Face`."""
        asking = asyncio.ensure_future(lock.acquire(wait))
        timer = asyncio.get_running_loop().call_later(patience, asking.cancel)
        try:
            return await asking
        except asyncio.CancelledError as error:
            raise GaveUp from error
        finally:
            timer.cancel()

    def run(self, works: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """See `Face`."""

        async def together() -> None:
            await asyncio.gather(*(work() for work in works))

        asyncio.run(together())


FACES: dict[str, Callable[[], Face]] = {"blocking": Blocking, "async": Asyncio}


async def done(value: Any) -> Any:
    """The result of a call to either face."""
    return await value if inspect.isawaitable(value) else value


class Block:
    """`with lock` or `async with lock`, whichever it is."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._is_async = hasattr(lock, "__aenter__")

    async def __aenter__(self) -> Any:
        """Enter it."""
        return await self._lock.__aenter__() if self._is_async else self._lock.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:
        """Leave it."""
        leave = self._lock.__aexit__ if self._is_async else self._lock.__exit__
        return await done(leave(kind, error, traceback))


def _stepped(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    step(work())
