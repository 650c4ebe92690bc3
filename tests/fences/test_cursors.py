"""Guarded writes by cursors of all kinds: whatever they make of their rows, count of them, or do before they answer."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg.rows
import pymysql.cursors
import pytest

from leased.errors import InvalidRequest, StaleFencingToken
from leased.fences.sql import Database, GuardTable, guarded_update
from tests.fences import places
from tests.servers.process import Server


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    """A row, which is not guarded yet."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE report (day TEXT PRIMARY KEY, total INTEGER, fencing_token INTEGER)")
        connection.execute("INSERT INTO report (day, total) VALUES ('monday', 0)")
        connection.commit()
        yield connection


def test_rows_that_are_mappings(database: sqlite3.Connection, postgres_server: Server, mariadb_server: Server) -> None:
    """F1: the rule is the same however a cursor gives its rows: by sqlite3's own factory, psycopg's, or PyMySQL's."""
    name = f"report_{secrets.token_hex(4)}"
    guards = GuardTable(f"guard_{secrets.token_hex(4)}")
    postgres = places.connect(postgres_server.url)
    mariadb = places.connect(mariadb_server.url)
    database.row_factory = lambda cursor, row: dict(zip([one[0] for one in cursor.description], row, strict=True))
    kinds: list[tuple[Any, Any, Database]] = [
        (database, database.cursor(), "sqlite"),
        (postgres, postgres.cursor(row_factory=psycopg.rows.dict_row), "postgresql"),
        (mariadb, mariadb.cursor(pymysql.cursors.DictCursor), "mysql"),
    ]
    for connection, cursor, kind in kinds:
        with closing(connection):
            cursor.execute(f"CREATE TABLE {name} (day VARCHAR(9) PRIMARY KEY, total INT, fencing_token BIGINT)")
            cursor.execute(guards.schema(kind))
            cursor.execute(f"INSERT INTO {name} VALUES ('monday', 0, 5)")
            asked: dict[str, Any] = {"values": {"total": 1}, "where": {"day": "monday"}}
            assert guarded_update(cursor, name, fencing_token=7, **asked)
            with pytest.raises(StaleFencingToken):
                guarded_update(cursor, name, fencing_token=6, **asked)
            guards.check(cursor, "thing", fencing_token=7)
            with pytest.raises(StaleFencingToken):
                guards.check(cursor, "thing", fencing_token=6)
            cursor.execute(f"DROP TABLE {name}")
            cursor.execute(f"DROP TABLE {guards.name}")


def test_a_cursor_that_does_not_count(postgres_server: Server) -> None:
    """In psycopg's pipeline mode rows are not counted yet: what was written is looked at instead."""
    name = f"report_{secrets.token_hex(4)}"
    with closing(places.connect(postgres_server.url)) as connection:
        connection.execute(f"CREATE TABLE {name} (day TEXT PRIMARY KEY, total INT, fencing_token BIGINT)")
        connection.execute(f"INSERT INTO {name} VALUES ('monday', 0, 9)")
        asked: dict[str, Any] = {"values": {"total": 1}, "where": {"day": "monday"}}
        with connection.pipeline():
            with pytest.raises(StaleFencingToken):
                guarded_update(connection.cursor(), name, fencing_token=5, **asked)
            assert guarded_update(connection.cursor(), name, fencing_token=9, **asked)
        assert connection.execute(f"SELECT total FROM {name}").fetchone() == (1,)
        connection.rollback()


@dataclass
class Row:
    """What psycopg may make of a row."""

    fencing_token: int


FACTORIES: dict[str, Any] = {
    "dict": psycopg.rows.dict_row,
    "named tuple": psycopg.rows.namedtuple_row,
    "class": psycopg.rows.class_row(Row),
    "keywords": psycopg.rows.kwargs_row(Row),
    "arguments": psycopg.rows.args_row(Row),
    "scalar": psycopg.rows.scalar_row,
    "tuple": psycopg.rows.tuple_row,
}


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("kind", [psycopg.Cursor, psycopg.ClientCursor])
def test_whatever_psycopg_makes_of_rows(postgres_server: Server, factory: str, kind: Any) -> None:
    """F1: the rule is the same for each kind of row and of cursor, in its pipeline mode too, and the cursor gives its
    rows as before."""
    name, guards = f"report_{secrets.token_hex(4)}", GuardTable(f"guard_{secrets.token_hex(4)}")
    asked: dict[str, Any] = {"values": {"total": 1}, "where": {"day": "monday"}}

    def check(cursor: Any, token: int) -> None:
        assert guarded_update(cursor, name, fencing_token=token, **asked)
        guards.check(cursor, "thing", fencing_token=token)
        with pytest.raises(StaleFencingToken) as caught:
            guarded_update(cursor, name, fencing_token=token - 1, **asked)
        assert caught.value.seen == token
        with pytest.raises(StaleFencingToken):
            guards.check(cursor, "thing", fencing_token=token - 1)
        assert cursor.row_factory is FACTORIES[factory]

    with closing(places.connect(postgres_server.url)) as connection:
        connection.execute(f"CREATE TABLE {name} (day TEXT PRIMARY KEY, total INT, fencing_token BIGINT)")
        connection.execute(guards.schema("postgresql"))
        connection.execute(f"INSERT INTO {name} VALUES ('monday', 0, 5)")
        cursor = kind(connection, row_factory=FACTORIES[factory])
        check(cursor, 7)
        with connection.pipeline():
            check(cursor, 9)
        connection.rollback()


def test_a_guard_in_a_pipeline_without_a_transaction(postgres_server: Server) -> None:
    """F1: what is sent before its answers are read looks like a transaction, and is over with them: refused."""
    guards = GuardTable(f"guard_{secrets.token_hex(4)}")
    with closing(places.connect(postgres_server.url)) as connection:
        connection.autocommit = True
        connection.execute(guards.schema("postgresql"))
        with connection.pipeline():
            with pytest.raises(InvalidRequest, match="in the transaction that writes"):
                guards.check(connection.cursor(), "thing", fencing_token=7)
            with connection.transaction():
                guards.check(connection.cursor(), "thing", fencing_token=7)
        connection.execute(f"DROP TABLE {guards.name}")


def test_a_cursor_that_is_awaited(postgres_server: Server) -> None:
    """Refused before anything is sent, with what to do instead."""

    async def main() -> None:
        connection = await psycopg.AsyncConnection.connect(postgres_server.url)
        async with connection:
            cursor: Any = connection.cursor()
            with pytest.raises(InvalidRequest, match="cursor that blocks"):
                guarded_update(cursor, "x", values={}, where={"a": 1}, fencing_token=7)
            with pytest.raises(InvalidRequest, match="cursor that blocks"):
                GuardTable().check(cursor, "thing", fencing_token=7)

    asyncio.run(main())


def test_rows_of_sqlite_that_are_objects(database: sqlite3.Connection) -> None:
    """F1: as above, for sqlite3's factories and for cursors of a class of one's own."""

    class Own(sqlite3.Cursor):
        """As some libraries have them."""

    def factory(_: Any, row: Any) -> Row:
        return Row(*row)

    where = {"day": "monday"}
    for row_factory in (factory, sqlite3.Row, None):
        cursor = Own(database)
        cursor.row_factory = row_factory
        assert guarded_update(cursor, "report", values={"total": 1}, where=where, fencing_token=7)
        with pytest.raises(StaleFencingToken):
            guarded_update(cursor, "report", values={"total": 1}, where=where, fencing_token=6)
        assert cursor.row_factory is row_factory
