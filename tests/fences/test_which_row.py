"""Guarded updates of rows: which row is meant, what its column is made of, and what autocommit makes of it."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy
from sqlalchemy.exc import DBAPIError

from leased.errors import InvalidRequest, StaleFencingToken
from leased.fences.sql import guarded_update
from leased.fences.sqlalchemy import guarded_update as guarded_update_orm
from tests.fences import places
from tests.servers.process import Server

KINDS = ("sqlite", "postgresql", "mysql")


class Table:
    """A table of rows with a token each, on one kind of server. `update` is guarded, in a transaction of its own."""

    def __init__(self, url: str, name: str, *, with_orm: bool) -> None:
        self.connection = places.connect(url)
        self.name = name
        self._engine = sqlalchemy.create_engine(places.engine_url(url)) if with_orm else None

    def fill(self, *rows: tuple[str, int, int | None], kind: str = "BIGINT") -> None:
        """Make the table, with these days, totals and tokens."""
        cursor = self.connection.cursor()
        cursor.execute(f"CREATE TABLE {self.name} (day VARCHAR(20) PRIMARY KEY, total INT, fencing_token {kind})")
        for day, total, token in rows:
            cursor.execute(f"INSERT INTO {self.name} VALUES ('{day}', {total}, {'NULL' if token is None else token})")
        self.connection.commit()

    def update(self, where: Mapping[str, Any], values: Mapping[str, Any], *, token: int) -> bool:
        """A guarded update, rolled back where it was refused."""
        if self._engine is None:
            try:
                return guarded_update(
                    self.connection.cursor(), self.name, values=values, where=where, fencing_token=token
                )
            except InvalidRequest:
                self.connection.rollback()
                raise
            finally:
                self.connection.commit()
        names = ("day", "total", "fencing_token")
        table = sqlalchemy.table(self.name, *(sqlalchemy.column(name) for name in names))
        statement = table.update().values(**values)
        for name, value in where.items():
            statement = statement.where(table.c[name] == value)
        with self._engine.begin() as connection:
            return guarded_update_orm(connection, statement, column=table.c.fencing_token, fencing_token=token)

    def rows(self) -> list[tuple[Any, ...]]:
        """What is there."""
        cursor = self.connection.cursor()
        cursor.execute(f"SELECT day, total, fencing_token FROM {self.name} ORDER BY day")
        found = [tuple(row) for row in cursor.fetchall()]
        self.connection.rollback()
        return found

    def close(self) -> None:
        """Drop it."""
        if self._engine is not None:
            self._engine.dispose()
        with closing(self.connection):
            self.connection.rollback()
            self.connection.cursor().execute(f"DROP TABLE {self.name}")
            self.connection.commit()


@contextmanager
def table_of(request: pytest.FixtureRequest, tmp_path: Path, kind: str, *, with_orm: bool) -> Iterator[Table]:
    """An empty table."""
    server: Server
    if kind == "sqlite":
        url = f"sqlite:{tmp_path / 'rows.db'}"
    elif kind == "postgresql":
        server = request.getfixturevalue("postgres_server")
        url = server.url
    else:
        server = request.getfixturevalue("mariadb_server")
        url = f"mysql:{server.url.partition(':')[2]}"
    with closing(Table(url, f"rows_{secrets.token_hex(4)}", with_orm=with_orm)) as table:
        yield table


@pytest.fixture(params=[(kind, orm) for kind in KINDS for orm in (False, True)], ids=lambda of: f"{of[0]} orm={of[1]}")
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """One on each kind of server, by a driver and by SQLAlchemy."""
    kind, with_orm = request.param
    with table_of(request, tmp_path, kind, with_orm=with_orm) as found:
        yield found


@pytest.mark.parametrize("others", [9, 5, None, 7])
def test_an_update_that_meets_two_rows_is_refused(table: Table, others: int | None) -> None:
    """F1: also where one of them was refused for its token, or had the new values already, so that one was written: it
    would be a success that is none. Rolled back, nothing is written."""
    rows = [("monday", 1, 5), ("sunday", 1, others)]
    table.fill(*rows)
    with pytest.raises(InvalidRequest, match="several rows"):
        table.update({"total": 1}, {"total": 2}, token=7)
    assert table.rows() == rows


def test_an_update_that_changes_what_its_row_is_named_by(table: Table) -> None:
    """F1: one row is written, and not found under its old name afterwards; a second one with that name is."""
    table.fill(("monday", 1, 5), ("sunday", 3, 9))
    assert table.update({"day": "monday", "total": 1}, {"total": 2}, token=7)
    assert table.update({"day": "monday"}, {"day": "tuesday"}, token=8)
    assert table.rows() == [("sunday", 3, 9), ("tuesday", 2, 8)]
    assert not table.update({"day": "monday"}, {"total": 5}, token=8)
    table.update({"day": "tuesday"}, {"total": 3}, token=8)
    with pytest.raises(InvalidRequest, match="several rows"):
        table.update({"total": 3}, {"total": 4}, token=8)
    assert table.rows() == [("sunday", 3, 9), ("tuesday", 3, 8)]


@pytest.mark.parametrize("with_orm", [False, True])
@pytest.mark.parametrize(("kind", "column"), [("sqlite", "TEXT"), ("sqlite", "BLOB"), ("sqlite", "REAL")])
def test_a_column_of_text_is_compared_as_a_number(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, column: str, with_orm: bool
) -> None:
    """F1: SQLite keeps whatever it is given and compares text as text, where 10 comes before 9: not here."""
    with table_of(request, tmp_path, kind, with_orm=with_orm) as table:
        table.fill(("monday", 0, 9), kind=column)
        day = {"day": "monday"}
        assert table.update(day, {"total": 1}, token=10)
        with pytest.raises(StaleFencingToken) as caught:
            table.update(day, {"total": 2}, token=9)
        assert (caught.value.fencing_token, caught.value.seen) == (9, 10)
        assert table.update(day, {"total": 3}, token=10)
        most = 2**53 - 1
        assert table.update(day, {"total": 4}, token=most)
        with pytest.raises(StaleFencingToken):
            table.update(day, {"total": 5}, token=most - 1)
        assert table.rows()[0][1] == 4


@pytest.mark.parametrize("with_orm", [False, True])
@pytest.mark.parametrize("held", ["12 or so", "3 or so", "not a token", "", "0x1", "3;4"])
def test_a_column_that_holds_no_number(
    request: pytest.FixtureRequest, tmp_path: Path, held: str, *, with_orm: bool
) -> None:
    """F1: what is there can be compared with nothing, whatever number SQLite makes of it: an error, and no pass."""
    with table_of(request, tmp_path, "sqlite", with_orm=with_orm) as table:
        table.fill(("monday", 0, None), kind="TEXT")
        table.connection.cursor().execute(f"UPDATE {table.name} SET fencing_token = '{held}'")
        table.connection.commit()
        with pytest.raises(InvalidRequest, match=f"'{held}', which is none"):
            table.update({"day": "monday"}, {"total": 1}, token=7)
        assert table.rows() == [("monday", 0, held)]


@pytest.mark.parametrize("with_orm", [False, True])
def test_a_column_that_holds_no_number_in_mysql(
    request: pytest.FixtureRequest, tmp_path: Path, *, with_orm: bool
) -> None:
    """F1: a strict server, as it is unless told otherwise, refuses the comparison, and nothing is written."""
    with table_of(request, tmp_path, "mysql", with_orm=with_orm) as table:
        table.fill(("monday", 0, None), kind="VARCHAR(20)")
        table.connection.cursor().execute(f"UPDATE {table.name} SET fencing_token = '3 or so'")
        table.connection.commit()
        with pytest.raises((pymysql.MySQLError, DBAPIError), match="Truncated incorrect"):
            table.update({"day": "monday"}, {"total": 1}, token=7)
        assert table.rows() == [("monday", 0, "3 or so")]


def test_without_a_transaction_a_later_lease_may_come_at_once(tmp_path: Path) -> None:
    """F1: under autocommit a write may be overwritten before anybody can look: it was made all the same."""
    path = tmp_path / "rows.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE report (day TEXT PRIMARY KEY, total INTEGER, fencing_token INTEGER)")
        database.execute("INSERT INTO report VALUES ('monday', 0, 5)")

        class Overtaken(sqlite3.Cursor):
            """Between its statements a later lease writes."""

            def execute(self, statement: str, values: Any = ()) -> Overtaken:
                if statement.startswith("SELECT"):
                    database.execute("UPDATE report SET total = 9, fencing_token = 9")
                super().execute(statement, values)
                return self

        written = guarded_update(
            Overtaken(database),
            "report",
            values={"total": 1},
            where={"day": "monday"},
            fencing_token=7,
            database="sqlite",
        )
        assert written
        assert database.execute("SELECT total, fencing_token FROM report").fetchone() == (9, 9)
