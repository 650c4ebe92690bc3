"""Connections to MariaDB on both faces: deadlines, ends and errors of one exchange."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._mysql_failures import CUT, CUT_WHILE_SENDING, Trouble, failure
from leased.stores._mysql_place import Place, place
from leased.testing.worlds import Async, Driver, Face
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.stores.mysql.conftest import Database, Open, resolve


@pytest.fixture
def proxy(mariadb_server: Server) -> Iterator[Proxy]:
    """A proxy in front of the shared server."""
    with Proxy(mariadb_server) as found:
        yield found


def test_answers_are_integers_bytes_and_nothing(database: Database, driver: Driver, open_here: Open) -> None:
    """Both drivers give the same values for what the store keeps, in a link set as it needs it."""

    async def work() -> None:
        link = await open_here(database.place, seconds=5.0)
        answer = await link.ask("SELECT X'00ff27', NULL, 9007199254740991, @@time_zone, @@autocommit", seconds=5.0)
        assert answer.rows == ((b"\x00\xff'", None, 2**53 - 1, "+00:00", 1),)
        await link.ask("CREATE TABLE t (a BIGINT PRIMARY KEY)", seconds=5.0)
        answer = await link.ask("INSERT INTO t VALUES (LAST_INSERT_ID(9007199254740990))", seconds=5.0)
        assert (answer.changed, answer.number) == (1, 2**53 - 2)
        link.close()

    driver.run(work())


def test_an_exchange_ends_in_time(database: Database, driver: Driver, open_here: Open) -> None:
    """C119, S4: what takes longer is cut, its effect is unknown, and the connection is of no use any more."""

    async def work() -> None:
        link = await open_here(database.place, seconds=5.0)
        began = time.monotonic()
        with pytest.raises(Trouble, match=r"timed out|no answer within 0\.2 s") as caught:
            await link.ask("SELECT SLEEP(20)", seconds=0.2)
        assert time.monotonic() - began < 2.0
        assert failure(caught.value, place="here", writing=True).applied is None
        assert failure(caught.value, place="here", writing=False).applied is False
        assert not link.usable()
        link.close()

    driver.run(work())


def test_a_server_that_drips_is_cut_in_time(driver: Driver, open_here: Open) -> None:
    """S4: the time is that of the whole exchange, not of each byte, for signing in as well."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with closing(connection):
                try:
                    connection.sendall(b"\xff\x00\x00\x00")
                    while True:
                        connection.sendall(b"x")
                        time.sleep(0.02)
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            driver.run(open_here(place(f"mysql://127.0.0.1:{server.getsockname()[1]}/app"), seconds=0.2))
        assert time.monotonic() - began < 2.0
        assert caught.value.applied is False
        thread.join()


def test_a_server_that_babbles_is_no_server(driver: Driver, open_here: Open) -> None:
    """S2: what cannot be read is an unavailable store, never another kind of error."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble() -> None:
            connection, _ = server.accept()
            with closing(connection):
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4_000_000)

        def answer() -> None:
            try:
                babble()
            except OSError:
                return

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(StoreUnavailable):
            driver.run(open_here(place(f"mysql://127.0.0.1:{server.getsockname()[1]}/app"), seconds=2.0))
        thread.join()


def test_a_closed_connection_is_noticed_without_asking(database: Database, driver: Driver, open_here: Open) -> None:
    """C119: after KILL the connection is not used again."""

    async def work() -> None:
        link = await open_here(database.place, seconds=5.0)
        ((number,),) = (await link.ask("SELECT CONNECTION_ID()", seconds=5.0)).rows
        assert link.usable()
        database.run(f"KILL {number}")
        give_up_at = time.monotonic() + 5.0
        while link.usable():
            assert time.monotonic() < give_up_at
        link.close()
        link.close()

    driver.run(work())


def test_what_is_lost_before_it_is_sent_did_not_happen(database: Database, driver: Driver, open_here: Open) -> None:
    """S2: the end of a connection noticed while sending leaves nothing open; while waiting, everything."""
    assert failure(Trouble(CUT_WHILE_SENDING, "gone"), place="here", writing=True).applied is False
    assert failure(Trouble(CUT, "lost"), place="here", writing=True).applied is None


@pytest.mark.parametrize("number", [1053, 1105, 1180, 1317, 1927])
def test_what_ends_a_statement_in_its_middle_leaves_it_open(number: int) -> None:
    """S2: of a statement that was stopped from outside, or failed while it was committed, nobody knows."""
    assert failure(Trouble(number, "ended"), place="here", writing=True).applied is None
    assert failure(Trouble(number, "ended"), place="here", writing=False).applied is False


@pytest.mark.parametrize("number", [1020, 1047, 1205, 1213])
def test_what_a_cluster_or_others_refuse_was_undone(number: int) -> None:
    """C127, C123: a conflict, also one that a cluster finds at the commit, did not take place."""
    assert failure(Trouble(number, "conflict"), place="here", writing=True).applied is False


def test_a_session_outlives_its_loop_only_to_be_closed(database: Database, open_here: Open) -> None:
    """A connection whose loop has ended is closed without a word, and the server knows it is gone."""
    face: Face = Async()
    driver = face.driver()
    from leased.stores._mysql_async import open_async_link

    link = driver.run(open_async_link(database.place, seconds=5.0))
    ((number,),) = driver.run(link.ask("SELECT CONNECTION_ID()", seconds=5.0)).rows
    driver.close()
    link.close()
    link.close()
    question = f"SELECT COUNT(*) FROM information_schema.processlist WHERE id = {number}"
    give_up_at = time.monotonic() + 5.0
    while database.run(question) != ((0,),):
        assert time.monotonic() < give_up_at


@pytest.mark.parametrize(
    ("change", "error", "advice"),
    [
        ({"password": "wrong"}, StoreNotUsable, "check the user and the password"),
        ({"database": "nowhere"}, StoreNotUsable, "CREATE DATABASE"),
        ({"port": 1}, StoreUnavailable, ""),
        ({"host": "nowhere.invalid"}, StoreUnavailable, ""),
        ({"socket": "/nowhere/socket"}, StoreUnavailable, ""),
    ],
)
def test_why_there_is_no_connection_is_said(
    change: dict[str, str], error: type[Exception], advice: str, database: Database, driver: Driver, open_here: Open
) -> None:
    """C121: a wrong password will not become right, a server that is away may come back; neither shows a secret."""
    where: Place = replace(database.place, **change)  # type: ignore[arg-type]
    with pytest.raises(error) as caught:
        driver.run(open_here(where, seconds=5.0))
    assert advice in str(caught.value)
    assert where.password not in str(caught.value)
    assert isinstance(caught.value, StoreUnavailable)
    assert caught.value.applied is False


def test_a_unix_socket_leads_to_the_same_server(database: Database, driver: Driver, open_here: Open) -> None:
    """`unix_socket` is used instead of host and port."""

    async def work() -> None:
        path = database.server.place.data / "socket"
        link = await open_here(place(f"{database.url}?unix_socket={path}"), seconds=5.0)
        assert (await link.ask("SELECT 1", seconds=5.0)).rows == ((1,),)
        link.close()

    driver.run(work())


def fill(listener: socket.socket) -> list[socket.socket]:
    """Connect to it until the kernel answers nobody any more, as a host does that is away."""
    waiting: list[socket.socket] = []
    while len(waiting) < 9:
        one = socket.socket()
        waiting.append(one)
        one.settimeout(0.1)
        try:
            one.connect(listener.getsockname())
        except TimeoutError:
            return waiting
    raise AssertionError("the backlog has no end")


@pytest.mark.parametrize("away", ["silent", "refusing"])
def test_a_host_of_several_addresses_is_reached_at_any(
    away: str, database: Database, driver: Driver, open_here: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4: one address that does not answer, or refuses, takes its share of the time and leaves the others theirs."""
    resolve(monkeypatch, "several.invalid", ["127.0.0.2", "127.0.0.1"])

    async def work() -> None:
        link = await open_here(replace(database.place, host="several.invalid"), seconds=2.0)
        assert (await link.ask("SELECT 1", seconds=5.0)).rows == ((1,),)
        link.close()

    with contextlib.ExitStack() as closing_all:
        if away == "silent":
            listener = closing_all.enter_context(socket.create_server(("127.0.0.2", database.place.port), backlog=0))
            for one in fill(listener):
                closing_all.enter_context(one)
        driver.run(work())


def test_why_no_address_of_several_does_is_said(
    driver: Driver, open_here: Open, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    """S2: the last address has the last word, and a refusal by the server is not asked for again elsewhere."""
    hosts = ["127.0.0.2", "127.0.0.3"]
    resolve(monkeypatch, "several.invalid", hosts)
    where = replace(database.place, host="several.invalid")
    with pytest.raises(StoreUnavailable, match="refused|Connect call failed") as caught:
        driver.run(open_here(where, seconds=5.0))
    assert caught.value.applied is False
    hosts[0] = "127.0.0.1"
    with pytest.raises(StoreNotUsable, match="check the user and the password"):
        driver.run(open_here(replace(where, password="wrong"), seconds=5.0))


def test_too_many_connections_may_pass(driver: Driver, open_here: Open) -> None:
    """C121: a full server is unavailable, with advice, and nothing was done."""
    found = failure(Trouble(1040, "Too many connections"), place="here", writing=True)
    assert (type(found), found.applied) == (StoreUnavailable, False)
    assert "leased_pool" in str(found)


def test_a_password_is_not_said_aloud(driver: Driver, open_here: Open) -> None:
    """A server that asks for the password itself, on a connection that others may read, does not get it."""
    greeting = (
        b"\x0a5.5.5-10.11.0-MariaDB\x00" + b"\x01\x00\x00\x00" + b"12345678\x00" + b"\xff\xf7\x21\x02\x00\xff\x81\x15"
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + b"123456789012\x00mysql_native_password\x00"
    )
    question = b"\xfemysql_clear_password\x00"
    heard = b""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def ask() -> None:
            nonlocal heard
            connection, _ = server.accept()
            with closing(connection):
                connection.sendall(len(greeting).to_bytes(3, "little") + b"\x00" + greeting)
                connection.recv(65536)
                connection.sendall(len(question).to_bytes(3, "little") + b"\x02" + question)
                heard = connection.recv(65536)

        thread = threading.Thread(target=ask)
        thread.start()
        with pytest.raises(StoreNotUsable, match="in the clear"):
            driver.run(open_here(place(f"mysql://me:open-sesame@127.0.0.1:{server.getsockname()[1]}/a"), seconds=2.0))
        thread.join()
    assert b"open-sesame" not in heard


def test_a_process_that_is_stopped_in_a_transaction_keeps_nobody_out_for_long(
    database: Database, driver: Driver, open_here: Open
) -> None:
    """C119: MariaDB ends a transaction in which nothing is asked for two seconds, and with it the locks on its rows."""
    link = driver.run(open_here(database.place, seconds=5))
    answer = driver.run(link.ask("SELECT @@idle_transaction_timeout", seconds=5))
    assert answer.rows == ((2,),)
    link.close()
