"""The servers for tests keep what `tests/servers` promises: they start, answer, end, and keep or lose their data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.servers import mariadb, postgres, valkey
from tests.servers.fixtures import started
from tests.servers.process import Server

if TYPE_CHECKING:
    import pymysql.cursors

STARTS: dict[str, Callable[[], Server]] = {
    "valkey": lambda: valkey.start(settings=valkey.append_only()),
    "redis": lambda: valkey.start("redis", settings=valkey.append_only()),
    "postgres-debian": postgres.start,
    "postgres-wheel": lambda: postgres.start("wheel"),
    "mariadb": mariadb.start,
}


def remember(server: Server, value: str) -> None:
    """Write a value that `remembered` finds."""
    if server.recipe.kind in {"valkey", "redis"}:
        from redis import Redis

        with Redis(port=server.port) as client:
            client.set("remembered", value)
    elif server.recipe.kind == "postgres":
        import psycopg

        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS remembered (value text)")
            connection.execute("INSERT INTO remembered VALUES (%s)", [value])
    else:
        with maria(server) as session, session.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS remembered (value text)")
            cursor.execute("INSERT INTO remembered VALUES (%s)", [value])


def remembered(server: Server) -> str | None:
    """The value that was written, if it is still there."""
    if server.recipe.kind in {"valkey", "redis"}:
        from redis import Redis

        with Redis(port=server.port, decode_responses=True) as client:
            value = client.get("remembered")
            assert value is None or isinstance(value, str)
            return value
    if server.recipe.kind == "postgres":
        import psycopg

        with psycopg.connect(server.url) as connection:
            if connection.execute("SELECT to_regclass('remembered')").fetchone() == (None,):
                return None
            row = connection.execute("SELECT value FROM remembered").fetchone()
    else:
        with maria(server) as session, session.cursor() as cursor:
            if not cursor.execute("SHOW TABLES LIKE 'remembered'"):
                return None
            cursor.execute("SELECT value FROM remembered")
            row = cursor.fetchone()
    return None if row is None else str(row[0])


def maria(server: Server) -> pymysql.Connection[pymysql.cursors.Cursor]:
    """A connection to a MariaDB."""
    import pymysql

    return pymysql.connect(
        host=server.host,
        port=server.port,
        user=mariadb.USER,
        password=mariadb.PASSWORD,
        database=mariadb.DATABASE,
        autocommit=True,
    )


@pytest.mark.parametrize("kind", STARTS)
def test_a_server_keeps_its_data_until_told_otherwise(kind: str, closing: ExitStack) -> None:
    """What was written is there after a stop and after a kill, in the same place, and gone after a fresh start."""
    server = closing.enter_context(started(STARTS[kind]))
    place, first = server.url, server.pid
    remember(server, "one")
    server.restart()
    assert server.url == place
    assert server.pid != first
    assert remembered(server) == "one"
    server.kill()
    assert not server.running
    server.start()
    assert remembered(server) == "one"
    server.restart(keep_data=False)
    assert remembered(server) is None
