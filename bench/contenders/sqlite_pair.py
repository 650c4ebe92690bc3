"""Pairs of one client in an SQLite file: leased by both faces, and the same statements raw."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.contenders import pairs
from bench.contenders.sqlite_file import Raw, prepared, url_of
from bench.worker import Run


def blocking(directory: Path, *, journal: str) -> AbstractContextManager[Run]:
    """A new key each time: a recipe is made, its lock acquired and released."""
    return pairs.blocking(directory, url=url_of(prepared(directory, journal)))


def blocking_block(directory: Path, *, journal: str) -> AbstractContextManager[Run]:
    """The same as a block."""
    return pairs.blocking_block(directory, url=url_of(prepared(directory, journal)))


def asynchronous(directory: Path, *, journal: str) -> AbstractContextManager[Run]:
    """As `blocking`, by the asyncio face."""
    return pairs.asynchronous(directory, url=url_of(prepared(directory, journal)))


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
