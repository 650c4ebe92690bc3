"""The stores that can be soaked: a running server each, a proxy that cuts connections, and how to count records."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.servers import lock_service, mariadb, postgres, valkey
from tests.servers.process import Server
from tests.servers.proxy import Proxy


@dataclass(frozen=True, slots=True)
class Soaked:
    """The URL of a store; `cut` ends its connections, where it has any; `records` counts what it keeps of keys."""

    url: str
    server: int | None
    cut: Callable[[], object] | None
    records: Callable[[], int]


@contextmanager
def _sqlite() -> Iterator[Soaked]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        path = Path(directory) / "locks.db"
        yield Soaked(f"sqlite:{path}", None, None, lambda: _rows_of(path))


_COUNT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=30)
print(connection.execute("SELECT count(*) FROM record").fetchone()[0])
"""


def _rows_of(path: Path) -> int:
    """Asked by another process: two SQLite libraries in one undo each other's file locks."""
    return int(subprocess.run([sys.executable, "-c", _COUNT, str(path)], check=True, capture_output=True).stdout)


def _on(start: Callable[[], Server], records: Callable[[Server], int]) -> Callable[[], AbstractContextManager[Soaked]]:
    @contextmanager
    def open_store() -> Iterator[Soaked]:
        with start() as server, Proxy(server) as proxy:
            yield Soaked(proxy.url, server.pid, proxy.cut, lambda: records(server))

    return open_store


def _redis_keys(server: Server) -> int:
    with valkey.client_of(server.place) as client:
        return sum(1 for _ in client.scan_iter(count=1000))


def _postgres_rows(server: Server) -> int:
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT count(*) FROM leased_record").fetchone()
    assert row is not None
    return int(row[0])


def _mysql_rows(server: Server) -> int:
    with mariadb.connection_to(server.place) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM leased_record")
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


STORES: dict[str, Callable[[], AbstractContextManager[Soaked]]] = {
    "sqlite": _sqlite,
    "redis": _on(valkey.start, _redis_keys),
    "postgres": _on(postgres.start, _postgres_rows),
    "mysql": _on(mariadb.start, _mysql_rows),
    "service": _on(
        lambda: lock_service.start(settings={"project_requests": "100000000"}),
        lambda server: _rows_of(server.place.data / "locks.db"),
    ),
}
