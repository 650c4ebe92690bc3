"""A network that breaks between the store and its server, callers that are cut off, and processes that fork."""

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import Callable

import pytest

from leased.aio_clock import LoopClock
from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.model import Acquire, Claim, Held, Look, Lost, Operation, Release, Released, Status
from leased.stores.redis import open as open_redis
from leased.targets import Options
from leased.testing.worlds import Blocking
from tests.servers import valkey
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.stores.redis.conftest import TIMEOUT, Caller

SOON = 0.3
LATE = 1.5
"""Seconds: a call that may take `SOON` is back long before this, even on a busy machine."""


@pytest.fixture
def proxy(valkey_server: Server, proxy_to: Callable[[Server], Proxy]) -> Proxy:
    """What breaks, before a server that others use too: each test has a namespace of its own."""
    return proxy_to(valkey_server)


def namespace(request: pytest.FixtureRequest) -> str:
    """That of one test."""
    return f"{os.getpid()} {request.node.name}"


def test_a_lost_answer_is_nobody_knows(caller: Caller, proxy: Proxy, request: pytest.FixtureRequest) -> None:
    """C043: the acquire worked and its answer was lost: nobody knows; the same claim again finds its own grant."""
    store = caller.open(proxy.url, namespace=namespace(request))
    claim = Claim("key", "token", 30.0)
    caller(store.status("key", timeout=TIMEOUT))
    proxy.lose_reply()
    with pytest.raises(StoreUnavailable) as caught:
        caller(store.acquire(claim, timeout=TIMEOUT))
    assert caught.value.applied is None
    again = caller(store.acquire(claim, timeout=TIMEOUT))
    assert isinstance(again, Held)
    assert caller(store.status("key", timeout=TIMEOUT)).fencing_token == again.lease.fencing_token


def test_a_lost_request_is_nobody_knows(caller: Caller, proxy: Proxy, request: pytest.FixtureRequest) -> None:
    """What left this process may have arrived: nobody knows, also where it did not."""
    store = caller.open(proxy.url, namespace=namespace(request))
    caller(store.status("key", timeout=TIMEOUT))
    proxy.lose_request()
    with pytest.raises(StoreUnavailable) as caught:
        caller(store.acquire(Claim("key", "token", 30.0), timeout=TIMEOUT))
    assert caught.value.applied is None
    assert not caller(store.status("key", timeout=TIMEOUT)).held


def test_a_refused_connection_is_surely_not_applied(caller: Caller, proxy: Proxy) -> None:
    """Nothing was sent to a server that is not there; once it is, the next call works."""
    store = caller.open(proxy.url)
    proxy.refuse()
    with pytest.raises(StoreUnavailable, match="cannot connect") as caught:
        caller(store.acquire(Claim("refused", "token", 30.0), timeout=TIMEOUT))
    assert caught.value.applied is False
    proxy.heal()
    assert not caller(store.status("refused", timeout=TIMEOUT)).held


@pytest.mark.parametrize("warm", [True, False])
def test_a_black_hole_ends_with_the_time_out(
    caller: Caller, proxy: Proxy, request: pytest.FixtureRequest, *, warm: bool
) -> None:
    """W2: a server that swallows all cannot hold a caller beyond its time, connecting or connected."""
    store = caller.open(proxy.url, namespace=namespace(request))
    if warm:
        caller(store.status("key", timeout=TIMEOUT))
    proxy.black_hole()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no answer") as caught:
        caller(store.acquire(Claim("key", "token", 30.0), timeout=SOON))
    assert time.monotonic() - began < LATE
    assert caught.value.applied is (None if warm else False)
    proxy.heal()
    caller.take(store, "key", "other")


@pytest.mark.parametrize("answers", [True, False])
def test_all_addresses_of_a_host_share_the_time(
    caller: Caller, valkey_server: Server, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """A host with addresses that hang is reached by the one that does not, and with none of them the time is kept."""
    with contextlib.ExitStack() as closing:
        full = closing.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # nobody accepts: from now on whoever connects hangs
            filling = closing.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(full.getsockname())
        ports = [full.getsockname()[1]] * 3 + [valkey_server.port] * answers
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        store = caller.open("redis://many.example:1")
        began = time.monotonic()
        if answers:
            assert caller(store.status("key", timeout=2.0)).state == "free"
        else:
            with pytest.raises(StoreUnavailable) as caught:
                caller(store.status("key", timeout=SOON))
            assert caught.value.applied is False
            assert time.monotonic() - began < 2 * SOON


def test_a_late_answer_is_nobody_elses(caller: Caller, proxy: Proxy, request: pytest.FixtureRequest) -> None:
    """S2: what comes after a call was given up is not taken for the answer of the next one."""
    store = caller.open(proxy.url, namespace=namespace(request))
    caller.take(store, "held")
    proxy.delay(0.2, "down")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            caller(store.look("held", "token", timeout=0.05))
    assert caller(store.look("free", "token", timeout=TIMEOUT)) == Lost("expired")
    assert caller(store.status("free", timeout=TIMEOUT)) == Status("free")


def test_a_batch_that_is_cut_leaves_each_member_unknown(
    caller: Caller, proxy: Proxy, request: pytest.FixtureRequest
) -> None:
    """A batch without an answer is no single error: each member says that nobody knows, and can be asked again."""
    store = caller.open(proxy.url, namespace=namespace(request))
    caller(store.status("key", timeout=TIMEOUT))
    operations = [Acquire(Claim(f"key{number}", "token", 30.0)) for number in range(20)]
    proxy.lose_reply()
    outcomes = caller(store.many(operations, timeout=TIMEOUT))
    assert all(isinstance(outcome, StoreUnavailable) and outcome.applied is None for outcome in outcomes)
    assert all(isinstance(outcome, Held) for outcome in caller(store.many(operations, timeout=TIMEOUT)))


def test_one_refused_member_leaves_the_others_alone(
    caller: Caller, valkey_server: Server, request: pytest.FixtureRequest
) -> None:
    """A member that the server refuses stands in its place; those before and after it are answered."""
    store = caller.open(valkey_server.url, namespace=namespace(request))
    with_rubbish = f"leased:{namespace(request).replace(':', '%3A')}:{{bad}}"
    with valkey.client_of(valkey_server.place) as client:
        client.set(with_rubbish, "rubbish", ex=60)
    operations: list[Operation] = [Acquire(Claim(key, "token", 30.0)) for key in ("one", "bad", "two")]
    outcomes = caller(store.many([*operations, Release("one", "token")], timeout=TIMEOUT))
    assert [type(outcome) for outcome in outcomes] == [Held, StoreNotUsable, Held, Released]


@pytest.mark.parametrize("ending", ["reset", "close"])
def test_a_bell_rings_when_the_push_breaks_and_works_again(
    caller: Caller, proxy: Proxy, request: pytest.FixtureRequest, ending: str
) -> None:
    """W3: a watch survives its connection: it rings when that breaks, for something may have been missed."""
    store = caller.open(proxy.url, namespace=namespace(request))
    rung: list[float] = []
    end = caller(store.watch("key", lambda: rung.append(time.monotonic())))
    proxy.cut("reset" if ending == "reset" else "close")
    _until(lambda: bool(rung))

    def heard() -> bool:
        before = len(rung)
        caller.take(store, "key")
        caller(store.release("key", "token", timeout=TIMEOUT))
        give_up_at = time.monotonic() + 0.1
        while len(rung) == before and time.monotonic() < give_up_at:
            os.sched_yield()
        return len(rung) > before

    _until(heard)
    end()


def test_watches_end_with_the_store(caller: Caller, valkey_server: Server, request: pytest.FixtureRequest) -> None:
    """Closing a store ends its watches, and no others; a closed store refuses calls and watches."""
    other = caller.open(valkey_server.url, namespace=namespace(request))
    store = caller.open(valkey_server.url, namespace=namespace(request))
    mine, others = [], []
    caller(store.watch("key", lambda: mine.append(1)))
    caller(other.watch("key", lambda: others.append(1)))
    caller(store.close())
    mine.clear()  # a watch that was confirmed late has rung
    caller.take(other, "key")
    caller(other.release("key", "token", timeout=TIMEOUT))
    _until(lambda: bool(others))
    assert not mine
    for refused in (store.status("key", timeout=TIMEOUT), store.watch("key", lambda: None)):
        with pytest.raises(StoreNotUsable, match="closed"):
            caller(refused)


def test_cancelled_calls_harm_no_others(proxy: Proxy, request: pytest.FixtureRequest) -> None:
    """C001: 600 calls cancelled at any moment leave no connection that gives an answer to the wrong question."""

    async def main() -> None:
        options = Options(clock=LoopClock(), namespace=namespace(request))
        store = open_redis(proxy.url, face="async", options=options)
        chance = random.Random(6)

        async def ask(number: int) -> None:
            found = await store.status(f"key{number}", timeout=TIMEOUT)
            assert found.key == f"key{number}"
            assert found.state == ("held" if number % 2 else "free")

        for number in range(1, 20, 2):
            await store.acquire(Claim(f"key{number}", "token", 60.0), timeout=TIMEOUT)
        proxy.delay(0.002, "down")  # answers are under way for a while
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


def test_loops_one_after_the_other_use_one_store(valkey_server: Server, request: pytest.FixtureRequest) -> None:
    """A store may outlive a loop: the next one has connections of its own."""
    options = Options(clock=LoopClock(), namespace=namespace(request))
    store = open_redis(valkey_server.url, face="async", options=options)

    async def main(token: str) -> None:
        assert isinstance(await store.acquire(Claim("key", token, 30.0), timeout=TIMEOUT), Held)
        assert await store.release("key", token, timeout=TIMEOUT)

    for number in range(3):
        asyncio.run(main(f"token{number}"))
    asyncio.run(store.close())


def test_a_forked_child_has_connections_of_its_own(valkey_server: Server, request: pytest.FixtureRequest) -> None:
    """L13, C012: parent and child go on at the same time, and neither reads an answer meant for the other."""
    caller = Caller(Blocking(), Blocking().driver())
    store = caller.open(valkey_server.url, namespace=namespace(request))
    caller.take(store, "parent")
    child = os.fork()
    if child == 0:
        right = all(caller(store.status("free", timeout=TIMEOUT)) == Status("free") for _ in range(200))
        os._exit(0 if right and caller.take(store, "child") else 1)
    for _ in range(200):
        assert isinstance(caller(store.look("parent", "token", timeout=TIMEOUT)), Held)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert caller(store.many([Look("parent", "token")], timeout=TIMEOUT))
    assert caller(store.status("child", timeout=TIMEOUT)).held
    caller(store.close())


def _until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.002)
