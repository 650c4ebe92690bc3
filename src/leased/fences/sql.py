"""Guarded writes over any DB-API driver: a row with a column for the token, or a table of guards for what has none.

It runs statements on the caller's cursor, in the caller's transaction, and never commits. Names of tables and columns
are written into the statements, so they have to be plain names; values never are.
"""

# ruff: noqa: S608 - what is written into a text is the plain name of a table or column

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeAlias

from leased.checks import shown
from leased.clocks import step
from leased.errors import InvalidRequest
from leased.fences import _rule

Database: TypeAlias = Literal["sqlite", "postgresql", "mysql"]
"""Which kind of SQL a cursor speaks."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_LONGEST = 255
_DRIVERS: dict[str, Database] = {
    "sqlite3": "sqlite",
    "pysqlite3": "sqlite",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pymysql": "mysql",
    "MySQLdb": "mysql",
    "mariadb": "mysql",
    "mysql": "mysql",
}
_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS of the MySQL protocol


class Cursor(Protocol):
    """What is used of a DB-API cursor."""

    @property
    def rowcount(self) -> int:
        """Rows that the last statement changed."""
        ...

    def execute(self, statement: Any, values: Any = ..., /) -> object:
        """Run a statement."""
        ...

    def fetchall(self) -> Sequence[Any]:
        """The rows it found."""
        ...


def guarded_update(
    cursor: Cursor,
    table: str,
    *,
    values: Mapping[str, object],
    where: Mapping[str, object],
    fencing_token: int | None,
    column: str = "fencing_token",
    database: Database | None = None,
) -> bool:
    """Update the row that `where` names by equality, and its token with it, unless a later lease has written it.

    Check and write are one statement, so it is safe without a transaction too. False: there is no such row. Raises
    `StaleFencingToken`, and then nothing was written; `StoreUnavailable` if the database wrote nothing although no
    later lease has (a trigger can do that); `InvalidRequest` without a token, and where `where` met several rows (roll
    back then): it has to name one, by its primary key. A row whose token is `NULL` was never guarded, and takes any.
    Make the column a `BIGINT`: in a text, what is no number is `InvalidRequest` on SQLite and an error of the driver
    on PostgreSQL and MySQL; a MySQL that is not strict takes it for 0, and writes. `database` is read off the driver
    where that is known.
    """
    token = _rule.presented(fencing_token)
    speak = _Dialect(cursor, database)
    if not where:
        raise InvalidRequest("a guarded update needs `where`: the row that is meant", hint="give its primary key")
    for name in (table, column, *values, *where):
        _plain(name)
    changes = {**values, column: token}
    row = " AND ".join(f"{name} = {speak.place}" for name in where)
    write = (
        f"UPDATE {table} SET {', '.join(f'{name} = {speak.place}' for name in changes)} "
        f"WHERE {row} AND ({column} IS NULL OR {speak.at_most(column)})"
    )
    look = f"SELECT {column} FROM {table} WHERE {row}{speak.for_update}"

    async def run_write() -> int:
        cursor.execute(write, (*changes.values(), *where.values(), token))
        return cursor.rowcount

    async def run_look() -> list[Any]:
        with _plain_rows(cursor):
            cursor.execute(look, tuple(where.values()))
            return [_only(row) for row in cursor.fetchall()]

    def locked() -> bool:
        return _in_transaction(cursor) is not False

    return step(_rule.update(_name(table, where), fencing_token=token, write=run_write, look=run_look, locked=locked))


class GuardTable:
    """One table of guards, for what has no column of its own: several rows, a file, a third party's account.

    `check` belongs into the transaction that writes: the guard stays locked until that ends, so nobody with another
    token comes between.
    """

    def __init__(self, name: str = "leased_guard") -> None:
        self.name = _plain(name)

    def schema(self, database: Database) -> str:
        """The statement that makes the table. Names of things are told apart by their bytes."""
        name = f"VARBINARY({4 * _LONGEST})" if database == "mysql" else f"VARCHAR({_LONGEST})"
        return (
            f"CREATE TABLE IF NOT EXISTS {self.name} (thing {name} NOT NULL PRIMARY KEY, fencing_token BIGINT NOT NULL)"
        )

    def check(self, cursor: Cursor, thing: str, *, fencing_token: int | None, database: Database | None = None) -> None:
        """Let only this and later leases write `thing` from now on, and hold off all others until the transaction ends.

        `thing` has 1 to 255 characters. Raises `StaleFencingToken`: roll back, nothing may be written. Raises
        `InvalidRequest` without a token, and outside of a transaction where the driver tells: the check would be over
        before the write.
        """
        token = _rule.presented(fencing_token)
        if type(thing) is not str or not 0 < len(thing) <= _LONGEST:
            raise InvalidRequest(f"a guarded thing is named by 1 to {_LONGEST} characters, not {shown(thing)!r}")
        speak = _Dialect(cursor, database)
        cursor.execute(speak.raise_guard(self.name), (thing, token))
        with _plain_rows(cursor):
            look = f"SELECT fencing_token FROM {self.name} WHERE thing = {speak.place}{speak.for_update}"
            cursor.execute(look, (thing,))
            (row,) = cursor.fetchall()
        if _in_transaction(cursor) is False:  # asked last: in psycopg's pipeline nothing is known before an answer
            raise InvalidRequest(
                "a guard is checked in the transaction that writes, and there is none",
                hint="turn autocommit off, or begin a transaction",
            )
        _rule.check(thing, fencing_token=token, seen=_only(row))


class _Dialect:
    """How the database behind a cursor wants its statements."""

    def __init__(self, cursor: Cursor, database: Database | None) -> None:
        if not hasattr(cursor, "execute") or not hasattr(cursor, "rowcount"):
            raise InvalidRequest(
                f"a guarded write needs a cursor, not {type(cursor).__name__}", hint="such as connection.cursor()"
            )
        if inspect.iscoroutinefunction(cursor.execute):
            raise InvalidRequest(
                "a guarded write over a DB-API driver needs a cursor that blocks, and this one is awaited",
                hint="use a blocking connection, or leased.fences.sqlalchemy.guarded_update_async",
            )
        driver = _driver(cursor)
        found = _DRIVERS.get(driver) if database is None else database
        if found not in ("sqlite", "postgresql", "mysql"):
            raise InvalidRequest(
                f"which database a cursor of {driver!r} speaks to is not known",
                hint='pass database="sqlite", "postgresql" or "mysql"',
            )
        self._database = found
        style = getattr(sys.modules.get(driver), "paramstyle", "qmark" if found == "sqlite" else "format")
        self.place = "?" if style == "qmark" and driver != "django" else "%s"  # Django writes %s for SQLite too
        self.for_update = "" if found == "sqlite" else " FOR UPDATE"

    def at_most(self, column: str) -> str:
        """The condition that a column is at most what is given. SQLite compares a text as text, where 10 comes before
        9, and makes any text a number: it has to equal that number."""
        if self._database != "sqlite":
            return f"{column} <= {self.place}"
        number = f"CAST({column} AS INTEGER)"
        return f"{column} = {number} AND {number} <= {self.place}"

    def raise_guard(self, table: str) -> str:
        """The statement that puts a token in a guard, unless there is a higher one; the guard is locked either way."""
        insert = f"INSERT INTO {table} (thing, fencing_token) VALUES ({self.place}, {self.place})"
        if self._database == "mysql":
            return f"{insert} ON DUPLICATE KEY UPDATE fencing_token = GREATEST(fencing_token, VALUES(fencing_token))"
        greatest = "MAX" if self._database == "sqlite" else "GREATEST"
        return (
            f"{insert} ON CONFLICT (thing) DO UPDATE SET "
            f"fencing_token = {greatest}({table}.fencing_token, excluded.fencing_token)"
        )


@contextmanager
def _plain_rows(cursor: Any) -> Iterator[None]:
    """Inside, a cursor that makes something else of its rows gives tuples: only they are the same everywhere."""
    driver = _driver(cursor)
    if driver not in _FACTORIES:
        yield
        return
    before = cursor.row_factory
    cursor.row_factory = _FACTORIES[driver]()
    try:
        yield
    finally:
        cursor.row_factory = before


def _tuples_of_psycopg() -> Any:
    return sys.modules["psycopg.rows"].tuple_row


_FACTORIES: dict[str, Callable[[], Any]] = {"sqlite3": lambda: None, "psycopg": _tuples_of_psycopg}


def _driver(cursor: object) -> str:
    """The package that a cursor, or what it derives from, comes from."""
    packages = [kind.__module__.partition(".")[0] for kind in type(cursor).__mro__]
    return next((one for one in packages if one in _DRIVERS), packages[0])


def _only(row: Any) -> Any:
    """The value of a row that has one, also of a cursor whose rows are mappings."""
    (value,) = row.values() if isinstance(row, Mapping) else row
    return value


def _in_transaction(cursor: Any) -> bool | None:
    """Whether the cursor's connection is in a transaction now; `None` where the driver does not tell."""
    connection = getattr(cursor, "connection", None)
    told: Callable[[], bool]
    for told in (
        lambda: bool(connection.in_transaction),  # type: ignore[union-attr]  # sqlite3
        lambda: connection.info.transaction_status != 0,  # type: ignore[union-attr]  # psycopg: not idle
        lambda: bool(connection.server_status & _IN_TRANSACTION),  # type: ignore[union-attr]  # PyMySQL
    ):
        try:
            return told()
        except AttributeError:
            continue
    return None


def _plain(name: str) -> str:
    """The name of a table or column, if it is safe in a statement."""
    if type(name) is not str or not _PLAIN.fullmatch(name):
        raise InvalidRequest(
            f"{shown(name)!r} cannot be the name of a table or column here",
            hint="letters, digits and underscores, with a dot after a schema",
        )
    return name


def _name(table: str, where: Mapping[str, object]) -> str:
    return f"{table} ({', '.join(f'{name} {value!r}' for name, value in where.items())})"
