"""Servers of all kinds of settings: what the MySQL store says of them, and that it works the same on each."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from pymysql.constants import CLIENT

from leased.clocks import BlockingClock, step
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Held
from leased.stores import mysql
from leased.stores._mysql_standing import standing
from leased.targets import Options
from leased.testing.contract import CHECKS
from leased.testing.runner import run_check
from leased.testing.worlds import Blocking, Driver, joined
from tests.contract.mysql_places import Admin
from tests.contract.mysql_places import mysql as mysql_place
from tests.servers import certificates, mariadb
from tests.servers.process import Server
from tests.stores.mysql.conftest import Make, claim, resolve

ALONE = {"version": "11.8", "innodb_flush_log_at_trx_commit": "1", "log_bin": "OFF", "wsrep_on": "OFF"}


@pytest.mark.parametrize(
    ("settings", "exclusive", "early_loss", "note"),
    [
        ({}, "primary", False, "11.8"),
        ({"innodb_flush_log_at_trx_commit": "2"}, "volatile", True, "innodb_flush_log_at_trx_commit to 1"),
        ({"log_bin": "ON", "sync_binlog": "1", "slaves_connected": "0"}, "primary", False, "11.8"),
        ({"log_bin": "ON", "sync_binlog": "0", "slaves_connected": "0"}, "volatile", True, "and sync_binlog to 1"),
        ({"log_bin": "ON", "sync_binlog": "1", "slaves_connected": "2"}, "until-failover", True, "2 replicas"),
        ({"log_bin": "ON", "sync_binlog": "1"}, "until-failover", True, "cannot be seen"),
        ({"wsrep_on": "ON", "wsrep_cluster_size": "3"}, "until-failover", True, "3 nodes"),
        ({"group_replication_group_name": "a-b-c"}, "until-failover", True, "at one node"),
        ({"read_only": "ON"}, "until-failover", True, "read-only"),
        ({"read_only": "NO_LOCK_NO_ADMIN"}, "until-failover", True, "read-only"),
        ({"innodb_read_only": "ON"}, "until-failover", True, "read-only"),
        ({"read_only": "OFF", "innodb_read_only": "OFF"}, "primary", False, "11.8"),
    ],
)
def test_what_a_server_gives(settings: dict[str, str], exclusive: str, early_loss: bool, note: str) -> None:
    """S10, C127: the words follow from what the server says; what cannot be seen counts as the weaker case."""
    found = standing({**ALONE, **settings}, verified=None)
    assert (found.exclusive, found.early_loss) == (exclusive, early_loss)
    assert any(note in line for line in found.notes)


def test_nothing_known_is_nothing_promised() -> None:
    """S10: a server that tells none of it is taken for the worst."""
    assert standing({}, verified=True).exclusive == "volatile"
    assert "prove who it is" in " ".join(standing(ALONE, verified=False).notes)


def test_the_assurance_is_read_at_connect(mariadb_server: Server, driver: Driver, make: Make) -> None:
    """S10: unknown before, then as the server is set up: this one does not write each commit to disk."""
    store = make(mariadb_server.url)
    assert not store.assurance().known
    driver.run(store.status("key", timeout=5))
    assert store.assurance().exclusive == "volatile"
    demanding = make(mariadb_server.url, require="primary")
    with pytest.raises(StoreNotUsable, match="'primary' is required"):
        driver.run(demanding.acquire(claim("key"), timeout=5))


@pytest.fixture(scope="module")
def odd_server() -> Iterator[Server]:
    """A MariaDB that is durable, keeps a log for replicas, and is set up as unlike our sessions as can be."""
    settings = {
        **mariadb.DURABLE,
        "log-bin": "log",
        "sync-binlog": "1",
        "sql-mode": "ANSI,NO_BACKSLASH_ESCAPES,SIMULTANEOUS_ASSIGNMENT,PAD_CHAR_TO_FULL_LENGTH",
        "character-set-server": "latin1",
        "collation-server": "latin1_swedish_ci",
        "default-time-zone": "-03:30",
        "autocommit": "0",
        "transaction-isolation": "SERIALIZABLE",
        "innodb-rollback-on-timeout": "1",
        "lower-case-table-names": "1",
        "sql-safe-updates": "1",
        "innodb-snapshot-isolation": "1",
    }
    with mariadb.start(settings=settings) as server:
        yield server


@pytest.mark.parametrize("check", CHECKS[::6], ids=lambda check: check.__name__.removeprefix("check_"))
def test_settings_of_the_server_do_not_matter(check: Callable[..., object], odd_server: Server) -> None:
    """S3, C068: keys are compared byte for byte and times are instants whatever mode, collation, zone and isolation
    the server gives to new sessions."""
    result = run_check(check, mysql_place(Blocking(), lambda: odd_server.url))  # type: ignore[arg-type]
    if result.error:
        raise result.error
    assert result.outcome == "passed", result.message


@pytest.mark.parametrize("joining", [False, True], ids=["plain", "joined"])
@pytest.mark.parametrize("check", CHECKS[::4], ids=lambda check: check.__name__.removeprefix("check_"))
def test_counts_of_found_rows_do_not_matter(
    check: Callable[..., object], joining: bool, mariadb_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some proxies make the server count rows that were found, not those that were changed: that grants nothing."""
    monkeypatch.setattr(CLIENT, "CAPABILITIES", CLIENT.CAPABILITIES | CLIENT.FOUND_ROWS)
    place = mysql_place(Blocking(), lambda: mariadb_server.url)
    result = run_check(check, joined(place) if joining else place)  # type: ignore[arg-type]
    if result.error:
        raise result.error
    assert result.outcome == "passed", result.message


def test_a_log_for_replicas_that_nobody_reads(odd_server: Server) -> None:
    """S10: durable, with a log that is written at once and no replica: a primary."""
    store = mysql.open(odd_server.url, face="blocking", options=Options(BlockingClock(), require="primary"))
    assert isinstance(step(store.acquire(claim("key"), timeout=5)), Held)
    assert store.assurance().exclusive == "primary"
    step(store.close())


def test_a_server_that_became_read_only(odd_server: Server, driver: Driver, make: Make) -> None:
    """C121: it grants nothing, says so at once, and is asked again on a new connection, which may lead elsewhere."""
    with closing(Admin(odd_server.url)) as admin:
        admin.run("CREATE USER IF NOT EXISTS plain IDENTIFIED BY 'word'")
        admin.run("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON leased.* TO plain")
        store = make(odd_server.url.replace("leased:open-sesame@", "plain:word@"))
        assert isinstance(driver.run(store.acquire(claim(f"before-{secrets.token_hex(6)}"), timeout=5)), Held)
        admin.run("SET GLOBAL read_only = 1")
        try:
            with pytest.raises(StoreUnavailable, match="read-only") as caught:
                driver.run(store.acquire(claim("key"), timeout=5))
            assert caught.value.applied is False
            assert caught.value.retryable
        finally:
            admin.run("SET GLOBAL read_only = 0")
        driver.run(store.abandon("any", "token", timeout=5))
        assert isinstance(driver.run(store.acquire(claim(f"key-{secrets.token_hex(6)}"), timeout=5)), Held)


def test_a_read_only_server_grants_nothing_to_anybody(odd_server: Server, driver: Driver, make: Make) -> None:
    """S4, C121: an account that may write there all the same, such as one with READ_ONLY ADMIN, would get a second
    holder after a fail-over that left the old primary read-only: it gets no connection, to grant or to free."""
    with closing(Admin(odd_server.url)) as admin:
        admin.run("SET GLOBAL read_only = 1")
        try:
            admin.run("CREATE TABLE IF NOT EXISTS beside (a INT)")  # this account is not held up by it
            store = make(odd_server.url)
            for call in (store.acquire(claim("key"), timeout=5), store.release("key", "token", timeout=5)):
                with pytest.raises(StoreUnavailable, match="connect to the primary") as caught:
                    driver.run(call)
                assert caught.value.applied is False
                assert caught.value.retryable
            assert store.assurance().exclusive == "until-failover"
        finally:
            admin.run("SET GLOBAL read_only = 0")
        assert isinstance(driver.run(store.acquire(claim(f"key-{secrets.token_hex(6)}"), timeout=5)), Held)


def test_a_server_without_the_time_is_refused(private_mariadb: Callable[..., Server]) -> None:
    """M7: with `sysdate-is-now` no statement can tell the time after a wait, so nothing is granted there."""
    server = private_mariadb(settings={"sysdate-is-now": "1"})
    store = mysql.open(server.url, face="blocking", options=Options(BlockingClock()))
    with pytest.raises(StoreNotUsable, match="sysdate-is-now"):
        step(store.acquire(claim("key"), timeout=5))
    step(store.close())


@pytest.fixture(scope="module")
def tls_server() -> Iterator[Server]:
    """A MariaDB that refuses connections without TLS."""
    with mariadb.start(tls=True) as server:
        yield server


def test_tls_with_a_known_authority(tls_server: Server, driver: Driver, make: Make) -> None:
    """The server proves who it is, and everything works as without."""
    store = make(f"{tls_server.url}?ssl_ca={certificates.authority_file(tls_server.place)}")
    mine = claim(f"key-{secrets.token_hex(6)}")
    assert isinstance(driver.run(store.acquire(mine, timeout=5)), Held)
    assert driver.run(store.release(mine.key, mine.token, timeout=5))
    with pytest.raises(StoreUnavailable):
        driver.run(store.acquire(claim("key"), timeout=0.000001))


def test_the_name_is_proven_at_whatever_address(
    tls_server: Server, driver: Driver, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of several addresses has to prove the name in the URL, not the address that was tried."""
    authority = certificates.authority_file(tls_server.place)
    for name in ("localhost", "several.invalid"):
        resolve(monkeypatch, name, ["127.0.0.2", "127.0.0.1"])
    store = make(f"{tls_server.url.replace('127.0.0.1', 'localhost')}?ssl_ca={authority}")
    assert driver.run(store.status("key", timeout=5)).state == "free"
    store = make(f"{tls_server.url.replace('127.0.0.1', 'several.invalid')}?ssl_ca={authority}")
    with pytest.raises(StoreNotUsable, match="certificate"):
        driver.run(store.status("key", timeout=5))


def test_tls_with_an_unknown_authority(tls_server: Server, driver: Driver, make: Make) -> None:
    """A server that cannot prove who it is is refused, unless that is asked for in so many words, and then noted."""
    with pytest.raises(StoreNotUsable, match="certificate"):
        driver.run(make(f"{tls_server.url}?ssl=true").status("key", timeout=5))
    trusting = make(f"{tls_server.url}?ssl_verify=false")
    driver.run(trusting.status("key", timeout=5))
    assert any("prove who it is" in note for note in trusting.assurance().notes)


def test_a_server_that_insists_on_tls(tls_server: Server, driver: Driver, make: Make) -> None:
    """Without TLS the message says what to add to the URL."""
    with pytest.raises(StoreNotUsable, match="ssl=true"):
        driver.run(make(tls_server.url).status("key", timeout=5))


def test_a_server_without_tls(mariadb_server: Server, driver: Driver, make: Make) -> None:
    """TLS that was asked for is never given up."""
    with pytest.raises(StoreUnavailable):
        driver.run(make(f"{mariadb_server.url}?ssl=true").status("key", timeout=5))
