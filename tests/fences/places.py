"""Every place that has a fence, made the same for tests: one number under a guard, which is written and read."""

from __future__ import annotations

import asyncio
import http.client
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

import psycopg
import pymysql
import redis
import redis.asyncio

from leased.fences.http import fencing_headers, raise_if_stale
from leased.fences.redis import AsyncRedisGuard, RedisGuard
from leased.fences.s3 import guarded_get, guarded_put, guarded_read
from leased.fences.sql import Database, GuardTable, guarded_update
from leased.fences.sqlalchemy import guarded_update as guarded_update_orm
from leased.fences.sqlalchemy import guarded_update_async
from leased.stores._mysql_place import place

GUARDS = GuardTable()
_TABLE = "CREATE TABLE report (day VARCHAR(20) PRIMARY KEY, total BIGINT, fencing_token BIGINT)"


class Place(Protocol):
    """One guarded number. `write` raises `StaleFencingToken`; both may be called by one thread at a time."""

    def write(self, number: int, *, fencing_token: int | None) -> bool:
        """Write it; false if there is nothing to write to."""
        ...

    def read(self) -> int | None:
        """What is written there."""
        ...

    def look(self, *, fencing_token: int | None) -> int | None:
        """What is written there, with the guard raised: nobody with a lower token writes from then on."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


def connect(url: str) -> Any:
    """A DB-API connection, with transactions that the caller ends."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        return sqlite3.connect(rest, timeout=30, check_same_thread=False)
    if scheme == "postgresql":
        return psycopg.connect(url)
    where = place(url)
    return pymysql.connect(
        host=where.host, port=where.port, user=where.user, password=where.password, database=where.database
    )


def speaks(url: str) -> Database:
    """Which database that is."""
    scheme = url.partition(":")[0]
    return "sqlite" if scheme == "sqlite" else "postgresql" if scheme == "postgresql" else "mysql"


def prepare(url: str) -> None:
    """Make the tables, and the row."""
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(_TABLE)
        cursor.execute(GUARDS.schema(speaks(url)))
        cursor.execute("INSERT INTO report (day) VALUES ('monday')")
        connection.commit()


class Row:
    """A row with a column for the token, over a DB-API driver."""

    def __init__(self, url: str) -> None:
        self._connection = connect(url)

    def write(self, number: int, *, fencing_token: int | None) -> bool:
        """See `Place`."""
        with self._transaction() as cursor:
            return guarded_update(
                cursor, "report", values={"total": number}, where={"day": "monday"}, fencing_token=fencing_token
            )

    def read(self) -> int | None:
        """See `Place`."""
        with self._transaction() as cursor:
            return _total(cursor)

    def look(self, *, fencing_token: int | None) -> int | None:
        """See `Place`."""
        with self._transaction() as cursor:
            guarded_update(cursor, "report", values={}, where={"day": "monday"}, fencing_token=fencing_token)
            return _total(cursor)

    def close(self) -> None:
        """See `Place`."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        cursor = self._connection.cursor()
        try:
            yield cursor
        except BaseException:
            self._connection.rollback()
            raise
        else:
            self._connection.commit()
        finally:
            cursor.close()


class Guarded(Row):
    """The same number without the column: a guard is checked in the transaction that writes."""

    def write(self, number: int, *, fencing_token: int | None) -> bool:
        """See `Place`."""
        with self._transaction() as cursor:
            GUARDS.check(cursor, "report of monday", fencing_token=fencing_token)
            cursor.execute(f"UPDATE report SET total = {int(number)} WHERE day = 'monday'")
        return True

    def look(self, *, fencing_token: int | None) -> int | None:
        """See `Place`."""
        with self._transaction() as cursor:
            GUARDS.check(cursor, "report of monday", fencing_token=fencing_token)
            return _total(cursor)


def _total(cursor: Any) -> int | None:
    cursor.execute("SELECT total FROM report")
    ((total,),) = cursor.fetchall()
    return None if total is None else int(total)


class Orm:
    """The row, over SQLAlchemy."""

    def __init__(self, url: str) -> None:
        import sqlalchemy

        self._engine = sqlalchemy.create_engine(engine_url(url))
        self._report = Report()

    def write(self, number: int, *, fencing_token: int | None) -> bool:
        """See `Place`."""
        with self._engine.begin() as connection:
            return guarded_update_orm(
                connection, self._report.update(number), column=self._report.token, fencing_token=fencing_token
            )

    def read(self) -> int | None:
        """See `Place`."""
        with self._engine.connect() as connection:
            return connection.execute(self._report.select()).scalar()

    def look(self, *, fencing_token: int | None) -> int | None:
        """See `Place`."""
        with self._engine.begin() as connection:
            guarded_update_orm(
                connection, self._report.update(), column=self._report.token, fencing_token=fencing_token
            )
            return connection.execute(self._report.select()).scalar()

    def close(self) -> None:
        """See `Place`."""
        self._engine.dispose()


class AsyncOrm:
    """The row, over SQLAlchemy's asyncio engine."""

    def __init__(self, url: str) -> None:
        from sqlalchemy.ext.asyncio import create_async_engine

        self._runner = asyncio.Runner()
        self._engine = create_async_engine(engine_url(url).replace("pymysql", "asyncmy"))
        self._report = Report()

    def write(self, number: int, *, fencing_token: int | None) -> bool:
        """See `Place`."""

        async def update() -> bool:
            async with self._engine.begin() as connection:
                return await guarded_update_async(
                    connection, self._report.update(number), column=self._report.token, fencing_token=fencing_token
                )

        return self._runner.run(update())

    def read(self) -> int | None:
        """See `Place`."""

        async def select() -> int | None:
            async with self._engine.connect() as connection:
                return (await connection.execute(self._report.select())).scalar()

        return self._runner.run(select())

    def look(self, *, fencing_token: int | None) -> int | None:
        """See `Place`."""

        async def both() -> int | None:
            async with self._engine.begin() as connection:
                await guarded_update_async(
                    connection, self._report.update(), column=self._report.token, fencing_token=fencing_token
                )
                return (await connection.execute(self._report.select())).scalar()

        return self._runner.run(both())

    def close(self) -> None:
        """See `Place`."""
        self._runner.run(self._engine.dispose())
        self._runner.close()


class Redis:
    """A string in Redis."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._guard = RedisGuard(self._client, "{report}:guard")

    def write(self, number: int, *, fencing_token: int | None) -> bool:
        """See `Place`."""
        return bool(self._guard.write("SET", "{report}", number, fencing_token=fencing_token))

    def read(self) -> int | None:
        """See `Place`."""
        found: Any = self._client.get("{report}")
        return None if found is None else int(found)

    def look(self, *, fencing_token: int | None) -> int | None:
        """See `Place`."""
        found = self._guard.write("GET", "{report}", fencing_token=fencing_token)
        return None if found is None else int(found)

    def close(self) -> None:
        """See `Place`."""
        self._client.close()


class AsyncRedis:
    """The same over redis-py's asyncio client."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._client = redis.asyncio.Redis.from_url(url)
        self._guard = AsyncRedisGuard(self._client, "{report}:guard")

    def write(self, number: int, *, fencing_token: int | None) -> bool:
        """See `Place`."""
        return bool(self._runner.run(self._guard.write("SET", "{report}", number, fencing_token=fencing_token)))

    def read(self) -> int | None:
        """See `Place`."""

        async def get() -> Any:
            return await self._client.get("{report}")

        found = self._runner.run(get())
        return None if found is None else int(found)

    def look(self, *, fencing_token: int | None) -> int | None:
        """See `Place`."""
        found = self._runner.run(self._guard.write("GET", "{report}", fencing_token=fencing_token))
        return None if found is None else int(found)

    def close(self) -> None:
        """See `Place`."""
        self._runner.run(self._client.aclose())
        self._runner.close()


class Bucket:
    """An object in a bucket."""

    def __init__(self, url: str) -> None:
        self.client = s3_client(url)

    def write(self, number: int, *, fencing_token: int | None) -> bool:
        """See `Place`."""
        body = b"%d" % number
        return bool(guarded_put(self.client, bucket="reports", key="monday", body=body, fencing_token=fencing_token))

    def read(self) -> int | None:
        """See `Place`."""
        found = guarded_get(self.client, bucket="reports", key="monday")
        return None if found is None else int(found["Body"].read())

    def look(self, *, fencing_token: int | None) -> int | None:
        """See `Place`."""
        found = guarded_read(self.client, bucket="reports", key="monday", fencing_token=fencing_token)
        return None if found is None else int(found["Body"].read())

    def close(self) -> None:
        """See `Place`."""
        self.client.close()


def s3_client(url: str) -> Any:
    """A client of the server at this URL."""
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="eu-central-1",
        aws_access_key_id="AKIATESTS",
        aws_secret_access_key="a secret of tests",
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


def empty(client: Any, bucket: str) -> None:
    """Delete all objects of a bucket."""
    for found in client.list_objects_v2(Bucket=bucket).get("Contents", []):
        client.delete_object(Bucket=bucket, Key=found["Key"])


def engine_url(url: str) -> str:
    """What SQLAlchemy calls the database at this URL."""
    scheme, _, rest = url.partition(":")
    names = {"sqlite": "sqlite:///", "postgresql": "postgresql+psycopg:", "mysql": "mysql+pymysql:"}
    return names[scheme] + rest


class Service:
    """The row, behind a web application."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)

    def write(self, number: int, *, fencing_token: int | None) -> bool:
        """See `Place`."""
        status, body = self._ask("PUT", b"%d" % number, fencing_headers(fencing_token))
        raise_if_stale(status, body)
        return bool(json.loads(body)["written"])

    def read(self) -> int | None:
        """See `Place`."""
        total: int | None = json.loads(self._ask("GET", b"", {})[1])["total"]
        return total

    def look(self, *, fencing_token: int | None) -> int | None:
        """See `Place`."""
        status, body = self._ask("POST", b"", fencing_headers(fencing_token))
        raise_if_stale(status, body)
        total: int | None = json.loads(body)["total"]
        return total

    def close(self) -> None:
        """See `Place`."""
        self._connection.close()

    def _ask(self, method: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        self._connection.request(method, "/report", body, headers)
        answer = self._connection.getresponse()
        try:
            return answer.status, answer.read()
        finally:
            self._connection.close()  # the service would close one that rests for long


class Report:
    """The table, as SQLAlchemy sees it."""

    def __init__(self) -> None:
        import sqlalchemy

        columns: Any = (sqlalchemy.column(name) for name in ("day", "total", "fencing_token"))
        self.table = sqlalchemy.table("report", *columns)
        self.token = self.table.c.fencing_token

    def update(self, number: int | None = None) -> Any:
        """What writes the number of Monday, or only the token that is guarded by."""
        statement = self.table.update().where(self.table.c.day == "monday")
        return statement if number is None else statement.values(total=number)

    def select(self) -> Any:
        """What reads it."""
        return self.table.select().with_only_columns(self.table.c.total)


KINDS: dict[str, tuple[Callable[[str], Place], str]] = {
    "sqlite row": (Row, "sqlite"),
    "sqlite guard": (Guarded, "sqlite"),
    "sqlite sqlalchemy": (Orm, "sqlite"),
    "postgresql row": (Row, "postgresql"),
    "postgresql guard": (Guarded, "postgresql"),
    "postgresql sqlalchemy": (Orm, "postgresql"),
    "postgresql sqlalchemy async": (AsyncOrm, "postgresql"),
    "mysql row": (Row, "mysql"),
    "mysql guard": (Guarded, "mysql"),
    "mysql sqlalchemy": (Orm, "mysql"),
    "mysql sqlalchemy async": (AsyncOrm, "mysql"),
    "redis": (Redis, "redis"),
    "redis async": (AsyncRedis, "redis"),
    "s3": (Bucket, "s3"),
    "http": (Service, "http"),
}
"""How to open each place at a URL, and on which kind of server it is."""
