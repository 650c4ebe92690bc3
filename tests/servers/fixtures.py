"""Servers as fixtures: one of each kind per worker, started when first asked for, and private ones for tests that harm.

A test that takes a shared server uses a namespace, database or prefix of its own and leaves the server as it was. On a
machine without the program the test is skipped, with `CI=true` in the environment it fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Literal, ParamSpec, TypeVar

import pytest

from tests.servers.etcd import Members
from tests.servers.found import ServerMissing
from tests.servers.moving_clock import MovingClock
from tests.servers.nats import Members as NatsMembers
from tests.servers.process import Server
from tests.servers.proxy import Listening, Proxy

P = ParamSpec("P")
T = TypeVar("T")


def started(start: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """The server; without its program the test is skipped, or fails where every server has to be there."""
    if sys.platform != "linux":  # what ends a server with its test, and Debian's packages, are there only; so is CI
        pytest.skip("servers for tests are started on Linux only")
    try:
        return start(*args, **options)
    except ServerMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))  # it names the command that installs what is missing


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Server]:
    """One Valkey for all tests of this worker."""
    from tests.servers import valkey

    with started(valkey.start) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    """One Redis for all tests of this worker."""
    from tests.servers import valkey

    with started(valkey.start, "redis") as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One PostgreSQL, Debian's, for all tests of this worker."""
    from tests.servers import postgres

    with started(postgres.start) as server:
        yield server


@pytest.fixture(scope="session")
def wheel_postgres_server() -> Iterator[Server]:
    """One PostgreSQL, the newer one from the wheel, for all tests of this worker."""
    from tests.servers import postgres

    with started(postgres.start, "wheel") as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    """One MariaDB for all tests of this worker."""
    from tests.servers import mariadb

    with started(mariadb.start) as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer_server(postgres_server: Server) -> Iterator[Server]:
    """One PgBouncer in front of the shared PostgreSQL, with two connections to it, for all tests of this worker."""
    from tests.servers import pgbouncer

    with started(pgbouncer.start, postgres_server) as server:
        yield server


@pytest.fixture(scope="session")
def service_server() -> Iterator[Server]:
    """One lock service, over a file of its own, for all tests of this worker."""
    from tests.servers import lock_service

    with started(lock_service.start) as server:
        yield server


def _dynamodb(program: Literal["dynalite", "moto"]) -> Iterator[Server]:
    from tests.servers import dynamodb

    with dynamodb.credentials(), started(dynamodb.start, program) as server:
        yield server


@pytest.fixture(scope="session")
def dynalite_server() -> Iterator[Server]:
    """One DynamoDB that decides races as the real one, for all tests of this worker."""
    yield from _dynamodb("dynalite")


@pytest.fixture(scope="session")
def moto_server() -> Iterator[Server]:
    """One DynamoDB that knows more of the API, for all tests of this worker."""
    yield from _dynamodb("moto")


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[Server]:
    """One etcd of one member for all tests of this worker."""
    from tests.servers import etcd

    with started(etcd.start) as server:
        yield server


@pytest.fixture(scope="session")
def nats_server() -> Iterator[Server]:
    """One NATS with JetStream for all tests of this worker."""
    from tests.servers import nats

    with started(nats.start) as server:
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
    from tests.servers import valkey

    return _private(valkey.start, closing)


@pytest.fixture
def private_postgres(closing: ExitStack) -> Callable[..., Server]:
    """Starts a PostgreSQL of this test alone; takes what `postgres.start` takes."""
    from tests.servers import postgres

    return _private(postgres.start, closing)


@pytest.fixture
def private_mariadb(closing: ExitStack) -> Callable[..., Server]:
    """Starts a MariaDB of this test alone; takes what `mariadb.start` takes."""
    from tests.servers import mariadb

    return _private(mariadb.start, closing)


@pytest.fixture
def private_pgbouncer(closing: ExitStack) -> Callable[..., Server]:
    """Starts a PgBouncer of this test alone; takes what `pgbouncer.start` takes."""
    from tests.servers import pgbouncer

    return _private(pgbouncer.start, closing)


@pytest.fixture
def private_nginx(closing: ExitStack) -> Callable[..., Server]:
    """Starts an nginx of this test alone; takes what `nginx.start` takes."""
    from tests.servers import nginx

    return _private(nginx.start, closing)


@pytest.fixture
def private_dynamodb(closing: ExitStack) -> Callable[..., Server]:
    """Starts a DynamoDB of this test alone; takes what `dynamodb.start` takes."""
    from tests.servers import dynamodb

    closing.enter_context(dynamodb.credentials())
    return _private(dynamodb.start, closing)


@pytest.fixture
def private_etcd(closing: ExitStack) -> Callable[..., Server]:
    """Starts an etcd of this test alone; takes what `etcd.start` takes."""
    from tests.servers import etcd

    return _private(etcd.start, closing)


@pytest.fixture
def etcd_members(closing: ExitStack) -> Members:
    """Three etcds of this test alone that are one cluster."""
    from tests.servers import etcd

    return closing.enter_context(started(etcd.start_members))


@pytest.fixture
def private_nats(closing: ExitStack) -> Callable[..., Server]:
    """Starts a NATS of this test alone; takes what `nats.start` takes."""
    from tests.servers import nats

    return _private(nats.start, closing)


@pytest.fixture
def nats_members(closing: ExitStack) -> NatsMembers:
    """Three NATS servers of this test alone that are one cluster."""
    from tests.servers import nats

    return closing.enter_context(started(nats.start_members))


@pytest.fixture
def private_service(closing: ExitStack) -> Callable[..., Server]:
    """Starts a lock service of this test alone; takes what `lock_service.start` takes."""
    from tests.servers import lock_service

    return _private(lock_service.start, closing)


@pytest.fixture
def moving_clock() -> MovingClock:
    """A clock for one private server of this test."""
    return started(MovingClock)


@pytest.fixture
def proxy_to(closing: ExitStack) -> Callable[[Listening], Proxy]:
    """Puts a proxy of this test alone in front of a server."""
    return lambda server: closing.enter_context(Proxy(server))
