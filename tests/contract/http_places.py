"""The lock service as a place for the contract suite: each world has one of its own, over a store that can be moved.

The services of all worlds are on one stage, one after the other.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock, now
from leased.store import Store
from leased.stores._threaded import ThreadedStore
from leased.stores.http import open as open_http
from leased.stores.memory import MemoryStore
from leased.stores.postgres import open as open_postgres
from leased.stores.redis import open as open_redis
from leased.stores.sqlite import SqliteStore
from leased.targets import Options
from leased.testing import Face, Place, World
from tests.contract.real_time import QUICK, clock_of
from tests.server.stage import Stage

_numbers = itertools.count()


def over_memory(face: Face, stage: Stage) -> Place:
    """The service over the memory store."""

    def open_world() -> World:
        inner = MemoryStore(BlockingClock())
        return _world(face, stage, inner, ExitStack(), size=lambda: len(inner._records) + len(inner._marks))

    return Place("http-memory", face, open_world)


def over_sqlite(face: Face, stage: Stage) -> Place:
    """The service over the SQLite store."""

    def open_world() -> World:
        closing = ExitStack()
        directory = closing.enter_context(tempfile.TemporaryDirectory(dir=QUICK))
        inner = ThreadedStore(SqliteStore(str(Path(directory) / "locks.db")))
        return _world(face, stage, inner, closing)

    return Place("http-sqlite", face, open_world)


def over_redis(face: Face, stage: Stage, *, url: str) -> Place:
    """The service over the Redis store on the server at that URL, in a namespace of its own."""

    def open_world() -> World:
        options = Options(LoopClock(), namespace=f"http.{os.getpid()}.{next(_numbers)}")
        inner = open_redis(url, face="async", options=options)
        return _world(face, stage, inner, ExitStack(), numbers="key", marks="key")

    return Place("http-redis", face, open_world)


def over_postgres(face: Face, stage: Stage, *, url: str) -> Place:
    """The service over the PostgreSQL store on the server at that URL, in tables of its own."""

    def open_world() -> World:
        table = f"h{os.getpid()}_{next(_numbers)}"
        inner = open_postgres(url, face="async", options=Options(LoopClock(), own={"table": table}))
        closing = ExitStack()
        closing.callback(_drop, url, table)
        return _world(face, stage, inner, closing, numbers="key")

    return Place("http-postgres", face, open_world)


def _drop(url: str, table: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}_record, {table}_mark".encode())


def _world(face: Face, stage: Stage, inner: Any, closing: ExitStack, **more: Any) -> World:
    """A service over this store, which ends with the world, and then all that is to be closed."""
    closing.enter_context(stage.playing(inner))
    moved = 0.0

    def connect(namespace: str) -> Store:
        return open_http(stage.url, face=face.name, options=Options(clock_of(face), namespace=namespace))

    def move(seconds: float) -> None:
        nonlocal moved
        moved += seconds
        inner.offset = moved

    return World(face=face, connect=connect, move=move, now=lambda: now() + moved, end=closing.close, **more)
