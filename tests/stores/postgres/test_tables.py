"""How the tables come to be, who needs which rights, and what is told where there are none."""

import subprocess
import sys
from typing import Any

import psycopg
import pytest

from leased.clocks import BlockingClock, step
from leased.errors import InvalidRequest, StoreNotUsable, StoreUnavailable
from leased.model import Contended, Held, Lost
from leased.stores import _sql_store, postgres
from leased.targets import Options
from tests.servers.process import Server
from tests.stores.postgres.conftest import Make, claim

Raw = psycopg.Connection[Any]

FIRST_USE = """
import sys
from leased.clocks import BlockingClock, step
from leased.model import Claim, Held
from leased.stores import _sql_store, postgres
from leased.targets import Options
store = postgres.open(sys.argv[1], face="blocking", options=Options(clock=BlockingClock(), own={"table": sys.argv[2]}))
print("ready", flush=True)
sys.stdin.readline()
outcome = step(store.acquire(Claim("only", sys.argv[3], 30.0), timeout=20.0))
print(type(outcome).__name__, flush=True)
"""


@pytest.fixture
def role(raw: Raw, table: str, postgres_server: Server) -> Any:
    """Makes a role without any right of its own on this test's tables; the URL to connect as that role."""
    name = f"{table}_role"
    raw.execute(f"CREATE ROLE {name} LOGIN".encode())
    yield postgres_server.url.replace("postgres@", f"{name}@")
    raw.execute(f"DROP OWNED BY {name}".encode())
    raw.execute(f"DROP ROLE {name}".encode())


def at(server: Server, database: str) -> str:
    """The URL of another database of the server."""
    return f"{server.url.rpartition('/')[0]}/{database}"


def printed(url: str, table: str) -> bytes:
    """What `leased schema` prints for these tables."""
    return postgres.schema(url, Options(clock=BlockingClock(), own={"table": table})).encode()


def test_twenty_programs_use_the_tables_first(raw: Raw, table: str, postgres_server: Server) -> None:
    """When many processes meet a database without tables at once, one of them is granted the key and none fails."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", FIRST_USE, postgres_server.url, table, f"token {number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(20)
    ]
    answers = []
    try:
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        answers = [program.communicate(timeout=60)[0].strip() for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    assert sorted(answers) == ["Contended"] * 19 + ["Held"]


def test_the_printed_tables_are_those_it_makes(raw: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """`leased schema` prints what the store would make itself, and printing and using mix in any order."""
    step(make(postgres_server.url).acquire(claim("key"), timeout=5))
    raw.execute(printed(postgres_server.url, table))
    assert isinstance(step(make(postgres_server.url).acquire(claim("key"), timeout=5)), Contended)
    assert "IF NOT EXISTS" in printed(postgres_server.url, table).decode()


def test_four_rights_are_enough(
    raw: Raw, table: str, role: str, make: Make, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that may select, insert, update and delete in tables that exist lives through everything, sweeps too."""
    monkeypatch.setattr(_sql_store, "_SWEEP_EVERY", 7)
    raw.execute(printed(postgres_server.url, table))
    raw.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table}_record, {table}_mark TO {table}_role".encode())
    store = make(role)
    for number in range(10):
        asked = claim(f"key {number}", late=number % 2 == 0)
        held = step(store.acquire(asked, timeout=5))
        assert isinstance(held, Held)
        assert isinstance(step(store.renew(asked.key, asked.token, ttl=30.0, number=1, timeout=5)), Held)
        assert step(store.release(asked.key, asked.token, late=number % 3 == 0, timeout=5))
        step(store.abandon(asked.key, asked.token, timeout=5))
    assert step(store.list("", after="", limit=10, timeout=5)) == []


def test_no_tables_and_no_right_to_make_them(raw: Raw, table: str, role: str, make: Make) -> None:
    """C121: then the store is not usable, and the message names the command that prints what is missing."""
    raw.execute("REVOKE CREATE ON SCHEMA public FROM public")
    with pytest.raises(StoreNotUsable, match="leased schema URL") as caught:
        step(make(role).acquire(claim("key"), timeout=5))
    assert caught.value.applied is False
    assert not caught.value.retryable


@pytest.mark.parametrize("right", ["SELECT", "INSERT", "UPDATE"])
def test_a_missing_right_is_no_contention(
    raw: Raw, table: str, role: str, make: Make, postgres_server: Server, right: str
) -> None:
    """C121: without a right that is needed the first call that needs it fails with the cause, and is no contention."""
    raw.execute(printed(postgres_server.url, table))
    raw.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table}_record, {table}_mark TO {table}_role".encode())
    raw.execute(f"REVOKE {right} ON {table}_record FROM {table}_role".encode())
    store, asked = make(role), claim("key")
    call: Any = store.acquire(asked, timeout=5)
    if right == "UPDATE":  # a new key is a new row
        step(call)
        call = store.release("key", asked.token, timeout=5)
    with pytest.raises(StoreNotUsable, match="permission denied"):
        step(call)


def test_a_table_of_another_kind(raw: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """C121: a table that somebody else made under this name is refused with the next step, not read as contention."""
    raw.execute(f"CREATE TABLE {table}_record (namespace bytea, key bytea, PRIMARY KEY (namespace, key))".encode())
    with pytest.raises(StoreNotUsable, match="leased schema URL"):
        step(make(postgres_server.url).acquire(claim("key"), timeout=5))


def test_tables_that_are_dropped_are_made_again(raw: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """Whoever drops the tables ends all leases; the next call makes new ones, and holders are told."""
    store, held = make(postgres_server.url), claim("key")
    step(store.acquire(held, timeout=5))
    raw.execute(f"DROP TABLE {table}_record, {table}_mark".encode())
    assert step(store.renew(held.key, held.token, ttl=30.0, number=1, timeout=5)) == Lost("expired")
    assert isinstance(step(store.acquire(claim("key"), timeout=5)), Held)


def test_tables_in_a_schema_of_their_own(raw: Raw, table: str, make: Make, postgres_server: Server) -> None:
    """`leased_table` may name a schema, which has to exist."""
    qualified = {"table": f"{table}.locks"}
    with pytest.raises(StoreNotUsable, match="make that schema first"):
        step(make(postgres_server.url, own=qualified).acquire(claim("key"), timeout=5))
    raw.execute(f"CREATE SCHEMA {table}".encode())
    try:
        assert isinstance(step(make(postgres_server.url, own=qualified).acquire(claim("key"), timeout=5)), Held)
        assert raw.execute(f"SELECT count(*) FROM {table}.locks_record".encode()).fetchone() == (1,)
    finally:
        raw.execute(f"DROP SCHEMA {table} CASCADE".encode())


@pytest.mark.parametrize("name", ["", "Locks", "a b", 'a"b', "a.b.c", "1a", "x" * 41, "a;drop table b", "ä"])
def test_names_of_tables_are_checked(make: Make, postgres_server: Server, name: str) -> None:
    """Nothing but a plain name gets into a statement."""
    with pytest.raises(InvalidRequest, match="leased_table"):
        make(postgres_server.url, own={"table": name})


@pytest.mark.parametrize("size", ["0", "-1", "many", "1.5", ""])
def test_the_size_of_the_pool_is_checked(make: Make, postgres_server: Server, size: str) -> None:
    """A pool that could hold no connection is refused with the value."""
    with pytest.raises(InvalidRequest, match="leased_pool"):
        make(postgres_server.url, own={"pool": size})


def test_a_url_that_the_driver_refuses(make: Make) -> None:
    """A parameter that libpq does not know is refused before anything is opened; libpq's own words, which could quote
    a password, name it only where the URL has no user."""
    with pytest.raises(InvalidRequest, match="nonsense"):
        make("postgresql://127.0.0.1/db?nonsense=1")
    with pytest.raises(InvalidRequest, match="such as postgresql:") as caught:
        make("postgresql://me:secret@127.0.0.1/db?nonsense=1")
    assert "secret" not in str(caught.value)


def test_a_database_that_is_not_there(make: Make, postgres_server: Server) -> None:
    """The name of a missing database is told, and that trying again will not help."""
    with pytest.raises(StoreNotUsable, match="make that database first"):
        step(make(at(postgres_server, "nowhere")).acquire(claim("key"), timeout=5))


def test_nobody_listens_there(make: Make) -> None:
    """A server that cannot be reached is unavailable, and nothing was applied."""
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        step(make("postgresql://me:secret@127.0.0.1:1/db").acquire(claim("key"), timeout=5))
    assert caught.value.applied is False
    assert "secret" not in str(caught.value)


def test_keys_stay_apart_in_a_database_that_folds_case(
    raw: Raw, table: str, make: Make, postgres_server: Server
) -> None:
    """C149: keys are bytes, whatever encoding and collation the database has."""
    raw.execute(f"CREATE DATABASE {table} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'".encode())
    try:
        store = make(at(postgres_server, table))
        keys = ["A", "a", "a ", "é", "e\u0301", "漢", "\U0001f512"]
        for key in keys:
            assert isinstance(step(store.acquire(claim(key, owner=key), timeout=5)), Held)
        page = step(store.list("", after="", limit=10, timeout=5))
        assert [status.key for status in page] == sorted(keys, key=str.encode)
        assert [status.owner for status in page] == [status.key for status in page]
        step(store.close())
    finally:
        raw.execute(f"DROP DATABASE {table} WITH (FORCE)".encode())
