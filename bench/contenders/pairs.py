"""Pairs of leased on whatever store a URL names: of one client by both faces, and of many at once."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import leased
from bench.worker import Run
from leased import aio

# Keys that no other contender has had before: whoever comes to those asks once more, and would seem slower.
_OWN = os.urandom(4).hex()


@contextmanager
def blocking(directory: Path, *, url: str) -> Iterator[Run]:
    """A new key each time: a recipe is made, its lock acquired and released."""
    numbers = itertools.count()
    with leased.connect(url) as locks:

        def run(count: int) -> None:
            for number in itertools.islice(numbers, count):
                locks.lock(f"{_OWN}-{number}", owner="bench").acquire().release()

        yield run


@contextmanager
def blocking_block(directory: Path, *, url: str) -> Iterator[Run]:
    """The same as a block."""
    numbers = itertools.count()
    with leased.connect(url) as locks:

        def run(count: int) -> None:
            for number in itertools.islice(numbers, count):
                with locks.lock(f"{_OWN}-{number}", owner="bench"):
                    pass

        yield run


@contextmanager
def asynchronous(directory: Path, *, url: str) -> Iterator[Run]:
    """As `blocking`, by the asyncio face."""
    numbers = itertools.count()
    with asyncio.Runner() as runner:
        locks = aio.connect(url)

        async def pairs(count: int) -> None:
            for number in itertools.islice(numbers, count):
                handle = await locks.lock(f"{_OWN}-{number}", owner="bench").acquire()
                await handle.release()

        yield lambda count: runner.run(pairs(count))
        runner.run(locks.close())


@contextmanager
def tasks(directory: Path, *, url: str, clients: int) -> Iterator[Run]:
    """So many tasks of one loop, each with keys of its own."""
    with asyncio.Runner() as runner:
        locks = aio.connect(url)

        async def client(name: int, pairs: int) -> None:
            for number in range(pairs):
                handle = await locks.lock(f"{_OWN}-{name}-{number}", owner="bench").acquire()
                await handle.release()

        async def all_clients(count: int) -> None:
            await asyncio.gather(*(client(name, count // clients) for name in range(clients)))

        yield lambda count: runner.run(all_clients(count))
        runner.run(locks.close())
