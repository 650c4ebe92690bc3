"""Registries of every kind for the suite that is written once: each test has one of its own, empty."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from leased.server.registry import Registry
from leased.server.registry_postgres import PostgresRegistry
from leased.server.registry_redis import RedisRegistry
from leased.server.registry_sqlite import SqliteRegistry
from tests.servers import valkey
from tests.servers.process import Server

MARK = "mark of the tests"
SHARED = ("postgres", "wheel_postgres", "pgbouncer", "valkey", "redis")
KINDS = ("sqlite", *SHARED)

_numbers = itertools.cycle(range(11, 16))

Opener = Callable[[], Registry]


def emptied(server: Server, kind: str) -> str:
    """The URL of an empty place on a server that others use, too."""
    if kind == "pgbouncer":  # which has the way to one database alone
        with psycopg.connect(server.url, autocommit=True, prepare_threshold=None) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'leased_registry_%'")
            for (table,) in found.fetchall():
                connection.execute(f"DROP TABLE {table}".encode())
        return server.url
    if kind in {"postgres", "wheel_postgres"}:
        name = f"registry_{secrets.token_hex(6)}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return server.url.removesuffix("/postgres") + f"/{name}"
    with valkey.client_of(server.place) as client:
        number = next(_numbers)  # databases of tests of registries alone; those before have ended
        client.select(number)
        client.flushdb()
    return f"redis://{server.host}:{server.port}/{number}"


def shared_registry(url: str, *, mark: str = MARK, begin: bool = True, timeout: float = 2.0) -> Registry:
    """The registry at a URL."""
    if url.startswith("postgresql:"):
        return PostgresRegistry(url, mark=mark, begin=begin, timeout=timeout)
    return RedisRegistry(url, mark=mark, begin=begin, timeout=timeout)


def opener(kind: str, request: pytest.FixtureRequest, *, directory: Path) -> Opener:
    """What opens the registry of a test: each time anew, and the same one."""
    if kind == "sqlite":
        return lambda: SqliteRegistry(str(directory / "r.db"), timeout=10.0)
    url = emptied(request.getfixturevalue(f"{kind}_server"), kind)
    return lambda: shared_registry(url)
