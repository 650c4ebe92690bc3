"""The tables of the MySQL store: who makes them, who may use them, and what is said when that fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leased.clocks import BlockingClock, step
from leased.errors import InvalidRequest, StoreNotUsable, StoreUnavailable
from leased.model import Contended, Held
from leased.stores import mysql
from leased.stores._mysql_failures import Trouble, failure
from leased.targets import Options, read_url, schema_of
from leased.testing.worlds import Driver, Face
from tests.stores.mysql.conftest import Database, Make, claim


@pytest.fixture
def account(database: Database) -> Iterator[str]:
    """An account without any right; it goes when the test ends."""
    name = f"'{database.name}'@'%'"
    database.run(f"CREATE USER {name} IDENTIFIED BY 'secret-word'")
    yield name
    database.run(f"DROP USER {name}")


def url_of(account: str, database: Database) -> str:
    """The database as this account sees it."""
    return database.url.replace("leased:open-sesame@", f"{account.split(chr(39))[1]}:secret-word@")


def schema(database: Database, **own: str) -> list[str]:
    """What `leased schema` prints, as statements."""
    text = mysql.schema(database.url, options=Options(BlockingClock(), own=own))
    return [statement for statement in text.split(";\n") if statement]


def test_printed_tables_need_no_right_to_make_them(
    database: Database, account: str, driver: Driver, make: Make
) -> None:
    """S7: an account with SELECT, INSERT, UPDATE and DELETE uses tables that somebody else has made; sweeps too."""
    for statement in schema(database):
        database.run(statement)
    for table in ("leased_record", "leased_mark"):
        database.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database.name}.{table} TO {account}")
    store = make(url_of(account, database))
    for number in range(70):
        mine = claim(f"key-{number % 3}", late=True)
        assert isinstance(driver.run(store.acquire(mine, timeout=5)), Held)
        assert driver.run(store.release(mine.key, mine.token, timeout=5))
    driver.run(store.abandon("key", "token", timeout=5))


def test_without_the_right_to_make_tables_it_is_said_how(
    database: Database, account: str, driver: Driver, make: Make
) -> None:
    """C121: missing tables are no contention, and the message names the command that prints them."""
    database.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database.name}.* TO {account}")
    store = make(url_of(account, database))
    with pytest.raises(StoreNotUsable, match="leased schema") as caught:
        driver.run(store.acquire(claim("key"), timeout=5))
    assert "secret-word" not in str(caught.value)


def test_without_rights_on_the_tables_it_is_said_which(
    database: Database, account: str, driver: Driver, make: Make
) -> None:
    """C121: an account that may only read looks, and is told what it lacks when it wants to change something."""
    for statement in schema(database):
        database.run(statement)
    database.run(f"GRANT SELECT ON {database.name}.* TO {account}")
    store = make(url_of(account, database))
    assert driver.run(store.status("key", timeout=5)).state == "free"
    with pytest.raises(StoreNotUsable, match="needs SELECT, INSERT, UPDATE and DELETE"):
        driver.run(store.acquire(claim("key"), timeout=5))


def test_without_rights_on_the_database_it_is_said(
    database: Database, account: str, driver: Driver, make: Make
) -> None:
    """C121: no right on the database at all."""
    with pytest.raises(StoreNotUsable, match="needs SELECT"):
        driver.run(make(url_of(account, database)).status("key", timeout=5))


def test_tables_that_are_dropped_are_made_again(database: Database, driver: Driver, make: Make) -> None:
    """What was in them is lost, and the store goes on."""
    store, mine = make(database.url), claim("key")
    driver.run(store.acquire(mine, timeout=5))
    database.run("DROP TABLE leased_record, leased_mark")
    assert driver.run(store.status("key", timeout=5)).state == "free"
    database.run("DROP TABLE leased_mark")
    driver.run(store.abandon("key", mine.token, timeout=5))
    assert isinstance(driver.run(store.acquire(mine, timeout=5)), Contended)


def test_many_can_begin_at_once(database: Database, face: Face, driver: Driver, make: Make) -> None:
    """Clients that find no tables at the same moment all go on, and one of them has the key."""
    stores = [make(database.url) for _ in range(8)]
    outcomes = driver.run(face.together([store.acquire(claim("key"), timeout=10) for store in stores]))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Contended"] * 7 + ["Held"]


def test_another_name_is_another_store(database: Database, driver: Driver, make: Make) -> None:
    """`leased_table` begins the names of both tables; what is claimed in one pair is free in another."""
    first, second = make(database.url, own={"table": "jobs"}), make(database.url, own={"table": "reports"})
    assert isinstance(driver.run(first.acquire(claim("key"), timeout=5)), Held)
    assert isinstance(driver.run(second.acquire(claim("key"), timeout=5)), Held)
    tables = {name for (name,) in database.run("SHOW TABLES")}
    assert tables == {"jobs_record", "jobs_mark", "reports_record", "reports_mark"}
    options = Options(BlockingClock())
    printed = schema_of(read_url(f"{database.url}?leased_table=jobs", options))
    assert printed == mysql.schema(database.url, options=Options(BlockingClock(), own={"table": "jobs"}))


@pytest.mark.parametrize("name", ["", "1st", "Jobs", "a-b", "a`b", "a" * 41, "a.b", "ä"])
def test_a_table_has_a_plain_name(name: str) -> None:
    """A name that could mean anything else is refused before anything is opened."""
    with pytest.raises(InvalidRequest, match="leased_table"):
        mysql.open("mysql://host/app", face="blocking", options=Options(BlockingClock(), own={"table": name}))


@pytest.mark.parametrize("size", ["0", "-1", "1001", "many", "4.0", "²"])
def test_a_pool_has_a_size(size: str) -> None:
    """`leased_pool` is a number of connections."""
    with pytest.raises(InvalidRequest, match="leased_pool"):
        mysql.open("mysql://host/app", face="blocking", options=Options(BlockingClock(), own={"pool": size}))


def test_tables_of_another_make_are_noticed(database: Database) -> None:
    """C121: columns that are missing or too short surface at once with their cause; nothing is cut to fit."""
    store = mysql.open(database.url, face="blocking", options=Options(BlockingClock()))
    for statement in schema(database):
        database.run(statement.replace("owner VARBINARY(1020)", "owner VARBINARY(3)"))
    with pytest.raises(StoreNotUsable, match="another version"):
        step(store.acquire(claim("key", owner="too long"), timeout=5))
    database.run("ALTER TABLE leased_record DROP COLUMN forced")
    with pytest.raises(StoreNotUsable, match="another version"):
        step(store.acquire(claim("key"), timeout=5))
    step(store.close())


def test_a_full_disk_is_no_contention() -> None:
    """C121: it surfaces as unavailable, with its cause and advice; nothing was applied."""
    found = failure(Trouble(1114, "The table 'leased_record' is full"), place="here", writing=True)
    assert (type(found), found.applied) == (StoreUnavailable, False)
    assert "free some space" in str(found)
    assert "is full" in str(found)
