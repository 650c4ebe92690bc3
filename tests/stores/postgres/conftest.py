"""Stores, tables and raw connections for the tests of the PostgreSQL store."""

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import psycopg
import pytest

from leased.clocks import BlockingClock, step
from leased.model import Claim
from leased.stores import postgres
from leased.targets import Options
from tests.servers.process import Server

Make: TypeAlias = Callable[..., Any]
_numbers = itertools.count()


@pytest.fixture
def table() -> str:
    """What the names of this test's tables begin with."""
    return f"t{os.getpid()}_{next(_numbers)}"


@pytest.fixture
def make(table: str) -> Iterator[Make]:
    """Opens stores for blocking callers at a URL; they are closed at the end."""
    made: list[Any] = []

    def make_store(url: str, *, namespace: str = "", own: dict[str, str] | None = None, **more: Any) -> Any:
        options = Options(clock=BlockingClock(), namespace=namespace, own={"table": table, **(own or {})}, **more)
        made.append(postgres.open(url, face="blocking", options=options))
        return made[-1]

    yield make_store
    for store in made:
        step(store.close())


@pytest.fixture
def raw(postgres_server: Server, table: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the superuser to the shared server; this test's tables are dropped when it ends."""
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        yield connection
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}_record, {table}_mark".encode())


def claim(key: str, *, token: str = "", ttl: float = 30.0, **more: Any) -> Claim:
    """A claim with a token of its own."""
    return Claim(key, token or f"token-{next(_numbers)}", ttl, **more)
