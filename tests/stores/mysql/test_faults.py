"""Connections and servers that end, answers that are lost, callers that go away: what the MySQL store does then."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable

import pytest

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock, step
from leased.errors import StoreUnavailable
from leased.model import Contended, Held, Lost, Released
from leased.stores import mysql
from leased.targets import Options
from leased.testing.worlds import Driver
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.stores.mysql.conftest import Database, Make, claim
from tests.until import until


@pytest.fixture
def proxy(database: Database, proxy_to: Callable[[Server], Proxy]) -> Proxy:
    """A way to the server that can be broken."""
    return proxy_to(database.server)


@pytest.fixture
def url(proxy: Proxy, database: Database) -> str:
    """The database by way of the proxy."""
    return f"{proxy.url.rpartition('/')[0]}/{database.name}"


def test_a_lost_answer_is_unknown_and_harmless(url: str, proxy: Proxy, driver: Driver, make: Make) -> None:
    """S2, O5: an acquire whose answer was lost may have happened; asked again it gives the same grant."""
    store, mine = make(url), claim("key")
    driver.run(store.status("key", timeout=5))
    proxy.lose_reply(containing=b"INSERT INTO")
    with pytest.raises(StoreUnavailable) as caught:
        driver.run(store.acquire(mine, timeout=5))
    assert caught.value.applied is None
    again = driver.run(store.acquire(mine, timeout=5))
    assert isinstance(again, Held)
    proxy.lose_reply(containing=b"UPDATE")
    with pytest.raises(StoreUnavailable) as caught:
        driver.run(store.release("key", mine.token, timeout=5))
    assert caught.value.applied is None
    assert driver.run(store.release("key", mine.token, timeout=5)) == Released("not_holder")


def test_a_lost_commit_is_unknown(url: str, proxy: Proxy, driver: Driver, make: Make) -> None:
    """S2: so is a transaction whose commit got no answer, and one that was cut before that did nothing."""
    store, mine = make(url), claim("key")
    driver.run(store.acquire(mine, timeout=5))
    proxy.lose_reply(containing=b"INSERT INTO")
    with pytest.raises(StoreUnavailable) as caught:
        driver.run(store.abandon("key", mine.token, timeout=5))
    assert caught.value.applied is False
    assert isinstance(driver.run(store.look("key", mine.token, timeout=5)), Held)
    proxy.lose_reply(containing=b"COMMIT")
    with pytest.raises(StoreUnavailable) as caught:
        driver.run(store.abandon("key", mine.token, timeout=5))
    assert caught.value.applied is None
    assert isinstance(driver.run(store.look("key", mine.token, timeout=5)), Lost)


def test_a_renewal_without_its_second_half_has_taken_place(url: str, proxy: Proxy, driver: Driver, make: Make) -> None:
    """S2: what is left of the lease is asked after the renewal was written; without that answer it is known all the
    same that it was, and the number of the next renewal counts on."""
    store, mine = make(url), claim("key", ttl=20.0)
    driver.run(store.acquire(mine, timeout=5))
    proxy.lose_request(containing=b"LEFT JOIN")
    with pytest.raises(StoreUnavailable) as caught:
        driver.run(store.renew("key", mine.token, ttl=60.0, number=1, timeout=5))
    assert caught.value.applied is True
    looked = driver.run(store.look("key", mine.token, timeout=5))
    assert isinstance(looked, Held)
    assert (looked.lease.renewal, looked.lease.ttl) == (1, 60.0)


def test_a_black_hole_does_not_swallow_the_caller(url: str, proxy: Proxy, driver: Driver, make: Make) -> None:
    """S4: a call ends in its time, on a connection that is open and on a new one."""
    store = make(url)
    driver.run(store.status("key", timeout=5))
    proxy.black_hole()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            driver.run(store.acquire(claim("key"), timeout=0.2))
    proxy.heal()
    assert driver.run(store.status("key", timeout=5)).state in ("free", "held")


def test_holding_rests_on_the_row_alone(database: Database, driver: Driver, make: Make) -> None:
    """C119: after the server has ended all connections a hold is renewed over a new one."""
    store, mine = make(database.url), claim("key")
    driver.run(store.acquire(mine, timeout=5))
    numbers = database.run(
        f"SELECT id FROM information_schema.processlist WHERE db = '{database.name}' AND id <> CONNECTION_ID()"
    )
    assert numbers
    for (number,) in numbers:
        database.run(f"KILL {number}")
    question = f"SELECT COUNT(*) FROM information_schema.processlist WHERE id IN ({numbers[0][0]})"
    until(lambda: database.run(question) == ((0,),))
    assert isinstance(driver.run(store.renew("key", mine.token, ttl=30.0, number=1, timeout=5)), Held)


def test_a_lease_survives_the_death_of_the_server(
    private_mariadb: Callable[..., Server], driver: Driver, make: Make
) -> None:
    """S4, C090: while the server is down nothing is applied; afterwards the lease stands, and keys can be had."""
    server = private_mariadb()
    store, mine = make(server.url), claim("key")
    granted = driver.run(store.acquire(mine, timeout=10))
    assert isinstance(granted, Held)
    server.kill()
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            driver.run(store.acquire(claim("other"), timeout=5))
        assert caught.value.applied is False
    server.start()
    assert isinstance(driver.run(store.look("key", mine.token, timeout=10)), Held)
    assert isinstance(driver.run(store.acquire(claim("key"), timeout=5)), Contended)
    assert driver.run(store.release("key", mine.token, timeout=5))
    after = driver.run(store.acquire(claim("key"), timeout=5))
    assert isinstance(after, Held)
    assert after.lease.fencing_token > granted.lease.fencing_token


def test_a_cancelled_call_spoils_no_connection(url: str, proxy: Proxy) -> None:
    """L12: a task that is cancelled in the middle of an exchange takes its connection with it, and no answer of it is
    ever read by another one."""

    async def scene() -> None:
        store = mysql.open(url, face="async", options=Options(LoopClock(), own={"pool": "1"}))
        await store.status("key", timeout=5)
        for round_ in range(5):
            before = proxy.traffic
            proxy.hold("down")
            mine = claim(f"key-{round_}")
            task = asyncio.ensure_future(store.acquire(mine, timeout=5))
            async with asyncio.timeout(10):
                while proxy.traffic.chunks_up == before.chunks_up:
                    await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            proxy.heal()
            await store.abandon(mine.key, mine.token, timeout=5)
            found = await store.acquire(claim(f"key-{round_}"), timeout=5)
            assert isinstance(found, Held)
            assert found.lease.key == f"key-{round_}"
        await store.close()

    asyncio.run(scene())


def test_a_call_that_is_cancelled_while_it_connects_leaves_nothing_open(url: str, proxy: Proxy) -> None:
    """L12: the connection that was being made is closed, in time and without a warning, and the next call makes one."""

    async def scene() -> None:
        store = mysql.open(url, face="async", options=Options(LoopClock(), own={"pool": "1"}))
        proxy.hold("down")
        task = asyncio.ensure_future(store.status("key", timeout=5))
        async with asyncio.timeout(10):
            while proxy.traffic.connections == 0:
                await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(StoreUnavailable, match="there is no connection"):
            await store.status("key", timeout=0.05)
        proxy.heal()
        assert (await store.status("key", timeout=5)).state == "free"
        await store.close()

    asyncio.run(scene())
    gc.collect()
    proxy.wait_until(lambda traffic: traffic.open == 0)


def test_one_store_serves_one_loop_after_another(database: Database) -> None:
    """A store may be used in loop after loop; connections of one that has ended are closed, without a warning."""
    store = mysql.open(database.url, face="async", options=Options(LoopClock()))
    for number in range(3):
        held = asyncio.run(store.acquire(claim(f"key-{number}"), timeout=5))
        assert isinstance(held, Held)
    asyncio.run(store.close())
    question = f"SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{database.name}'"
    until(lambda: database.run(question) == ((1,),))


def test_a_forked_child_has_connections_of_its_own(database: Database) -> None:
    """L13: a child neither uses nor closes those of its parent, and the parent goes on with them."""
    store = mysql.open(database.url, face="blocking", options=Options(BlockingClock()))
    mine = claim("key")
    assert isinstance(step(store.acquire(mine, timeout=5)), Held)
    ((number,),) = database.run(
        f"SELECT id FROM information_schema.processlist WHERE db = '{database.name}' AND id <> CONNECTION_ID()"
    )
    child = os.fork()
    if not child:
        code = 1
        try:
            refused = step(store.acquire(claim("key"), timeout=5))
            code = 0 if isinstance(refused, Contended) else 2
            step(store.close())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert isinstance(step(store.renew("key", mine.token, ttl=30.0, number=1, timeout=5)), Held)
    assert database.run(f"SELECT COUNT(*) FROM information_schema.processlist WHERE id = {number}") == ((1,),)
    step(store.close())
