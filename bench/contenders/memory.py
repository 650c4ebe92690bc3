"""Pairs in memory: leased by both faces, and what a lock costs that has no lease."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import leased
from bench.contenders import pairs
from bench.worker import Run
from leased import aio


def blocking(directory: Path) -> AbstractContextManager[Run]:
    """A new key each time: a recipe is made, its lock acquired and released."""
    return pairs.blocking(directory, url="memory:bench")


@contextmanager
def blocking_recipe(directory: Path) -> Iterator[Run]:
    """One recipe, used again and again."""
    lock = leased.connect("memory:bench").lock("key", owner="bench")

    def run(count: int) -> None:
        for _ in range(count):
            lock.acquire().release()

    yield run


@contextmanager
def blocking_block(directory: Path) -> Iterator[Run]:
    """One recipe, as a block: also renewed by default, and known to `leased.current()`."""
    lock = leased.connect("memory:bench").lock("key", owner="bench")

    def run(count: int) -> None:
        for _ in range(count):
            with lock:
                pass

    yield run


def asynchronous(directory: Path) -> AbstractContextManager[Run]:
    """As `blocking`, by the asyncio face."""
    return pairs.asynchronous(directory, url="memory:bench")


@contextmanager
def asynchronous_recipe(directory: Path) -> Iterator[Run]:
    """As `blocking_recipe`, by the asyncio face."""
    lock = aio.connect("memory:bench").lock("key", owner="bench")

    async def pairs(count: int) -> None:
        for _ in range(count):
            handle = await lock.acquire()
            await handle.release()

    with asyncio.Runner() as runner:
        yield lambda count: runner.run(pairs(count))


@contextmanager
def asynchronous_block(directory: Path) -> Iterator[Run]:
    """As `blocking_block`, by the asyncio face."""
    lock = aio.connect("memory:bench").lock("key", owner="bench")

    async def pairs(count: int) -> None:
        for _ in range(count):
            async with lock:
                pass

    with asyncio.Runner() as runner:
        yield lambda count: runner.run(pairs(count))


@contextmanager
def dictionary(directory: Path) -> Iterator[Run]:
    """The floor: a mutex per key in a dictionary, without token, lease or fencing token."""
    mutexes: dict[str, threading.Lock] = {}
    numbers = itertools.count()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            key = f"key-{number}"
            mutex = mutexes.setdefault(key, threading.Lock())
            mutex.acquire(blocking=False)
            mutex.release()
            del mutexes[key]

    yield run


@contextmanager
def token(directory: Path) -> Iterator[Run]:
    """A random token, and nothing else."""

    def run(count: int) -> None:
        for _ in range(count):
            os.urandom(16).hex()

    yield run
