"""A network that breaks between the store and its server, callers that are cut off, and processes that fork."""

import contextlib
import os
import socket
import time
from collections.abc import Callable

import pytest

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Acquire, Claim, Held, Operation, Release, Released
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


def _until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.002)
