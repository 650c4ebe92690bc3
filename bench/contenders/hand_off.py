"""One side of a hand-off between processes: `hold`, `give` (release) and `take` (wait for it, tell when it came).

Times are those of the monotonic clock that all processes of a host share. `committed` is when the release was on disk,
`noticed` when the one who waits began to ask for the lock, `held` when it had it; a store on a server has only `began`,
when release was called, and `held`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import leased
from bench.contenders.one_side import one_side, one_side_async
from bench.contenders.sqlite_file import Raw, prepared
from bench.contenders.watched_store import Watched, stamping
from bench.worker import Run
from leased import aio
from leased.clocks import BlockingClock
from leased.join import Joined
from leased.store import Store


@contextmanager
def ours(directory: Path, *, journal: str) -> Iterator[Run]:
    """Leased, blocking."""
    commits: list[float] = []
    watcher = Watched(stamping(prepared(directory, journal), journal, commits))
    lock = leased.connect(Joined(cast("Store", watcher), BlockingClock())).lock("key", owner=str(os.getpid()))
    held: list[leased.Handle] = []

    def run(action: str) -> Any:
        if action == "give":
            commits.clear()
            began = time.perf_counter()
            held.pop().release()
            return {"began": began, "committed": commits[0]}
        watcher.asked.clear()
        handle = lock.acquire(wait=30)
        if action == "take":
            noticed = [at for name, at in watcher.asked if name == "acquire"]
            told = {"noticed": noticed, "held": time.perf_counter()}
            handle.release()
            return told
        held.append(handle)
        return None

    yield run


@contextmanager
def blocking(directory: Path, *, url: str) -> Iterator[Run]:
    """Leased, blocking, on whatever store a URL names."""
    with leased.connect(url) as locks:
        yield one_side(_Kept(locks.lock("key", owner=str(os.getpid()))))


@contextmanager
def asynchronous(directory: Path, *, url: str) -> Iterator[Run]:
    """As `blocking`, by the asyncio face."""
    with asyncio.Runner() as runner:
        locks = aio.connect(url)
        act = one_side_async(_KeptAsync(locks.lock("key", owner=str(os.getpid()))))
        yield lambda action: runner.run(act(action))
        runner.run(locks.close())


class _Kept:
    """A lock and the handle it gave last."""

    def __init__(self, lock: leased.Lock) -> None:
        self._lock = lock

    def acquire(self) -> None:
        """Wait for it."""
        self._handle = self._lock.acquire(wait=30)

    def release(self) -> None:
        """Give it back."""
        self._handle.release()


class _KeptAsync:
    """The same by the asyncio face."""

    def __init__(self, lock: aio.Lock) -> None:
        self._lock = lock

    async def acquire(self) -> None:
        """Wait for it."""
        self._handle = await self._lock.acquire(wait=30)

    async def release(self) -> None:
        """Give it back."""
        await self._handle.release()


@contextmanager
def raw(directory: Path, *, journal: str) -> Iterator[Run]:
    """The floor: the same statements, and a byte in a named pipe that is open already."""
    file = Raw(prepared(directory, journal), journal)
    path = directory / "pipe"
    if not path.exists():
        os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)

    def run(action: str) -> Any:
        if action == "give":
            began = time.perf_counter()
            file.release("key")
            committed = time.perf_counter()
            os.write(pipe, b"!")
            return {"began": began, "committed": committed}
        if action == "take":
            os.read(pipe, 1)
            noticed = time.perf_counter()
            file.acquire("key")
            held = time.perf_counter()
            file.release("key")
            return {"noticed": [noticed], "held": held}
        file.acquire("key")
        return None

    yield run
    os.close(pipe)
