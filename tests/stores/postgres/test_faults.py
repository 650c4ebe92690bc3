"""Faults between a store and its server, callers that go away, forks and loops: what is known, and what is left."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest

import leased
from leased import aio
from leased.aio_clock import LoopClock
from leased.clocks import step
from leased.errors import StoreUnavailable
from leased.model import Acquire, Held, Lost, Released
from leased.stores import postgres
from leased.targets import Options
from tests.servers.process import Server
from tests.servers.proxy import Ending, Proxy, Way
from tests.stores.postgres.conftest import Make, claim
from tests.until import until

Raw = psycopg.Connection[Any]
ENDINGS: tuple[Ending, ...] = ("close", "reset")
ProxyTo = Callable[[Server], Proxy]


@pytest.fixture
def proxy(proxy_to: ProxyTo, postgres_server: Server) -> Proxy:
    """A proxy in front of the shared server."""
    return proxy_to(postgres_server)


def open_async(url: str, table: str, **own: str) -> Any:
    """The store for callers in event loops."""
    return postgres.open(url, face="async", options=Options(clock=LoopClock(), own={"table": table, **own}))


def test_a_reply_that_is_lost(raw: Raw, make: Make, proxy: Proxy) -> None:
    """C043: the effect is unknown; asking again with the same token finds the grant, with its number."""
    store, sure, asked = make(proxy.url), make(proxy.url), claim("key")
    step(store.acquire(claim("another"), timeout=5))
    proxy.lose_reply(1)
    with pytest.raises(StoreUnavailable) as caught:
        step(store.acquire(asked, timeout=5))
    assert caught.value.applied is None
    number = step(sure.look("key", asked.token, timeout=5)).lease.fencing_token
    assert step(store.acquire(asked, timeout=5)).lease.fencing_token == number


def test_a_request_that_is_lost(raw: Raw, make: Make, proxy: Proxy) -> None:
    """A request that never arrives has an effect that is unknown here, and none there."""
    store, asked = make(proxy.url), claim("key")
    step(store.acquire(claim("another"), timeout=5))
    proxy.lose_request(1)
    with pytest.raises(StoreUnavailable) as caught:
        step(store.acquire(asked, timeout=5))
    assert caught.value.applied is None
    assert step(store.look("key", asked.token, timeout=5)) == Lost("expired")


def test_a_commit_whose_answer_is_lost(raw: Raw, make: Make, proxy: Proxy) -> None:
    """C043: a transaction is unknown from its commit on, and nothing happened before it."""
    store = make(proxy.url)
    for when, applied in ((1, False), (2, None)):
        held = claim("key", late=True)
        step(store.acquire(held, timeout=5))
        proxy.lose_reply(when)
        with pytest.raises(StoreUnavailable) as caught:
            step(store.abandon("key", held.token, timeout=5))
        assert caught.value.applied is applied
        proxy.heal()
        expected = Held if applied is False else Lost
        assert isinstance(step(store.look("key", held.token, timeout=5)), expected)
        step(store.abandon("key", held.token, timeout=5))


def test_a_batch_whose_answer_is_lost(raw: Raw, make: Make, proxy: Proxy) -> None:
    """Every member of it is unknown, each with an error of its own."""
    store = make(proxy.url)
    claims = [claim(f"key {number}") for number in range(3)]
    step(store.acquire(claim("another"), timeout=5))
    proxy.lose_reply(1)
    outcomes = step(store.many([Acquire(one) for one in claims], timeout=5))
    assert [outcome.applied for outcome in outcomes] == [None] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
    assert all(isinstance(step(store.look(one.key, one.token, timeout=5)), Held) for one in claims)


def test_a_connection_that_is_closed_while_idle(raw: Raw, make: Make, proxy: Proxy) -> None:
    """S4: it is noticed before it is used, so no call fails for it."""
    store, held = make(proxy.url), claim("key")
    step(store.acquire(held, timeout=5))
    for number, how in enumerate(ENDINGS, start=1):
        proxy.cut(how)
        proxy.wait_until(lambda traffic: traffic.open == 0)
        assert isinstance(step(store.renew("key", held.token, ttl=30.0, number=number, timeout=5)), Held)


@pytest.mark.parametrize("way", ["up", "down"])
def test_nothing_comes_through(raw: Raw, make: Make, proxy: Proxy, way: Way) -> None:
    """S4: a call ends in its time also where nothing is ever answered, and so does a connection that is begun."""
    store, held = make(proxy.url), claim("key")
    step(store.acquire(held, timeout=5))
    proxy.black_hole(way)
    for applied in (None, False):  # the second one finds no connection
        started = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            step(store.renew("key", held.token, ttl=30.0, number=1, timeout=0.4))
        assert time.monotonic() - started < 1.0
        assert caught.value.applied is applied
    proxy.heal()
    assert isinstance(step(store.renew("key", held.token, ttl=30.0, number=2, timeout=5)), Held)


def test_a_watch_survives_its_connection(raw: Raw, make: Make, proxy: Proxy) -> None:
    """When the listening connection breaks every bell rings, for something may have been missed; it listens again."""
    watcher, holder, held = make(proxy.url), make(proxy.url), claim("key")
    step(holder.acquire(held, timeout=5))
    bell = threading.Event()
    end = step(watcher.watch("key", bell.set))
    proxy.cut("reset")
    assert bell.wait(10)
    listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    until(lambda: raw.execute(listening).fetchone() == (1,), what="it listens again")
    bell.clear()
    assert step(holder.release("key", held.token, timeout=5))
    assert bell.wait(10)
    end()


def test_one_connection_listens_for_both_faces(raw: Raw, make: Make, table: str, postgres_server: Server) -> None:
    """Any number of watches of one process share one listening connection, and nobody notifies without a watch."""
    blocking = make(postgres_server.url)

    async def both() -> None:
        store = open_async(postgres_server.url, table)
        bells = [threading.Event() for _ in range(6)]
        ends = []
        for number, bell in enumerate(bells):
            watcher = blocking if number % 2 else store
            ends.append(
                step(watcher.watch(f"key {number}", bell.set))
                if number % 2
                else await watcher.watch(f"key {number}", bell.set)
            )
        listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        assert raw.execute(listening).fetchone() == (1,)
        for number in range(6):
            held = claim(f"key {number}")
            assert isinstance(await store.acquire(held, timeout=5), Held)
            assert await store.release(held.key, held.token, timeout=5)
        for bell in bells:
            assert bell.wait(10)
        for end in ends:
            end()
        await store.close()

    asyncio.run(both())


async def after_sending(proxy: Proxy, chunks: int, *, task: asyncio.Future[Any]) -> None:
    """Return once so many more chunks have gone to the server, or the task has ended."""
    least, give_up_at = proxy.traffic.chunks_up + chunks, time.monotonic() + 10
    while proxy.traffic.chunks_up < least and not task.done():
        assert time.monotonic() < give_up_at, "it neither sends nor ends"
        await asyncio.sleep(0)


def test_callers_that_are_cancelled(raw: Raw, table: str, proxy: Proxy) -> None:
    """L12: whenever a call is cancelled, its connection is not used again; the pool stays whole, the server clean."""

    async def cancel_many() -> None:
        store = open_async(proxy.url, table, pool="3")
        await store.acquire(claim("warm"), timeout=5)

        async def use(number: int) -> None:
            asked = claim(f"key {number % 7}", late=number % 3 == 0)
            await store.acquire(asked, timeout=5)
            await store.abandon(asked.key, asked.token, timeout=5)

        for number in range(200):
            task = asyncio.ensure_future(use(number))
            await after_sending(proxy, number % 11, task=task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        calls = [store.acquire(claim(f"after {number}"), timeout=5) for number in range(20)]
        assert all(isinstance(outcome, Held) for outcome in await asyncio.gather(*calls))
        await store.close()

    asyncio.run(cancel_many())
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leased' AND state <> 'idle'"
    until(lambda: raw.execute(left).fetchone() == (0,), what="the server works for nobody who has gone")


def test_nobody_holds_after_being_cancelled(raw: Raw, table: str, proxy: Proxy) -> None:
    """C001: a task that is cancelled while it asks or waits leaves nothing: the next caller has the key at once."""

    async def cancel_many() -> None:
        async with aio.connect(f"{proxy.url}?leased_table={table}") as locks:
            for number in range(60):
                holder = await locks.lock("key").try_acquire() if number % 3 == 0 else None
                waiting = asyncio.ensure_future(locks.lock("key", wait=30).acquire())
                await after_sending(proxy, number % 7, task=waiting)
                if holder is not None:
                    await holder.release()
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    await (await waiting).release()
                started = time.monotonic()
                async with locks.lock("key", wait=5):
                    assert time.monotonic() - started < 3

    asyncio.run(cancel_many())


def test_the_transaction_of_a_caller_goes_on(raw: Raw, table: str, postgres_server: Server) -> None:
    """C113: a lock has connections of its own, so a refusal or an error of it spoils no transaction of its caller."""
    with (
        psycopg.connect(postgres_server.url) as mine,
        leased.connect(f"{postgres_server.url}?leased_table={table}") as locks,
    ):
        mine.execute("CREATE TEMPORARY TABLE work (done int)")
        with locks.lock("key"):
            mine.execute("INSERT INTO work VALUES (1)")
            assert locks.lock("key").try_acquire() is None
            mine.execute("INSERT INTO work VALUES (2)")
        assert mine.execute("SELECT count(*) FROM work").fetchone() == (2,)


def test_a_pool_serves_several_loops(raw: Raw, table: str, postgres_server: Server) -> None:
    """One store may be used from one loop after another, and from several at once."""
    store = open_async(postgres_server.url, table)

    async def use(name: str) -> None:
        for _ in range(5):
            held = claim(name)
            assert isinstance(await store.acquire(held, timeout=5), Held)
            assert await store.release(held.key, held.token, timeout=5) == Released()

    asyncio.run(use("first"))
    threads = [threading.Thread(target=asyncio.run, args=(use(f"loop {number}"),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(use("last"))
    asyncio.run(store.close())


def test_a_forked_child_has_connections_of_its_own(raw: Raw, make: Make, postgres_server: Server) -> None:
    """L13: the child neither uses nor closes what it inherited; parent and child go on independently."""
    store, held = make(postgres_server.url), claim("key")
    step(store.acquire(held, timeout=5))
    end = step(store.watch("key", lambda: None))
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        status = 1
        try:
            own = claim("child")
            granted = isinstance(step(store.acquire(own, timeout=5)), Held)
            status = 0 if granted and step(store.release("child", own.token, timeout=5)) else 2
            step(store.close())
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert isinstance(step(store.renew("key", held.token, ttl=30.0, number=1, timeout=5)), Held)
    end()
    assert step(store.release("key", held.token, timeout=5))
