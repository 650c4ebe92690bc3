"""A network that breaks between the store and its service, callers that are cut off, and processes that fork."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leased.aio_clock import LoopClock
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Acquire, Claim, Contended, Held
from leased.stores._http_link import MOST_WAITS
from leased.stores.http import open as open_http
from leased.targets import Options
from tests.server.running import Running, running
from tests.servers.proxy import Proxy
from tests.stores.http.conftest import TIMEOUT, TOKEN, Caller

SOON = 0.3
LATE = 1.5
"""Seconds: a call that may take `SOON` is back long before this, even on a busy machine."""


class Place:
    """Where a service listens, for a proxy."""

    def __init__(self, service: Running) -> None:
        self.host, self.port, self.url = "127.0.0.1", service.port, service.url


@pytest.fixture
def proxy(service: Running, proxy_to: Callable[[Any], Proxy]) -> Proxy:
    """What breaks, before the service."""
    return proxy_to(Place(service))


def test_a_black_hole_ends_a_wait_with_its_time(caller: Caller, proxy: Proxy) -> None:
    """W2: a claim that waits at the service is back when its wait is over, not a time-out later."""
    store = caller.open(proxy.url)
    caller.take(store, "key")
    claim = Claim("key", "another-token-16", 30.0, wait=1.0)
    waited = caller(store.acquire(claim, timeout=TIMEOUT))
    assert isinstance(waited, Contended)
    assert waited.waited >= 0.5
    proxy.black_hole()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no answer"):
        caller(store.acquire(claim, timeout=1.0))
    assert time.monotonic() - began < 1.0 + LATE


@pytest.mark.parametrize("ending", ["reset", "close"])
def test_a_connection_that_ended_while_idle_is_replaced_without_a_word(
    caller: Caller, proxy: Proxy, ending: Any
) -> None:
    """C119: nothing is sent on a connection that the other side has closed: no call fails for that."""
    store = caller.open(proxy.url)
    number = caller.take(store, "key")
    for _ in range(5):
        assert proxy.cut(ending) >= 1
        found = caller(store.renew("key", TOKEN, ttl=30.0, number=1, timeout=TIMEOUT))
        assert isinstance(found, Held)
        assert found.lease.fencing_token == number


def test_a_batch_that_is_cut_leaves_each_member_unknown(caller: Caller, proxy: Proxy) -> None:
    """A batch without an answer can be asked for again as it was; each member finds its own grant."""
    store = caller.open(proxy.url)
    caller(store.status("key", timeout=TIMEOUT))
    operations = [Acquire(Claim(f"key{number}", TOKEN, 30.0)) for number in range(20)]
    proxy.lose_reply()
    with pytest.raises(StoreUnavailable) as caught:
        caller(store.many(operations, timeout=TIMEOUT))
    assert caught.value.applied is None
    assert all(isinstance(outcome, Held) for outcome in caller(store.many(operations, timeout=TIMEOUT)))


def test_a_closed_store_refuses(caller: Caller, service: Running) -> None:
    """L11: calls and watches of a closed store are refused at once."""
    store = caller.open(service.url)
    caller.take(store, "key")
    caller(store.close())
    for refused in (store.status("key", timeout=TIMEOUT), store.watch("key", lambda: None)):
        with pytest.raises(StoreNotUsable, match="closed"):
            caller(refused)


def test_waiting_claims_keep_no_call_waiting(service: Running) -> None:
    """S4: many wait for keys of others, at the service or not, with a pool of one; a renewal goes through at once."""

    async def scene() -> None:
        store = open_http(service.url, face="async", options=Options(LoopClock(), own={"pool": "1"}))
        keys = [f"key{number}" for number in range(2 * MOST_WAITS)]
        for key in keys:
            await store.acquire(Claim(key, TOKEN, 60.0), timeout=TIMEOUT)
        claims = [Claim(key, "another-token-16", 30.0, wait=60.0) for key in keys]
        waiting = [asyncio.ensure_future(store.acquire(claim, timeout=TIMEOUT)) for claim in claims]
        await _until(lambda: len(service.service.waiting) == MOST_WAITS)
        await _until(lambda: sum(call.done() for call in waiting) == MOST_WAITS)
        assert all(isinstance(call.result(), Contended) for call in waiting if call.done())
        assert isinstance(await store.renew(keys[0], TOKEN, ttl=60.0, number=1, timeout=SOON * 5), Held)
        for key, call in zip(keys, waiting, strict=True):
            if not call.done():
                assert await store.release(key, TOKEN, timeout=TIMEOUT)
                assert isinstance(await call, Held)
        again = Claim(keys[-1], "another-token-16", 30.0, wait=0.1)  # the places are there again
        answered = await store.acquire(again, timeout=TIMEOUT)
        assert isinstance(answered, Contended)
        assert answered.waited > 0
        await store.close()

    asyncio.run(scene())


def test_a_cancelled_wait_leaves_the_line(service: Running) -> None:
    """V3: who stops waiting is gone from the line of the service, and is granted nothing that comes later."""

    async def scene() -> None:
        store = open_http(service.url, face="async", options=Options(LoopClock()))
        await store.acquire(Claim("key", TOKEN, 60.0), timeout=TIMEOUT)
        waiting = asyncio.ensure_future(
            store.acquire(Claim("key", "another-token-16", 30.0, wait=60.0), timeout=TIMEOUT)
        )
        await _until(lambda: len(service.service.waiting) == 1)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert await store.release("key", TOKEN, timeout=TIMEOUT)
        give_up_at = time.monotonic() + 10.0
        while (await store.status("key", timeout=TIMEOUT)).held:
            assert time.monotonic() < give_up_at
        await store.close()

    asyncio.run(scene())


async def _until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < give_up_at
        await asyncio.sleep(0.002)


def test_a_service_that_was_away_is_asked_again_what_it_gives(caller: Caller, tmp_path: Path) -> None:
    """S10: after a restart on the same port, over another store, the assurance is that of the new one."""
    from leased.clocks import BlockingClock
    from leased.stores._threaded import ThreadedStore
    from leased.stores.memory import MemoryStore
    from leased.stores.sqlite import SqliteStore

    with running(MemoryStore(BlockingClock())) as first:
        store = caller.open(first.url)
        assert not store.assurance().known
        caller.take(store, "key")
        assert store.assurance().exclusive == "process"
    with pytest.raises(StoreUnavailable):
        caller(store.status("key", timeout=SOON))
    with running(ThreadedStore(SqliteStore(str(tmp_path / "locks.db"))), port=first.port):
        caller(store.status("key", timeout=TIMEOUT))
        assert store.assurance().exclusive == "host"
