"""Fences used wrongly: refused with a clear error, before anything is written where that can be known."""

from __future__ import annotations

import io
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
import sqlalchemy
from botocore.exceptions import ClientError, ParamValidationError  # type: ignore[import-untyped]

from leased.errors import InvalidRequest, StaleFencingToken, StoreUnavailable
from leased.fences.redis import RedisGuard
from leased.fences.s3 import guarded_get, guarded_put, guarded_read
from leased.fences.sql import Database, GuardTable, guarded_update
from leased.fences.sqlalchemy import guarded_update as guarded_update_orm
from tests.fences import places
from tests.servers.process import Server


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    """Two rows, neither of them guarded."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE report (day TEXT PRIMARY KEY, total INTEGER, fencing_token INTEGER)")
        connection.execute(GuardTable().schema("sqlite"))
        connection.execute("INSERT INTO report (day, total) VALUES ('monday', 0), ('tuesday', 0)")
        connection.commit()
        yield connection


def test_a_row_that_is_not_there(database: sqlite3.Connection) -> None:
    """Nothing to write to is no refusal: the answer is false."""
    where = {"day": "sunday"}
    assert not guarded_update(database.cursor(), "report", values={"total": 1}, where=where, fencing_token=7)


@pytest.mark.parametrize("name", ["report; DROP TABLE report", "re port", "", "1report", "report--", "x.", None, 3])
def test_names_that_are_not_plain(database: sqlite3.Connection, name: Any) -> None:
    """Names are written into statements: what could be more than a name is refused, wherever it stands."""
    good: dict[str, Any] = {"values": {"total": 1}, "where": {"day": "monday"}, "column": "fencing_token"}
    bad: list[dict[str, Any]] = [{"values": {name: 1}}, {"where": {name: 1}}, {"column": name}]
    cursor = database.cursor()
    for one in bad:
        with pytest.raises(InvalidRequest, match="cannot be the name"):
            guarded_update(cursor, "report", fencing_token=7, **{**good, **one})
    with pytest.raises(InvalidRequest, match="cannot be the name"):
        guarded_update(cursor, name, fencing_token=7, **good)
    with pytest.raises(InvalidRequest, match="cannot be the name"):
        GuardTable(name)
    assert database.execute("SELECT total FROM report").fetchall() == [(0,), (0,)]


def test_a_connection_is_no_cursor(database: sqlite3.Connection) -> None:
    """Said before anything is written, and with what to pass instead."""
    given: dict[str, Any] = {"values": {"total": 1}, "where": {"day": "monday"}, "fencing_token": 7}
    not_cursors: tuple[Any, ...] = (database, None, "cursor")
    for wrong in not_cursors:
        with pytest.raises(InvalidRequest, match=r"connection\.cursor\(\)"):
            guarded_update(wrong, "report", **given)
        with pytest.raises(InvalidRequest, match=r"connection\.cursor\(\)"):
            GuardTable().check(wrong, "thing", fencing_token=7, database="sqlite")
    assert database.execute("SELECT total FROM report").fetchall() == [(0,), (0,)]


def test_values_are_never_part_of_a_statement(database: sqlite3.Connection) -> None:
    """What looks like SQL is a value like any other."""
    evil = "x' OR 1=1 --"
    assert not guarded_update(database.cursor(), "report", values={"total": 1}, where={"day": evil}, fencing_token=7)
    GuardTable().check(database.cursor(), evil, fencing_token=7)
    assert database.execute("SELECT thing FROM leased_guard").fetchall() == [(evil,)]


def test_an_update_has_to_mean_one_row(database: sqlite3.Connection) -> None:
    """Without `where`, or with one that meets several rows, it is refused, and can be rolled back."""
    cursor = database.cursor()
    with pytest.raises(InvalidRequest, match="needs `where`"):
        guarded_update(cursor, "report", values={"total": 1}, where={}, fencing_token=7)
    with pytest.raises(InvalidRequest, match="several rows"):
        guarded_update(cursor, "report", values={"total": 1}, where={"total": 0}, fencing_token=7)
    database.rollback()
    assert database.execute("SELECT total FROM report").fetchall() == [(0,), (0,)]
    table = sqlalchemy.table("report", sqlalchemy.column("fencing_token"))
    with pytest.raises(InvalidRequest, match="needs where"):
        guarded_update_orm(Any, table.update(), column=table.c.fencing_token, fencing_token=7)  # type: ignore[arg-type]


def test_a_cursor_of_an_unknown_driver(database: sqlite3.Connection) -> None:
    """What SQL it speaks cannot be guessed; said by the caller it works."""

    class Wrapped:
        """As frameworks have them."""

        def __init__(self) -> None:
            self._cursor = database.cursor()

        @property
        def rowcount(self) -> int:
            return self._cursor.rowcount

        def execute(self, statement: Any, values: Any = ()) -> object:
            return self._cursor.execute(statement, values)

        def fetchall(self) -> list[Any]:
            return self._cursor.fetchall()

    asked: dict[str, Any] = {"values": {"total": 1}, "where": {"day": "monday"}, "fencing_token": 7}
    with pytest.raises(InvalidRequest, match="is not known"):
        guarded_update(Wrapped(), "report", **asked)
    assert guarded_update(Wrapped(), "report", database="sqlite", **asked)
    GuardTable().check(Wrapped(), "thing", fencing_token=7, database="sqlite")


def test_a_guard_outside_of_a_transaction(tmp_path: Any, postgres_server: Server, mariadb_server: Server) -> None:
    """The check would be over before the write: every driver that can tell is believed."""
    guards = GuardTable(f"guard_{secrets.token_hex(4)}")
    postgres = places.connect(postgres_server.url)
    postgres.autocommit = True
    mariadb = places.connect(mariadb_server.url)
    mariadb.autocommit(True)
    file = sqlite3.connect(tmp_path / "file.db", isolation_level=None)
    kinds: list[tuple[Any, Database]] = [(file, "sqlite"), (postgres, "postgresql"), (mariadb, "mysql")]
    for connection, kind in kinds:
        with closing(connection):
            cursor = connection.cursor()
            cursor.execute(guards.schema(kind))
            with pytest.raises(InvalidRequest, match="in the transaction that writes"):
                guards.check(cursor, "thing", fencing_token=7)
            cursor.execute("BEGIN")
            guards.check(cursor, "thing", fencing_token=7)
            cursor.execute("ROLLBACK")
            cursor.execute(f"DROP TABLE {guards.name}")


@pytest.mark.parametrize("option", ["Profile", "role_arn", "assume_role", "Token"])
def test_options_that_the_storage_does_not_know(bucket: Any, option: str) -> None:
    """F1: who writes is the client's matter, which was made by the caller: an option that `put_object` does not have is
    refused, and nothing is written."""
    with pytest.raises(ParamValidationError, match=option):
        guarded_put(bucket, bucket="races", key="key", body=b"x", fencing_token=7, **{option: "other"})
    assert guarded_get(bucket, bucket="races", key="key") is None
    with pytest.raises(TypeError, match="Key"):
        guarded_put(bucket, bucket="races", key="key", body=b"x", fencing_token=7, Key="other")


def test_a_guarded_read_of_objects_that_others_write_meanwhile(bucket: Any) -> None:
    """F1: what it gives is what is there once the guard is raised, and the data stays; others that keep coming first
    end it."""
    asked: dict[str, Any] = {"bucket": "races", "key": "key"}
    assert guarded_read(Racing(bucket, 1), fencing_token=7, **asked)["Body"].read() == b"theirs"
    assert data_of(bucket) == b"theirs"
    guarded_put(bucket, body=b"ours", fencing_token=7, **asked)
    assert guarded_read(Unheard(bucket), fencing_token=9, **asked)["Body"].read() == b"ours"
    with pytest.raises(StaleFencingToken):
        guarded_put(bucket, body=b"late", fencing_token=8, **asked)
    assert len(bucket.list_objects_v2(Bucket="races")["Contents"]) == 2
    places.empty(bucket, "races")
    with pytest.raises(StoreUnavailable, match="10 times in between"):
        guarded_read(Racing(bucket, 100), fencing_token=7, **asked)
    assert data_of(bucket) == b"theirs"


@pytest.mark.parametrize("thing", ["", "x" * 256, None, 7])
def test_a_guarded_thing_has_a_name(database: sqlite3.Connection, thing: Any) -> None:
    """1 to 255 characters."""
    with pytest.raises(InvalidRequest, match="1 to 255 characters"):
        GuardTable().check(database.cursor(), thing, fencing_token=7)


def test_a_command_that_fails_raises_the_guard_for_nobody(valkey_server: Server) -> None:
    """An error of the server is the caller's, and the guard stays where it was; so does one that holds no token."""
    with closing(redis.Redis(valkey_server.host, valkey_server.port, db=9)) as client:
        client.flushdb()
        guard = RedisGuard(client, "guard")
        assert guard.write("SET", "text", "x", fencing_token=5)
        with pytest.raises(redis.ResponseError, match="not an integer"):
            guard.write("INCR", "text", fencing_token=9)
        assert client.get("guard") == b"5"
        assert guard.write("APPEND", "text", "y", fencing_token=5) == 2
        with pytest.raises(InvalidRequest, match="needs the command"):
            guard.write(fencing_token=9)
        client.set("guard", "nonsense")
        with pytest.raises(redis.ResponseError, match="no fencing token"):
            guard.write("SET", "text", "z", fencing_token=9)
        assert client.get("text") == b"xy"


class Racing:
    """An S3 client to which other leases are quicker, so many times: they write just before the pointer is put."""

    def __init__(self, client: Any, times: int) -> None:
        self._client = client
        self._left = times
        self.exceptions = client.exceptions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_object(self, **asked: Any) -> Any:
        """Somebody writes just before the pointer is put."""
        if self._left and asked["Key"] == "key":
            self._left -= 1
            guarded_put(self._client, bucket="races", key="key", body=b"theirs", fencing_token=3)
        return self._client.put_object(**asked)


@pytest.fixture
def bucket(moto_server: Server) -> Iterator[Any]:
    """A client, and an empty bucket called `races`."""
    with closing(places.s3_client(f"http://{moto_server.host}:{moto_server.port}")) as client:
        client.create_bucket(Bucket="races", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        yield client
        places.empty(client, "races")
        client.delete_bucket(Bucket="races")


def data_of(bucket: Any) -> Any:
    """What is there to be read."""
    return guarded_get(bucket, bucket="races", key="key")["Body"].read()


def test_objects_that_others_write_meanwhile(bucket: Any) -> None:
    """F1: a pointer is replaced on what was compared and nothing else: compared anew, and given up after a while. What
    nobody is led to is deleted."""
    asked: dict[str, Any] = {"bucket": "races", "key": "key", "fencing_token": 7}
    assert guarded_put(Racing(bucket, 1), body=b"ours", **asked)
    assert data_of(bucket) == b"ours"
    places.empty(bucket, "races")
    with pytest.raises(StoreUnavailable, match="10 times in between"):
        guarded_put(Racing(bucket, 100), body=b"never", **asked)
    assert data_of(bucket) == b"theirs"
    assert len(bucket.list_objects_v2(Bucket="races")["Contents"]) == 2


class Unheard(Racing):
    """An S3 client whose first pointer is written, and its answer lost; then `fails` is raised, or what botocore makes
    of its own second try. `meanwhile` happens in between."""

    def __init__(self, client: Any, *, fails: BaseException | None = None, meanwhile: Any = None) -> None:
        super().__init__(client, 0)
        self._fails, self._meanwhile, self._lost = fails, meanwhile, False

    def put_object(self, **asked: Any) -> Any:
        """Write, and lose the answer."""
        answer = self._client.put_object(**asked)
        if self._lost or asked["Key"] != "key":
            return answer
        self._lost = True
        if self._meanwhile is not None:
            self._meanwhile()
        if self._fails is not None:
            raise self._fails
        told: Any = {"Error": {"Code": "PreconditionFailed"}, "ResponseMetadata": {"RetryAttempts": 1}}
        raise ClientError(told, "PutObject")


@pytest.mark.parametrize("before", [None, b"before"])
def test_a_pointer_whose_answer_was_lost(bucket: Any, before: bytes | None) -> None:
    """F1: the pointer was written, and what was heard is that of a second try: it is ours, so its data stays, and the
    data before it goes."""
    if before is not None:
        guarded_put(bucket, bucket="races", key="key", body=before, fencing_token=3)
    name = guarded_put(Unheard(bucket), bucket="races", key="key", body=b"ours", fencing_token=7)
    assert data_of(bucket) == b"ours"
    assert {one["Key"] for one in bucket.list_objects_v2(Bucket="races")["Contents"]} == {"key", name}


@pytest.mark.parametrize("fails", [ConnectionError("reset"), KeyboardInterrupt()])
def test_a_pointer_of_which_nobody_knows(bucket: Any, fails: BaseException) -> None:
    """F1: nobody can tell whether the pointer was written: what it may lead to is not deleted."""
    guarded_put(bucket, bucket="races", key="key", body=b"before", fencing_token=3)
    with pytest.raises(type(fails)):
        guarded_put(Unheard(bucket, fails=fails), bucket="races", key="key", body=b"ours", fencing_token=7)
    assert data_of(bucket) == b"ours"
    assert guarded_put(bucket, bucket="races", key="key", body=b"again", fencing_token=7)
    assert data_of(bucket) == b"again"


def test_a_pointer_whose_answer_was_lost_and_that_was_replaced(bucket: Any) -> None:
    """F1: the same lease has written over it meanwhile, and deleted our data maybe: no pointer leads there again."""

    def meanwhile() -> None:
        guarded_put(bucket, bucket="races", key="key", body=b"second", fencing_token=7)

    client = Unheard(bucket, meanwhile=meanwhile)
    with pytest.raises(StoreUnavailable, match="nobody knows") as caught:
        guarded_put(client, bucket="races", key="key", body=b"first", fencing_token=7)
    assert caught.value.applied is None
    assert data_of(bucket) == b"second"


def test_the_same_bytes_of_another_lease(bucket: Any) -> None:
    """F1: a later lease has written the very bytes that an earlier one compared, so that ETags tell nothing: the late
    write is refused all the same."""

    class Late(Racing):
        def put_object(self, **asked: Any) -> Any:
            if asked["Key"] == "key":
                guarded_put(self._client, bucket="races", key="key", body=b"ready", fencing_token=9)
            return self._client.put_object(**asked)

    guarded_put(bucket, bucket="races", key="key", body=b"ready", fencing_token=3)
    with pytest.raises(StaleFencingToken):
        guarded_put(Late(bucket, 0), bucket="races", key="key", body=b"late", fencing_token=5)
    assert data_of(bucket) == b"ready"


def test_a_body_that_can_be_read_once(bucket: Any) -> None:
    """The data is sent once, whoever comes in between."""
    asked: dict[str, Any] = {"bucket": "races", "key": "key", "fencing_token": 7}
    guarded_put(Racing(bucket, 1), body=io.BytesIO(b"a stream"), ContentType="text/plain", **asked)
    found = guarded_get(bucket, bucket="races", key="key")
    assert (found["Body"].read(), found["ContentType"]) == (b"a stream", "text/plain")
    assert guarded_get(bucket, bucket="races", key="other") is None


def test_objects_that_were_not_guarded(bucket: Any) -> None:
    """What is no pointer is neither read nor overwritten."""
    asked: dict[str, Any] = {"bucket": "races", "key": "key", "body": b"ours", "fencing_token": 7}
    for strange in (b"old", b"{}", b'{"leased": 1, "data": 3}', b"[1]", b"\xff"):
        bucket.put_object(Bucket="races", Key="key", Body=strange)
        with pytest.raises(InvalidRequest, match="not written by guarded_put"):
            guarded_put(bucket, **asked)
        assert bucket.get_object(Bucket="races", Key="key")["Body"].read() == strange
    with pytest.raises(bucket.exceptions.ClientError, match="NoSuchBucket"):
        guarded_put(bucket, **{**asked, "bucket": "nowhere"})


def test_a_database_that_keeps_the_row_as_it_is(database: sqlite3.Connection) -> None:
    """A trigger may see to it that nothing is written: that is no success, and no stale token either."""
    database.execute("UPDATE report SET fencing_token = 3")
    database.execute("CREATE TRIGGER keep BEFORE UPDATE ON report BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(StoreUnavailable, match="did not write") as caught:
        guarded_update(database.cursor(), "report", values={"total": 1}, where={"day": "monday"}, fencing_token=5)
    assert caught.value.applied is False


def test_things_are_told_apart_by_their_bytes(mariadb_server: Server) -> None:
    """Names that a collation takes for the same are guarded each by itself."""
    guards = GuardTable(f"guard_{secrets.token_hex(4)}")
    with closing(places.connect(mariadb_server.url)) as connection:
        cursor = connection.cursor()
        cursor.execute(guards.schema("mysql"))
        guards.check(cursor, "Order", fencing_token=9)
        for other in ("order", "Order ", "\N{LATIN CAPITAL LETTER O WITH DIAERESIS}rder"):
            guards.check(cursor, other, fencing_token=5)
        with pytest.raises(StaleFencingToken):
            guards.check(cursor, "Order", fencing_token=5)
        connection.rollback()
        cursor.execute(f"DROP TABLE {guards.name}")


def test_an_update_that_returns_rows_is_refused_before_it_runs() -> None:
    """It would not be counted."""
    table = sqlalchemy.table("report", sqlalchemy.column("fencing_token"), sqlalchemy.column("day"))
    statement = table.update().where(table.c.day == "monday").returning(table.c.day)
    with pytest.raises(InvalidRequest, match="cannot return rows"):
        guarded_update_orm(Any, statement, column=table.c.fencing_token, fencing_token=7)  # type: ignore[arg-type]
