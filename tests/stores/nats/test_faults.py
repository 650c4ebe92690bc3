"""Slow readers, connections that break again and again, forks, many loops, and a bucket that is deleted."""

# ruff: noqa: PT012 (what a whole block raises at its end is what a test is about)

import asyncio
import json
import os
import secrets
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import leased
import leased.aio
from leased.clocks import BlockingClock
from leased.errors import LockLost, StoreUnavailable
from leased.model import Acquire, Claim, Held
from leased.stores import _nats_connection
from leased.stores._nats_connection import Connection, Question, connect
from leased.stores._nats_feed import connect_feed
from leased.stores._nats_thread import blocking_loop
from leased.stores._nats_url import read_address
from leased.targets import Options, read_url
from tests.servers.nats import ask, messages
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.stores.nats.conftest import TIMEOUT, TOKEN, Caller

SOON = 20.0
"""Seconds within which something has to happen that needs no time of its own, on a machine that is busy."""


def until(condition: Callable[[], object]) -> None:
    """Wait for it."""
    give_up_at = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)  # between two looks


def named(url: str) -> str:
    """That place, with a namespace of this test alone."""
    return f"{url}?leased_namespace={secrets.token_hex(8)}"


def connections(server: Server) -> set[int]:
    """The connections that the server has, by its numbers of them."""
    with urllib.request.urlopen(f"http://{server.host}:{server.place.second_port}/connz", timeout=5) as answer:
        return {connection["cid"] for connection in json.load(answer)["connections"]}


def test_a_server_that_cuts_slow_readers_off_makes_nobody_lose_a_grant(
    caller: Caller, private_nats: Callable[..., Server]
) -> None:
    """C043: a server that ends a connection because answers pile up on it leaves calls unknown, never denied; asked
    again each finds its own grant, and the store goes on."""
    server = private_nats(configuration="max_payload: 4096\nmax_pending: 4096")
    store = caller.open(server.url)
    keys = [f"key{number}" for number in range(2_000)]
    caller.take(store, "first")
    give_up_at = time.monotonic() + SOON
    while "Slow Consumer" not in server.log:
        assert time.monotonic() < give_up_at
        outcomes = caller(store.many([Acquire(Claim(key, TOKEN, 60.0)) for key in keys], timeout=TIMEOUT))
        for outcome in outcomes:
            assert isinstance(outcome, Held | StoreUnavailable)
            assert isinstance(outcome, Held) or outcome.applied is not True
    for key in (*keys[::100], keys[-1]):
        caller.take(store, key, ttl=60.0)


def test_a_question_that_nobody_answers_is_asked_again(
    caller: Caller, nats_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O6: a member that leads no more, or not yet, says nothing to who reads from it; the next one that leads does."""
    store = caller.open(named(nats_server.url))
    caller.take(store, "key")
    send = Connection._send
    lost: list[str] = []

    async def lose_first(connection: Connection, question: Question, *args: Any, **more: Any) -> None:
        if question.harmless and len(lost) < 2:
            lost.append(question.subject)
            return
        await send(connection, question, *args, **more)

    monkeypatch.setattr(Connection, "_send", lose_first)
    assert caller(store.status("key", timeout=SOON)).held
    assert len(lost) == 2
    monkeypatch.setattr(Connection, "_send", send)
    caller.take(store, "other")


def test_a_sign_of_life_that_comes_too_late_is_no_error_of_the_driver(
    nats_server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """P3: the connection is given up, and what still comes over it is no traceback in the caller's log."""
    target = read_url(nats_server.url, Options(BlockingClock()))
    monkeypatch.setattr(_nats_connection, "_PROBE", 1e-9)

    async def meet(connection: Connection, seconds: float) -> None:
        """Nothing is asked."""

    async def main() -> None:
        connection = await connect(read_address(target.url, target.options), seconds=SOON, meet=meet)
        given_up: list[bool] = []
        with monkeypatch.context() as held:
            held.setattr(connection, "close", lambda: given_up.append(True))  # the answer is to come before the end
            await connection._look_for_life()
            await connection._client.flush(timeout=SOON)
        assert given_up == [True]
        connection.close()
        await asyncio.wait([task for task in (connection._ending,) if task is not None])

    asyncio.run(main())
    assert not caplog.records


def test_a_watch_whose_reader_was_too_slow_begins_anew(nats_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """W3: the driver throws away what its reader does not take in time; the gap is noticed, the watching connection is
    given up, and with it every bell rings."""
    with leased.connect(nats_server.url) as locks:
        locks.lock("first").acquire().release()  # there is a bucket
        target = read_url(nats_server.url, Options(BlockingClock()))
        feed = connect_feed(read_address(target.url, target.options))
        try:
            assert feed._connection is not None
            for subscription in feed._connection._client._subs.values():
                monkeypatch.setattr(subscription._pending_queue, "_maxsize", 2)
            stopped, goes_on = threading.Event(), threading.Event()

            def stop() -> None:
                stopped.set()
                goes_on.wait(SOON)

            blocking_loop.tell(stop)
            assert stopped.wait(SOON)
            asyncio.run(_write(nats_server.url, count=50))
            goes_on.set()
            until(lambda: feed._broken)
            with pytest.raises(ConnectionResetError, match="is missing"):
                feed.read()
        finally:
            feed.close()


async def _write(url: str, *, count: int) -> None:
    async with leased.aio.connect(named(url)) as locks:
        for number in range(count):
            await (await locks.lock(f"k{number}").acquire()).release()


def test_a_waiter_that_hears_nothing_for_a_while_catches_up(
    nats_server: Server, proxy_to: Callable[[Server], Proxy]
) -> None:
    """W3: while nothing comes down to it hundreds of keys are written and its own is released; then it gets the key."""
    proxy, namespace = proxy_to(nats_server), secrets.token_hex(8)
    where = f"?leased_namespace={namespace}"
    with leased.connect(nats_server.url + where) as others, leased.connect(proxy.url + where) as locks:
        held = others.lock("key", ttl=60).acquire()
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(lambda: locks.lock("key", ttl=60, wait=3 * SOON).acquire())
            until(lambda: proxy.traffic.connections >= 2)
            proxy.hold("down")
            metadata = {"filling": "x" * 900}
            for number in range(300):
                others.lock(f"other{number}", metadata=metadata).acquire().release()
            assert held.release()
            proxy.heal()
            assert waiting.result().release()


def test_a_storm_of_broken_connections_is_one_new_connection_each(
    nats_server: Server, proxy_to: Callable[[Server], Proxy]
) -> None:
    """C143: whatever breaks how often, holders keep their leases, waiters get their keys, and a hundred tasks make one
    connection together, not a hundred."""
    proxy = proxy_to(nats_server)
    storms, crowd = 8, 50

    async def scene() -> None:
        async with leased.aio.connect(named(proxy.url)) as locks:
            handles = [await locks.lock(f"k{number}", ttl=60, renew=True).acquire() for number in range(crowd)]
            waiting = [asyncio.ensure_future(locks.lock(f"k{at}", wait=3 * SOON).acquire()) for at in range(crowd)]
            for _ in range(storms):
                assert proxy.cut() >= 1
                renewed = await asyncio.gather(*(handle.renew() for handle in handles))
                assert all(renewed)
            released = await asyncio.gather(*(handle.release() for handle in handles))
            assert all(released)
            for handle in await asyncio.gather(*waiting):
                assert await handle.release()

    asyncio.run(scene())
    assert proxy.traffic.connections <= 2 * (storms + 1)  # that which asks, and that which watches


def test_a_server_that_restarts_again_and_again_loses_nobody(private_nats: Callable[..., Server]) -> None:
    """C104, C143: ten programs that hold, and ten that wait, through three restarts in a row."""
    server = private_nats()
    url = named(server.url)
    with leased.connect(url) as locks, ThreadPoolExecutor(10) as threads:
        handles = [locks.lock(f"k{number}", ttl=120, renew=True).acquire() for number in range(10)]

        def wait_for(number: int) -> int:
            with leased.connect(url) as own, own.lock(f"k{number}", wait=5 * SOON, ttl=60) as held:
                return held.fencing_token

        waiting = [threads.submit(wait_for, number) for number in range(10)]
        for _ in range(3):
            server.kill()
            server.start()
            assert all(handle.renew() for handle in handles)
        assert not any(handle.lost for handle in handles)
        for handle in handles:
            assert handle.release()
        for handle, waited in zip(handles, waiting, strict=True):
            assert waited.result() > handle.fencing_token


def test_a_bucket_deleted_under_holders_and_waiters(nats_server: Server) -> None:
    """A deleted bucket forgets its leases: the waiter gets the key, with a higher fencing token, and the holder's block
    is lost, which it says."""
    bucket = f"b{secrets.token_hex(6)}"
    url = f"{nats_server.url}/{bucket}"
    with leased.connect(url) as locks, leased.connect(url) as others, ThreadPoolExecutor(1) as thread:
        lock = locks.lock("key", ttl=60)
        with pytest.raises(LockLost), lock as held:
            waiting = thread.submit(lambda: others.lock("key", ttl=60, wait=SOON).acquire())
            assert "error" not in ask(nats_server.place, f"$JS.API.STREAM.DELETE.KV_{bucket}")
            taken = waiting.result()
            assert taken.fencing_token > held.fencing_token
            assert not held.renew()
            assert held.lost
        assert taken.renew()
        assert taken.release()


def test_a_child_of_a_program_that_waits_hears_for_itself(nats_server: Server) -> None:
    """L13: forked while connections ask and watch, a child makes both anew; those of its parent go on as they were,
    before and after the child has ended."""
    url = named(nats_server.url)
    with leased.connect(url) as locks, ThreadPoolExecutor(1) as thread:
        held = locks.lock("key", ttl=60).acquire()
        others = leased.connect(url)
        waiting = thread.submit(lambda: others.lock("key", ttl=60, wait=3 * SOON).acquire())
        until(lambda: blocking_loop._followed and not locks.lock("key").try_acquire())
        before = connections(nats_server)
        child = os.fork()
        if not child:
            os._exit(_in_a_child(locks))
        _, ended = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(ended) == 0
        assert before <= connections(nats_server)
        assert held.renew()
        assert held.release()
        assert waiting.result().release()
        others.close()


def _in_a_child(locks: leased.Locks) -> int:
    try:
        own = locks.lock("own", ttl=60).acquire()
        release = threading.Timer(0.3, own.release)
        release.start()
        began = time.monotonic()
        with locks.lock("own", wait=SOON, ttl=60):
            pass
        return 0 if time.monotonic() - began < SOON else 3
    except BaseException:  # noqa: BLE001 (a child says by its status what it has to say)
        return 2


def test_several_loops_at_once_use_one_client(nats_server: Server, proxy_to: Callable[[Server], Proxy]) -> None:
    """L: four loops in four threads and blocking callers count under one lock, by one connection each."""
    proxy = proxy_to(nats_server)
    url = named(proxy.url)
    shared = leased.aio.connect(url)
    inside = counted = 0

    def enter() -> None:
        nonlocal inside
        inside += 1
        assert inside == 1

    def leave() -> None:
        nonlocal inside, counted
        inside, counted = 0, counted + 1

    async def count() -> None:
        for _ in range(10):
            async with shared.lock("counter", wait=3 * SOON):
                enter()
                await asyncio.sleep(0)
                leave()

    with leased.connect(url) as locks, ThreadPoolExecutor(4) as threads:
        loops = [threads.submit(lambda: asyncio.run(count())) for _ in range(4)]
        for _ in range(10):
            with locks.lock("counter", wait=3 * SOON):
                enter()
                leave()
        for loop in loops:
            loop.result()
    assert counted == 50
    asyncio.run(shared.close())
    assert proxy.traffic.connections <= 4 + 1 + 1


def test_a_sweep_removes_what_nobody_needs(caller: Caller, nats_server: Server) -> None:
    """M4: records of keys that opened long ago go with time; those that are held, or were a moment ago, stay."""
    bucket = f"b{secrets.token_hex(6)}"
    store = caller.open(f"{nats_server.url}/{bucket}")
    for number in range(5):
        caller.take(store, f"old{number}")
        caller(store.release(f"old{number}", TOKEN, timeout=TIMEOUT))
    store.offset = 2 * 86_400.0
    caller.take(store, "new")
    assert store._old is not None
    caller(store._sweep(store._old))
    assert messages(nats_server.place, bucket) == 1
    assert caller(store.status("new", timeout=TIMEOUT)).held
