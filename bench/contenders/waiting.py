"""Many who wait for one key of one process, while another holds it: what they ask of the store, and their CPU."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import leased
from bench.contenders.watched_store import watched
from bench.worker import Run
from leased import aio

_HOLD = 600


@contextmanager
def threads(directory: Path, *, kind: str) -> Iterator[Run]:
    """By the blocking face."""
    store, watcher = watched(kind, directory, face="blocking")
    locks = leased.connect(store)

    def wait() -> None:
        locks.lock("key").acquire(wait=_HOLD).release()

    def run(seconds: float, waiters: int) -> Any:
        holder = locks.lock("key", ttl=_HOLD).acquire()
        waiting = [threading.Thread(target=wait) for _ in range(waiters)]
        for thread in waiting:
            thread.start()
        time.sleep(seconds / 4)
        asked, cpu = watcher.calls, time.process_time()
        time.sleep(seconds)
        told = {"calls": (watcher.calls - asked) / seconds, "cpu": (time.process_time() - cpu) / seconds}
        holder.release()
        for thread in waiting:
            thread.join()
        return told

    yield run


@contextmanager
def tasks(directory: Path, *, kind: str) -> Iterator[Run]:
    """By the asyncio face."""
    store, watcher = watched(kind, directory, face="async")
    with asyncio.Runner() as runner:
        locks = aio.connect(store)

        async def wait() -> None:
            await (await locks.lock("key").acquire(wait=_HOLD)).release()

        async def waiting(seconds: float, waiters: int) -> Any:
            holder = await locks.lock("key", ttl=_HOLD).acquire()
            started = [asyncio.create_task(wait()) for _ in range(waiters)]
            await asyncio.sleep(seconds / 4)
            asked, cpu = watcher.calls, time.process_time()
            await asyncio.sleep(seconds)
            told = {"calls": (watcher.calls - asked) / seconds, "cpu": (time.process_time() - cpu) / seconds}
            await holder.release()
            await asyncio.gather(*started)
            return told

        yield lambda seconds, waiters: runner.run(waiting(seconds, waiters))
        runner.run(locks.close())
