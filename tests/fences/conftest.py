"""Places to guard, each empty, on the servers of the test run."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest
import redis

from tests.contract.mysql_places import Admin
from tests.fences import places
from tests.servers.ports import Port
from tests.servers.process import Server
from tests.until import until

ROOT = Path(__file__).parents[2]
Open: TypeAlias = Callable[[], places.Place]


@pytest.fixture(params=places.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which place."""
    name: str = request.param
    return name


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Iterator[str]:
    """Where it is."""
    with ExitStack() as stack:
        yield MAKERS[places.KINDS[kind][1]](request, stack, tmp_path)


@pytest.fixture
def open_place(kind: str, url: str) -> Iterator[Open]:
    """Opens it, as often as one wants."""
    with ExitStack() as stack:

        def open_one() -> places.Place:
            return stack.enter_context(closing(places.KINDS[kind][0](url)))

        yield open_one


def _sqlite(_: pytest.FixtureRequest, stack: ExitStack, tmp_path: Path) -> str:
    url = f"sqlite:{tmp_path / 'reports.db'}"
    places.prepare(url)
    return url


def _postgresql(request: pytest.FixtureRequest, stack: ExitStack, _: Path) -> str:
    server: Server = request.getfixturevalue("postgres_server")
    name = f"fence_{secrets.token_hex(4)}"
    admin = stack.enter_context(psycopg.connect(server.url, autocommit=True))
    admin.execute(f"CREATE DATABASE {name}".encode())
    stack.callback(admin.execute, f"DROP DATABASE {name} WITH (FORCE)".encode())
    url = f"{server.url.rpartition('/')[0]}/{name}"
    places.prepare(url)
    return url


def _mysql(request: pytest.FixtureRequest, stack: ExitStack, _: Path) -> str:
    server: Server = request.getfixturevalue("mariadb_server")
    name = f"fence_{secrets.token_hex(4)}"
    admin = stack.enter_context(closing(Admin(server.url)))
    admin.run(f"CREATE DATABASE {name}")
    stack.callback(admin.run, f"DROP DATABASE {name}")
    url = f"mysql:{server.url.rpartition('/')[0].partition(':')[2]}/{name}"
    places.prepare(url)
    return url


def _redis(request: pytest.FixtureRequest, stack: ExitStack, _: Path) -> str:
    server: Server = request.getfixturevalue("valkey_server")
    url = f"redis://{server.host}:{server.port}/9"
    client = stack.enter_context(closing(redis.Redis.from_url(url)))
    client.flushdb()
    return url


def _s3(request: pytest.FixtureRequest, stack: ExitStack, _: Path) -> str:
    server: Server = request.getfixturevalue("moto_server")
    url = f"http://{server.host}:{server.port}"
    client = stack.enter_context(closing(places.s3_client(url)))
    client.create_bucket(Bucket="reports", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    stack.callback(client.delete_bucket, Bucket="reports")
    stack.callback(places.empty, client, "reports")
    return url


def _http(request: pytest.FixtureRequest, stack: ExitStack, tmp_path: Path) -> str:
    path = tmp_path / "reports.db"
    places.prepare(f"sqlite:{path}")
    reserved = Port()
    stack.callback(reserved.release)
    port = reserved.number
    command = [sys.executable, "-m", "tests.fences.receiver", str(path), str(port)]
    program = subprocess.Popen(command, cwd=ROOT)
    stack.callback(program.wait)
    stack.callback(program.kill)

    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert program.poll() is None
            return False
        return True

    until(answers, what="the application listens")
    return f"http://127.0.0.1:{port}"


MAKERS = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "mysql": _mysql,
    "redis": _redis,
    "s3": _s3,
    "http": _http,
}
