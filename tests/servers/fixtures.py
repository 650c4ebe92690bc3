"""Servers as fixtures: one of each kind per worker, started when first asked for, and private ones for tests that harm.

A test that takes a shared server uses a namespace, database or prefix of its own and leaves the server as it was. On a
machine without the program the test is skipped, with `CI=true` in the environment it fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import ParamSpec

import pytest

from tests.servers import mariadb, postgres, valkey
from tests.servers.found import ServerMissing
from tests.servers.process import Server

P = ParamSpec("P")


def started(start: Callable[P, Server], *args: P.args, **options: P.kwargs) -> Server:
    """The server; without its program the test is skipped, or fails where every server has to be there."""
    try:
        return start(*args, **options)
    except ServerMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Server]:
    """One Valkey for all tests of this worker."""
    with started(valkey.start) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    """One Redis for all tests of this worker."""
    with started(valkey.start, "redis") as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One PostgreSQL, Debian's, for all tests of this worker."""
    with started(postgres.start) as server:
        yield server


@pytest.fixture(scope="session")
def wheel_postgres_server() -> Iterator[Server]:
    """One PostgreSQL, the newer one from the wheel, for all tests of this worker."""
    with started(postgres.start, "wheel") as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    """One MariaDB for all tests of this worker."""
    with started(mariadb.start) as server:
        yield server


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """What is entered here is closed when the test ends."""
    with ExitStack() as stack:
        yield stack


def _private(start: Callable[P, Server], closing: ExitStack) -> Callable[P, Server]:
    def start_one(*args: P.args, **options: P.kwargs) -> Server:
        return closing.enter_context(started(start, *args, **options))

    return start_one


@pytest.fixture
def private_valkey(closing: ExitStack) -> Callable[..., Server]:
    """Starts a Valkey or Redis of this test alone; takes what `valkey.start` takes."""
    return _private(valkey.start, closing)


@pytest.fixture
def private_postgres(closing: ExitStack) -> Callable[..., Server]:
    """Starts a PostgreSQL of this test alone; takes what `postgres.start` takes."""
    return _private(postgres.start, closing)


@pytest.fixture
def private_mariadb(closing: ExitStack) -> Callable[..., Server]:
    """Starts a MariaDB of this test alone; takes what `mariadb.start` takes."""
    return _private(mariadb.start, closing)
