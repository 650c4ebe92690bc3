"""A thousand who wait for one key of one process: each gets it and gives it back; who comes first, and at what cost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import leased
from bench.contenders.watched_store import Watched, watched
from bench.worker import Run
from leased import aio

_PATIENCE = 120


@contextmanager
def tasks(directory: Path, *, kind: str) -> Iterator[Run]:
    """By the asyncio face."""
    store, watcher = watched(kind, directory, face="async")
    with asyncio.Runner() as runner:
        locks = aio.connect(store)

        async def herd(count: int) -> Any:
            order: list[int] = []

            async def wait(number: int) -> None:
                handle = await locks.lock("key").acquire(wait=_PATIENCE)
                order.append(number)
                await handle.release()

            holder = await locks.lock("key", ttl=_PATIENCE).acquire()
            waiting = [asyncio.create_task(wait(number)) for number in range(count)]
            while locks._client().env.lines.waiting("key") < count:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # the front one looks, and begins to watch
            began = _begin(watcher)
            await holder.release()
            await asyncio.gather(*waiting)
            return _told(watcher, began, order)

        yield lambda count: runner.run(herd(count))
        runner.run(locks.close())


@contextmanager
def threads(directory: Path, *, kind: str) -> Iterator[Run]:
    """By the blocking face."""
    store, watcher = watched(kind, directory, face="blocking")
    locks = leased.connect(store)

    def run(count: int) -> Any:
        order: list[int] = []
        lines = locks._client().env.lines

        def wait(number: int) -> None:
            handle = locks.lock("key").acquire(wait=_PATIENCE)
            order.append(number)
            handle.release()

        holder = locks.lock("key", ttl=_PATIENCE).acquire()
        waiting = [threading.Thread(target=wait, args=(number,)) for number in range(count)]
        for number, thread in enumerate(waiting):
            thread.start()
            while lines.waiting("key") <= number:
                time.sleep(0)
        time.sleep(0.1)
        began = _begin(watcher)
        holder.release()
        for thread in waiting:
            thread.join()
        return _told(watcher, began, order)

    yield run


def _begin(watcher: Watched) -> tuple[float, float]:
    watcher.asked.clear()
    return time.perf_counter(), time.process_time()


def _told(watcher: Watched, began: tuple[float, float], order: list[int]) -> Any:
    wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    return {"wall": wall, "cpu": cpu, "calls": watcher.calls, "in_order": order == sorted(order)}
