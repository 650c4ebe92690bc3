"""The servers of a row: each is private, starts with it and ends with it. Nothing here is measured."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers import dynamodb as dynamodb_servers
from tests.servers import etcd as etcd_servers
from tests.servers import mariadb, postgres, valkey
from tests.servers import nats as nats_servers
from tests.servers.accounts import own
from tests.servers.found import (
    ServerMissing,
    debian_postgres,
    etcd_program,
    mariadb_program,
    nats_program,
    valkey_program,
)
from tests.servers.process import Server

DISK = "/var/tmp"
_DURABLE = {"fsync": "on", "full_page_writes": "on"}


@contextmanager
def redis(*, cpu: int | None = None) -> Iterator[str]:
    """The URL of a Valkey that keeps nothing on disk; on this CPU alone if one is given."""
    with _on_cpu(valkey.start, cpu) as server:
        yield f"redis://{server.host}:{server.port}/0"


@contextmanager
def postgresql(*, cpu: int | None = None, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of an empty database on a PostgreSQL whose data is on disk and safe there, unless settings say less."""

    def start() -> Server:
        return postgres.start(settings={**_DURABLE, **(settings or {})})

    with _on_cpu(start, cpu) as server, _on_disk(server, cpu):
        yield server.url


@contextmanager
def mysql(*, cpu: int | None = None) -> Iterator[str]:
    """The URL of an empty database on a MariaDB whose data is on disk and safe there."""

    def start() -> Server:
        return mariadb.start(settings=mariadb.DURABLE)

    with _on_cpu(start, cpu) as server, _on_disk(server, cpu):
        yield server.url


@contextmanager
def etcd(*, cpu: int | None = None) -> Iterator[str]:
    """The URL of an etcd of one member whose data is on disk and safe there."""
    with _on_cpu(etcd_servers.start, cpu) as server, _on_disk(server, cpu):
        yield server.url


@contextmanager
def nats(*, cpu: int | None = None) -> Iterator[str]:
    """The URL of a NATS server whose data is on disk, where it brings it as it does by default."""
    with _on_cpu(nats_servers.start, cpu) as server, _on_disk(server, cpu):
        yield server.url


@contextmanager
def dynamodb(*, cpu: int | None = None) -> Iterator[str]:
    """The URL of a DynamoDB that is emulated in memory; credentials for it are in the environment meanwhile."""
    with dynamodb_servers.credentials(), _on_cpu(dynamodb_servers.start, cpu) as server:
        yield server.url


def connections(url: str) -> int:
    """How many connections clients have to this PostgreSQL, besides the one that asks."""
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def listening(url: str) -> int:
    """How many connections to this PostgreSQL wait for what is told on a channel."""
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen %'").fetchone()
    assert row is not None
    return int(row[0])


def versions() -> list[str]:
    """The servers of this machine, with their versions; what is missing is said to be."""
    programs: dict[str, tuple[Callable[[], Path], int]] = {
        "Valkey": (valkey_program, 2),
        "PostgreSQL": (lambda: debian_postgres() / "postgres", 2),
        "MariaDB": (mariadb_program, 2),
        "etcd": (etcd_program, 2),
        "NATS": (nats_program, 1),
    }
    return [f"{name} {_version(find, word)}" for name, (find, word) in programs.items()]


def _version(find: Callable[[], Path], word: int) -> str:
    try:
        said = subprocess.run([str(find()), "--version"], check=True, capture_output=True, text=True).stdout
    except ServerMissing:
        return "missing"
    return said.split()[word].removeprefix("v=")


@contextmanager
def _on_cpu(start: Callable[[], Server], cpu: int | None) -> Iterator[Server]:
    with bound(cpu):
        server = start()
    with server:
        yield server


@contextmanager
def bound(cpu: int | None) -> Iterator[None]:
    """Run here, and let what is started stay here for ever."""
    if cpu is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _on_disk(server: Server, cpu: int | None) -> Iterator[None]:
    """Move its data out of memory, where the servers of the tests have it: there, nothing has to wait for a disk."""
    server.stop()
    directory = Path(tempfile.mkdtemp(prefix=f"leased-bench-{server.recipe.kind}-", dir=DISK))
    try:
        own(directory, account=server.recipe.account)
        data = server.place.data
        subprocess.run(["cp", "-a", str(data), str(directory)], check=True)
        shutil.rmtree(data)
        data.symlink_to(directory / data.name)
        with bound(cpu):
            server.start()
        yield
    finally:
        server.stop()
        shutil.rmtree(directory)
