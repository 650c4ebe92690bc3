"""What the store may hold for nobody: handed back when the service ends, and when no one knows the token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from leased.aio_clock import LoopClock
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Claim, Contended, Held
from leased.server.calls import Disconnected
from leased.server.service import Service
from leased.server.settings import Settings
from leased.stores.memory import MemoryStore
from tests.server.running import Running, running
from tests.server.talking import Caller, ask, until

LONG = 60_000


class Watched:
    """A memory store: answers to acquires can be lost or kept back, abandons take a while, and closed it is no use.

    The next acquire after `go` was set to an event waits for that before it reaches the store.
    """

    def __init__(self) -> None:
        self.inner = MemoryStore(LoopClock())
        self.lost = 0
        self.slow = False
        self.granting = self.closed = self.on_its_way = False
        self.go: asyncio.Event | None = None

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        go, self.go = self.go, None
        if go is not None:
            self.on_its_way = True
            await go.wait()
        outcome = await self.inner.acquire(claim, timeout=timeout)
        if self.slow and isinstance(outcome, Held):
            self.granting = True
            await asyncio.sleep(0.3)
        if self.lost:
            self.lost -= 1
            raise StoreUnavailable("lost", applied=None)
        return outcome

    async def many(self, operations: Any, *, timeout: float) -> Any:
        go, self.go = self.go, None
        if go is not None:
            self.on_its_way = True
            await go.wait()
        outcomes = list(await self.inner.many(operations, timeout=timeout))
        while self.lost:
            self.lost -= 1
            outcomes[self.lost] = StoreUnavailable("lost", applied=None)
        return outcomes

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        if self.slow:
            await asyncio.sleep(0.1)
        if self.closed:
            raise StoreNotUsable("the store was closed")
        await self.inner.abandon(key, token, heard=heard, timeout=timeout)

    async def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def state(self, key: str = "k") -> str:
        return asyncio.run(self.inner.status(key, timeout=1.0)).state


def acquire(service: Running, **more: Any) -> Any:
    return ask(service.port, "/v1/locks/acquire", {"key": "k", "ttlMs": LONG, **more}).json


def is_free(service: Running, key: str = "k") -> bool:
    return bool(ask(service.port, f"/v1/locks/status?key={key}").json["state"] == "free")


@pytest.mark.parametrize("in_line", [False, True])
def test_what_was_granted_to_one_who_has_gone_is_handed_back_before_the_store_is_closed(in_line: bool) -> None:
    """V3, V4: the client vanishes while its grant is on its way and the service ends: nothing is left held."""
    store = Watched()
    with running(cast("Any", store)) as service:
        token = acquire(service)["token"] if in_line else ""
        store.slow = True
        caller = Caller(service.port, "/v1/locks/acquire", {"key": "k", "ttlMs": LONG, "waitMs": LONG})
        if in_line:
            until(lambda: service.call(lambda: len(service.service.waiting)) == 1, what="the wait")
            ask(service.port, "/v1/locks/release", {"key": "k", "token": token})
        until(lambda: store.granting, what="the grant")
        caller.close()
        until(lambda: len(service.server.server_state.connections) == 0, what="the disconnect")
        service.stop()
    assert store.closed
    assert store.state() == "free"


async def passes(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0)


async def replace_a_wait_and_end(store: Watched) -> None:
    """A wait is replaced while the store is asked for it, both clients go, the service ends, and then it is granted."""
    gone, first = asyncio.Event(), Claim("k", "f" * 32, 60.0, late=True)
    service = Service(Settings(store="memory:replaced"), store=cast("Any", store))

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def wait(claim: Claim) -> None:
        with suppress(Disconnected):
            await service.waiting.acquire(claim, wait=60.0, who="", receive=receive)

    await store.acquire(Claim("k", "h" * 32, 60.0, late=True), timeout=1.0)
    waits = [asyncio.create_task(wait(first))]
    await passes(lambda: len(service.waiting) == 1)
    store.go = go = asyncio.Event()
    service.env.lines.released("k")
    await passes(lambda: store.on_its_way)
    waits.append(asyncio.create_task(wait(replace(first, ttl=30.0))))
    await passes(lambda: service.waiting._waits["k", first.token].claim.ttl == 30.0)
    await store.release("k", "h" * 32, timeout=1.0)
    gone.set()
    await asyncio.gather(*waits)
    closing = asyncio.create_task(service.close())
    await passes(lambda: not len(service.waiting))
    go.set()
    await closing


def test_what_was_asked_for_a_wait_that_another_has_replaced_is_handed_back_too() -> None:
    """V3, V4: a claim comes again with the same token and other terms while the store is asked for the first one, both
    clients vanish and the service ends: what the first one is granted yet is handed back before the store is closed."""
    store = Watched()
    asyncio.run(replace_a_wait_and_end(store))
    assert store.closed
    assert store.state() == "free"


@pytest.mark.parametrize("more", [{}, {"waitMs": 1}])
def test_a_token_that_nobody_was_told_holds_nothing(more: dict[str, int]) -> None:
    """O6: the service made the token, and the store's answer was lost: what it may hold is handed back at once."""
    store = Watched()
    with running(cast("Any", store)) as service:
        store.lost = 1_000
        refused = acquire(service, **more)
        assert (refused["code"], refused["applied"]) == ("LOCK_STORE_UNAVAILABLE", None)
        until(lambda: is_free(service), what="a free key")


def test_in_a_batch_a_token_that_nobody_was_told_holds_nothing() -> None:
    """O6: the same in a batch; who brought a token can come back with it, and keeps what it holds."""
    store = Watched()
    with running(cast("Any", store)) as service:
        store.lost = 2
        members = [
            {"operation": "acquire", "key": "made", "ttlMs": LONG},
            {"operation": "acquire", "key": "brought", "ttlMs": LONG, "token": "b" * 32},
        ]
        found = ask(service.port, "/v1/locks/batch", {"operations": members}).json["outcomes"]
        assert [one["applied"] for one in found] == [None, None]
        until(lambda: is_free(service, "made"), what="a free key")
        assert not is_free(service, "brought")


def test_in_a_batch_a_grant_to_one_who_has_gone_was_never_told() -> None:
    """A5: it is handed back, and neither events nor history nor the count of what is held know of it; what else was in
    the batch is done and told."""
    store = Watched()
    with running(cast("Any", store)) as service:
        token = acquire(service, key="other")["token"]
        store.go = go = asyncio.Event()
        members = [
            {"operation": "acquire", "key": "k", "ttlMs": LONG},
            {"operation": "release", "key": "other", "token": token},
        ]
        caller = Caller(service.port, "/v1/locks/batch", {"operations": members})
        until(lambda: store.on_its_way, what="the batch")
        caller.close()
        until(lambda: len(service.server.server_state.connections) == 0, what="the disconnect")
        service.call(go.set)
        until(lambda: is_free(service, "other"), what="the release")
        until(lambda: is_free(service), what="a free key")
        history = [ask(service.port, f"/v1/locks/history?key={key}").json["holds"] for key in ("k", "other")]
        assert [[one["end"] for one in holds] for holds in history] == [[], ["released"]]
        assert not service.call(lambda: service.service.journal._held)


def test_a_lease_of_a_store_that_waited_itself_is_told_as_long_as_it_is() -> None:
    """M5: over another service, which waits on its side, the time before the grant is not taken from the lease."""
    with running() as inner, running(inner.url) as outer:
        token = acquire(inner)["token"]
        caller = Caller(outer.port, "/v1/locks/acquire", {"key": "k", "ttlMs": 5_000, "waitMs": LONG})
        until(lambda: inner.call(lambda: len(inner.service.waiting)) == 1, what="the wait")
        began = outer.service.clock.now()
        until(lambda: outer.service.clock.now() > began + 1.0, what="a second")
        ask(inner.port, "/v1/locks/release", {"key": "k", "token": token})
        granted = caller.answer().json
        assert granted["acquired"] is True
        assert 4_500 < granted["leftMs"] <= 5_000
