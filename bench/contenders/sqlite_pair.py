"""Pairs of one client in an SQLite file: leased by both faces, and the same statements raw."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import leased
from bench.contenders.sqlite_file import Raw, prepared, url_of
from bench.worker import Run
from leased import aio


@contextmanager
def blocking(directory: Path, *, journal: str) -> Iterator[Run]:
    """A new key each time: a recipe is made, its lock acquired and released."""
    numbers = itertools.count()
    with leased.connect(url_of(prepared(directory, journal))) as locks:

        def run(count: int) -> None:
            for number in itertools.islice(numbers, count):
                locks.lock(f"key-{number}", owner="bench").acquire().release()

        yield run


@contextmanager
def blocking_block(directory: Path, *, journal: str) -> Iterator[Run]:
    """The same as a block."""
    numbers = itertools.count()
    with leased.connect(url_of(prepared(directory, journal))) as locks:

        def run(count: int) -> None:
            for number in itertools.islice(numbers, count):
                with locks.lock(f"key-{number}", owner="bench"):
                    pass

        yield run


@contextmanager
def asynchronous(directory: Path, *, journal: str) -> Iterator[Run]:
    """As `blocking`, by the asyncio face."""
    numbers = itertools.count()
    url = url_of(prepared(directory, journal))
    with asyncio.Runner() as runner:
        locks = aio.connect(url)

        async def pairs(count: int) -> None:
            for number in itertools.islice(numbers, count):
                handle = await locks.lock(f"key-{number}", owner="bench").acquire()
                await handle.release()

        yield lambda count: runner.run(pairs(count))
        runner.run(locks.close())


@contextmanager
def raw(directory: Path, *, journal: str) -> Iterator[Run]:
    """The floor: the same upsert and delete, each as durable."""
    numbers = itertools.count()
    file = Raw(prepared(directory, journal), journal)

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            key = f"key-{number}"
            file.acquire(key)
            file.release(key)

    yield run
