"""A store around a store that counts what is asked of it, and when; and a clock hand on the commits of SQLite."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from bench.contenders.sqlite_file import library, prepared, url_of
from leased import aio_clock, clocks
from leased.join import Joined
from leased.store import Clock, Store
from leased.stores import memory
from leased.stores import redis as redis_module
from leased.stores import sqlite as sqlite_module
from leased.targets import Face, Options


class Watched:
    """Passes everything on. `asked` holds name and time of each call; a batch is one call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[tuple[str, float]] = []
        self.operations: Callable[[str, tuple[Any, ...], dict[str, Any]], None] | None = None

    @property
    def calls(self) -> int:
        """How many calls asked the store about a key, or changed it."""
        return sum(name != "watch" for name, _ in self.asked)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in ("mode", "assurance"):
            return method

        async def call(*positional: Any, **named: Any) -> Any:
            self.asked.append((name, time.perf_counter()))
            if self.operations is not None:
                self.operations(name, positional, named)
            made: Coroutine[Any, Any, Any] = method(*positional, **named)
            return await made

        return call


def watched(kind: str, directory: Path, *, face: Face) -> tuple[Store, Watched]:
    """A store as `connect` would make it, and the watcher inside it.

    The kind is `memory`, the journal mode of an SQLite file, or the URL of a Redis or Valkey.
    """
    clock: Clock = aio_clock.LoopClock() if face == "async" else clocks.BlockingClock()
    if kind == "memory":
        watcher = Watched(memory.open("memory:bench", face=face, options=Options(clock)))
        return cast("Store", watcher), watcher
    if "://" in kind:
        watcher = Watched(redis_module.open(kind, face=face, options=Options(clock)))
        return Joined(cast("Store", watcher), clock), watcher
    url = url_of(prepared(directory, kind))
    watcher = Watched(sqlite_module.open(url, face=face, options=Options(clock)))
    return Joined(cast("Store", watcher), clock), watcher


def stamping(path: Path, journal: str, commits: list[float]) -> Store:
    """The blocking SQLite store, which notes when each of its commits was done."""
    chosen = library(journal)
    return sqlite_module.SqliteStore(
        str(path), library=replace(chosen, connect=lambda name: _Stamped(chosen.connect(name), commits))
    )


class _Stamped:
    """A connection that notes when it has committed."""

    def __init__(self, connection: Any, commits: list[float]) -> None:
        self._connection = connection
        self._commits = commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        """Run one statement."""
        cursor = self._connection.execute(sql, parameters)
        if sql == "COMMIT":
            self._commits.append(time.perf_counter())
        return cursor
