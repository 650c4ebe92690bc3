"""A caller's own transaction beside locks in the same database: neither decides about the other."""

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import leased
from tests.servers import mariadb
from tests.servers.process import Server


@pytest.fixture(params=["postgres", "mariadb"])
def kind(request: pytest.FixtureRequest) -> str:
    """The servers that keep callers' data as well."""
    return str(request.param)


@pytest.fixture
def table(kind: str, server: Server) -> Iterator[str]:
    """A table of the caller's, with what has been done."""
    name = f"done_{secrets.token_hex(6)}"
    connection: Any = (
        psycopg.connect(server.url, autocommit=True) if kind == "postgres" else mariadb.connection_to(server.place)
    )
    _run(connection, f"CREATE TABLE {name} (what VARCHAR(100))")
    yield name
    _run(connection, f"DROP TABLE {name}")
    connection.close()


@pytest.fixture
def own(kind: str, server: Server, table: str) -> Iterator[Callable[[], Any]]:
    """Opens connections of the caller's own, each in transactions that show one state until they end."""
    opened: list[Any] = []

    def connect() -> Any:
        connection: Any
        if kind == "postgres":
            connection = psycopg.connect(server.url)
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        else:
            connection = mariadb.connection_to(server.place)
            connection.autocommit(False)
        opened.append(connection)
        return connection

    yield connect
    for connection in opened:
        connection.close()


def _run(connection: Any, statement: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if statement.startswith("SELECT") else []


def test_a_refused_lock_leaves_the_callers_transaction_alone(
    server: Server, own: Callable[[], Any], table: str
) -> None:
    """C113, S7: in the middle of a transaction, trying for a key that is held, lapsed or free changes nothing of it: it
    goes on, and its rollback undoes the caller's data and no lock."""
    url = f"{server.url}?leased_namespace={secrets.token_hex(8)}"
    with leased.connect(url) as locks, leased.connect(url) as others:
        mine = own()
        _run(mine, f"INSERT INTO {table} VALUES ('first')")
        held = locks.lock("held", ttl=60).acquire()
        assert others.lock("held").try_acquire() is None
        assert locks.lock("held").try_acquire() is None
        lapsed = locks.lock("lapsed", ttl=0.2).acquire()
        again = locks.lock("lapsed", wait=20).acquire()
        _run(mine, f"INSERT INTO {table} VALUES ('second')")
        assert len(_run(mine, f"SELECT what FROM {table}")) == 2
        mine.rollback()
        assert _run(own(), f"SELECT what FROM {table}") == []
        assert held.renew()
        assert again.renew()
        assert not lapsed.release()
        assert held.release()
        assert again.release()


def test_what_was_done_while_waiting_is_seen_by_a_look_after_the_grant(
    server: Server, own: Callable[[], Any], table: str
) -> None:
    """C124: as the manual says: a transaction from before the wait shows the old state, a new one after the grant shows
    what the other has done, so the work is done once."""
    outcomes: list[str] = []

    def once(begin: threading.Barrier) -> None:
        mine = own()
        with leased.connect(locks_url) as locks:
            assert _run(mine, f"SELECT what FROM {table}") == []
            begin.wait()
            with locks.lock("work", wait=30):
                stale = _run(mine, f"SELECT what FROM {table}") == []
                mine.rollback()  # what is read from now on is what holds now
                if _run(mine, f"SELECT what FROM {table}"):
                    outcomes.append("done before" if stale else "seen before the look that counts")
                    mine.rollback()
                    return
                _run(mine, f"INSERT INTO {table} VALUES ('work')")
                mine.commit()
                outcomes.append("did it")

    locks_url = f"{server.url}?leased_namespace={secrets.token_hex(8)}"
    begin = threading.Barrier(3)
    threads = [threading.Thread(target=once, args=(begin,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["did it", "done before", "done before"]
    assert len(_run(own(), f"SELECT what FROM {table}")) == 1


def test_twenty_who_want_one_key_when_it_opens(server: Server) -> None:
    """C137, C123: of 20 who ask at once one wins and the others wait on; no driver's error comes out."""
    url = f"{server.url}?leased_namespace={secrets.token_hex(8)}"
    begin = threading.Barrier(20)
    inside: list[int] = []
    most: list[int] = []
    errors: list[BaseException] = []

    def want(number: int) -> None:
        try:
            with leased.connect(url) as locks:
                begin.wait()
                with locks.lock("k", wait=60):
                    inside.append(number)
                    most.append(len(inside))
                    inside.remove(number)
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=want, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert errors == []
    assert most == [1] * 20
