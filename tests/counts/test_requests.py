"""What a server has to do for a pair: commands and statements, counted by the server itself."""

from __future__ import annotations

from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.counts.test_round_trips import opened, within
from tests.servers.process import Server
from tests.servers.valkey import client_of

PAIRS = 10
FACES = ("blocking", "async")


def commands(client: Any) -> Counter[str]:
    """How often each command was executed, those of scripts included."""
    told = client.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): counts["calls"] for name, counts in told.items()})


@pytest.fixture
def valkey(private_valkey: Callable[..., Server]) -> Server:
    """One on which nobody else does anything."""
    return private_valkey()


@pytest.mark.parametrize("face", FACES)
def test_a_pair_on_redis_is_two_calls_of_scripts(face: str, valkey: Server) -> None:
    """Redis: one call of a script each, which reads the time and the record once and writes it once; the release tells
    those who wait."""
    with client_of(valkey.place) as client, opened(face, valkey.url) as locks:
        before = commands(client)
        for number in range(PAIRS):
            locks.pair(f"key-{number}")
        done = commands(client) - before
    each = {"evalsha": 2, "time": 2, "get": 2, "set": 2, "publish": 1}
    assert done == {"info": 1, **{name: count * PAIRS for name, count in each.items()}}


@pytest.mark.parametrize("face", FACES)
def test_a_pair_on_postgresql_is_two_statements(face: str, private_postgres: Callable[..., Server]) -> None:
    """PostgreSQL: one statement each, which is a transaction of its own; none begins or ends one."""
    import psycopg

    server = private_postgres(settings={"shared_preload_libraries": "pg_stat_statements"})
    with psycopg.connect(server.url, autocommit=True) as watching, opened(face, server.url) as locks:
        watching.execute("CREATE EXTENSION pg_stat_statements")
        watching.execute("SELECT pg_stat_statements_reset()")
        for number in range(PAIRS):
            locks.pair(f"key-{number}")
        done = watching.execute(
            "SELECT split_part(query, ' ', 1), calls FROM pg_stat_statements "
            "WHERE query NOT LIKE '%pg_stat%' ORDER BY 1"
        ).fetchall()
    assert done == [("INSERT", PAIRS), ("UPDATE", PAIRS)]


@pytest.mark.parametrize("face", FACES)
def test_a_pair_on_mariadb_is_two_statements(face: str, private_mariadb: Callable[..., Server]) -> None:
    """MariaDB: the same, with one commit each."""
    import pymysql

    server = private_mariadb()
    parts = urlsplit(server.url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    with (
        pymysql.connect(host=parts.hostname, port=parts.port or 0, user=user, password=password) as watching,
        opened(face, server.url) as locks,
        watching.cursor() as cursor,
    ):

        def status() -> Counter[str]:
            cursor.execute("SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Com\\_%' OR Variable_name = 'Handler_commit'")
            return Counter({name: int(value) for name, value in cursor.fetchall()})

        before = status()
        for number in range(PAIRS):
            locks.pair(f"key-{number}")
        done = status() - before
    commits = done.pop("Handler_commit")
    assert done == {"Com_show_status": 1, "Com_insert": PAIRS, "Com_update": PAIRS}
    assert 2 * PAIRS <= commits <= 2 * PAIRS + 2  # the server itself commits something now and then


@pytest.mark.parametrize("kind", ["valkey", "etcd", "dynalite", "nats", "service"])
def test_what_is_read_needs_no_memory_of_the_system(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio reads 256 KiB at once, for which the C library asks the system each time: three calls more an answer."""
    found: Server = request.getfixturevalue(f"{kind}_server")
    asked: list[int] = []
    read = _SelectorSocketTransport._read_ready__data_received

    def read_and_note(transport: Any) -> None:
        asked.append(transport.max_size)
        read(transport)

    monkeypatch.setattr(_SelectorSocketTransport, "_read_ready__data_received", read_and_note)
    with opened("async", within(found.url, "little")) as locks:
        asked.clear()  # what is said first, on a new connection, does not count
        locks.pair("key")
    assert asked
    assert max(asked) <= 128 * 1024
