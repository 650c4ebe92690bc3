"""Ways that break between a store and its server, callers that are cut off, and forks: the same for every store that
asks one question at a time. What only one of them does is tested beside it."""

import asyncio
import os
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from leased.aio_clock import LoopClock
from leased.errors import LeasedError, StoreUnavailable
from leased.model import Claim, Held, Look, Lost, Released
from leased.stores.etcd import open as open_etcd
from leased.stores.nats import open as open_nats
from leased.stores.redis import open as open_redis
from leased.targets import Options
from leased.testing.worlds import Async, Blocking
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.stores.callers import TIMEOUT, Caller, calling
from tests.stores.dynamodb.conftest import open_read as open_dynamodb
from tests.stores.http.conftest import open_read as open_http

SOON = 0.3
LATE = 1.5
"""Seconds: a call that may take `SOON` is back long before this, even on a busy machine."""
TOKEN = "0123456789abcdef"
OTHER = "another-token-16"


@pytest.fixture(autouse=True)
def fresh_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of this test alone: a store may remember one that ended, whatever the key."""
    for name in ("TOKEN", "OTHER"):
        monkeypatch.setattr(sys.modules[__name__], name, secrets.token_hex(8))


@dataclass(frozen=True)
class Way:
    """A server that others use too, what breaks before it, and how its store is opened in a namespace of this test."""

    server: Server
    proxy: Proxy
    open_store: Callable[..., Any]
    namespace: str

    def store(self, caller: Caller[Any]) -> Any:
        """A store at the other end of what breaks."""
        return caller.open(self.proxy.url, namespace=self.namespace)

    def in_loop(self) -> Any:
        """The same for whoever runs loops himself."""
        return self.open_store(self.proxy.url, face="async", options=Options(LoopClock(), namespace=self.namespace))


OPENED: dict[str, Callable[..., Any]] = {
    "valkey": open_redis,
    "service": open_http,
    "dynalite": open_dynamodb,
    "etcd": open_etcd,
    "nats": open_nats,
}


@pytest.fixture(params=OPENED)
def way(request: pytest.FixtureRequest, proxy_to: Callable[[Server], Proxy]) -> Way:
    """A way to each of them."""
    server = request.getfixturevalue(f"{request.param}_server")
    return Way(server, proxy_to(server), OPENED[request.param], secrets.token_hex(8))


@pytest.fixture(params=[Blocking(), Async()], ids=lambda face: face.name)
def caller(request: pytest.FixtureRequest, way: Way) -> Iterator[Caller[Any]]:
    """A caller of either kind."""
    with calling(request.param, open_store=way.open_store, token=TOKEN) as made:
        yield made


def test_a_lost_answer_is_nobody_knows(caller: Caller[Any], way: Way) -> None:
    """C043: the acquire worked and its answer was lost: nobody knows; the same claim again finds its own grant."""
    store = way.store(caller)
    claim = Claim("key", TOKEN, 30.0)
    caller(store.status("key", timeout=TIMEOUT))
    way.proxy.lose_reply()
    with pytest.raises(StoreUnavailable) as caught:
        caller(store.acquire(claim, timeout=TIMEOUT))
    assert caught.value.applied is None
    again = caller(store.acquire(claim, timeout=TIMEOUT))
    assert isinstance(again, Held)
    assert caller(store.status("key", timeout=TIMEOUT)).fencing_token == again.lease.fencing_token


def test_a_lost_request_is_nobody_knows(caller: Caller[Any], way: Way) -> None:
    """What left this process may have arrived: nobody knows, also where it did not."""
    store = way.store(caller)
    caller(store.status("key", timeout=TIMEOUT))
    way.proxy.lose_request()
    with pytest.raises(StoreUnavailable) as caught:
        caller(store.acquire(Claim("key", TOKEN, 30.0), timeout=TIMEOUT))
    assert caught.value.applied is None
    assert not caller(store.status("key", timeout=TIMEOUT)).held


def test_a_refused_connection_is_surely_not_applied(caller: Caller[Any], way: Way) -> None:
    """O6: nothing was sent to a service that is not there; once it is, the next call works."""
    store = way.store(caller)
    way.proxy.refuse()
    with pytest.raises(StoreUnavailable, match="cannot connect") as caught:
        caller(store.acquire(Claim("key", TOKEN, 30.0), timeout=TIMEOUT))
    assert caught.value.applied is False
    way.proxy.heal()
    assert not caller(store.status("key", timeout=TIMEOUT)).held


@pytest.mark.parametrize("warm", [True, False])
def test_a_black_hole_ends_with_the_time_out(caller: Caller[Any], way: Way, *, warm: bool) -> None:
    """W2, C063: a way that swallows all cannot hold a caller beyond its time, connecting or connected."""
    store = way.store(caller)
    if warm:
        caller(store.status("key", timeout=TIMEOUT))
    way.proxy.black_hole()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no answer") as caught:
        caller(store.acquire(Claim("key", TOKEN, 30.0), timeout=SOON))
    assert time.monotonic() - began < LATE
    assert caught.value.applied is (None if warm else False)
    way.proxy.heal()
    caller.take(store, "key", OTHER)


def test_a_late_answer_is_nobody_elses(caller: Caller[Any], way: Way) -> None:
    """S2: what comes after a call was given up is not taken for the answer of the next one."""
    store = way.store(caller)
    caller.take(store, "held")
    way.proxy.delay(0.2, "down")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            caller(store.look("held", TOKEN, timeout=0.05))
    assert caller(store.look("free", TOKEN, timeout=TIMEOUT)) == Lost("expired")
    assert caller(store.status("free", timeout=TIMEOUT)).state == "free"


def test_cancelled_calls_harm_no_others(way: Way) -> None:
    """C001: 600 calls cancelled at any moment leave no connection that gives an answer to the wrong question."""

    async def main() -> None:
        store = way.in_loop()
        chance = random.Random(6)

        async def ask(number: int) -> None:
            found = await store.status(f"key{number}", timeout=TIMEOUT)
            assert found.key == f"key{number}"
            assert found.state == ("held" if number % 2 else "free")

        for number in range(1, 20, 2):
            await store.acquire(Claim(f"key{number}", TOKEN, 60.0), timeout=TIMEOUT)
        way.proxy.delay(0.002, "down")  # answers are under way for a while
        for _ in range(60):
            calls = [asyncio.ensure_future(ask(number)) for number in range(20)]
            for call in chance.sample(calls, 10):
                for _ in range(chance.randrange(6)):
                    await asyncio.sleep(0)
                call.cancel()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert not [error for error in ended if isinstance(error, AssertionError | LeasedError)]
        await store.close()

    asyncio.run(main())


def test_loops_one_after_the_other_use_one_store(way: Way) -> None:
    """A store may outlive a loop: the next one has connections of its own."""
    store = way.in_loop()

    async def main(token: str) -> None:
        assert isinstance(await store.acquire(Claim("key", token, 30.0), timeout=TIMEOUT), Held)
        assert await store.release("key", token, timeout=TIMEOUT)

    for number in range(3):
        asyncio.run(main(f"{TOKEN}{number}"))
    asyncio.run(store.close())


def test_a_forked_child_has_connections_of_its_own(way: Way) -> None:
    """L13, C012: parent and child go on at the same time, and neither reads an answer meant for the other."""
    way.proxy.close()  # no thread is there at the fork, and nothing breaks
    caller = Caller(Blocking(), Blocking().driver(), open_store=way.open_store, token=TOKEN)
    store = caller.open(way.server.url, namespace=way.namespace)
    caller.take(store, "parent")
    child = os.fork()
    if child == 0:
        right = all(caller(store.status("free", timeout=TIMEOUT)).state == "free" for _ in range(200))
        os._exit(0 if right and caller.take(store, "child") else 1)
    for _ in range(200):
        assert isinstance(caller(store.look("parent", TOKEN, timeout=TIMEOUT)), Held)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert caller(store.many([Look("parent", TOKEN)], timeout=TIMEOUT))
    assert caller(store.status("child", timeout=TIMEOUT)).held
    assert caller(store.release("parent", TOKEN, timeout=TIMEOUT)) == Released()
    assert caller(store.force_release("child", timeout=TIMEOUT))
    caller(store.close())
