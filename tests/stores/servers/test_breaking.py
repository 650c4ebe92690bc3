"""Broken ways to servers, cancelled callers, forks and kills: nothing is believed that is not known, or wedged."""

# ruff: noqa: PT012 (what a whole block raises at its end is what a test is about)

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

import leased
import leased.aio
from leased import LockLost, LockNotAcquired, StoreUnavailable
from tests.faces.world import block, done
from tests.servers.process import Server
from tests.servers.proxy import Proxy, Traffic
from tests.stores.servers.conftest import Stand, named, released

CANCELLED = 2000 if os.environ.get("LEASED_SOAK") else 600
"""Calls; each is cancelled one turn of the loop later than the one before, up to nine."""

SOON = 20.0
"""Seconds within which something has to happen that needs no time of its own, on a machine that is busy."""


async def free_soon(stand: Stand, key: str = "k") -> None:
    """Somebody else gets the key, and gives it back."""
    handle = await stand.take(stand.elsewhere().lock(key, wait=SOON))
    assert await done(handle.release())


async def test_a_grant_whose_answer_was_lost_is_recognised(stand: Stand) -> None:
    """C043, O6: the connection breaks after the server has granted: the repeated claim finds its own grant."""
    locks = stand.connect()
    await done(locks.status("k"))
    stand.proxy.lose_reply(1, containing=b"k")
    handle = await stand.take(locks.lock("k", ttl=30))
    assert stand.proxy.traffic.tripped == 1
    assert (await done(stand.elsewhere().status("k"))).fencing_token == handle.fencing_token
    assert await done(handle.release())
    await free_soon(stand)


async def test_a_claim_that_never_arrived_is_repeated(stand: Stand) -> None:
    """C043, O6: the connection breaks before the server has read the claim; the second try is granted."""
    locks = stand.connect()
    await done(locks.status("k"))
    stand.proxy.lose_request(1, containing=b"k")
    handle = await stand.take(locks.lock("k", ttl=30))
    assert stand.proxy.traffic.tripped == 1
    assert await done(handle.release())


async def test_an_acquire_that_gets_no_answer_says_so_and_holds_nothing(stand: Stand) -> None:
    """C043, C121, S2: where nobody knows the error says "unknown", never "held by somebody else"; the grant that the
    server made meanwhile is handed back or over within one ttl."""
    locks = stand.connect(timeout=0.6)
    await done(locks.status("k"))
    stand.proxy.hold("down")
    with pytest.raises(StoreUnavailable) as caught:
        await done(locks.lock("k", ttl=2).acquire())
    assert not isinstance(caught.value, LockNotAcquired)
    assert caught.value.applied is None
    stand.proxy.heal()
    await free_soon(stand)


async def test_a_release_whose_answer_was_lost_has_freed(stand: Stand) -> None:
    """C043: the repeated release finds nothing to free any more, and counts as freed."""
    locks = stand.connect()
    handle = await stand.take(locks.lock("k", ttl=30))
    stand.proxy.lose_reply(1, containing=b"k")
    assert await released(handle)
    assert not (await done(stand.elsewhere().status("k"))).held


async def test_a_renewal_that_succeeded_unseen_spoils_nothing(stand: Stand) -> None:
    """C045: the answer to one renewal is lost; the next one succeeds, for the token is what counts."""
    locks = stand.connect()
    handle = await stand.take(locks.lock("k", ttl=30))
    stand.proxy.lose_reply(1, containing=b"k")
    with contextlib.suppress(StoreUnavailable):
        await done(handle.renew())
    assert stand.proxy.traffic.tripped == 1
    assert await done(handle.renew())
    assert not handle.lost
    assert await done(handle.release())


@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_connections_that_were_ended_are_replaced_without_a_word(stand: Stand, ending: Any) -> None:
    """C143, C119, S4: the server drops all idle connections; the holder's next calls work, over new ones."""
    locks = stand.connect()
    handle = await stand.take(locks.lock("k", ttl=30))
    for _ in range(3):
        assert stand.proxy.cut(ending) >= 1
        assert await done(handle.renew())
    assert not handle.lost
    stand.proxy.cut(ending)
    assert await released(handle)


async def test_a_partitioned_holder_stops_believing_in_time(stand: Stand) -> None:
    """C033, H2: no packet comes through any more, and no reset: the block is lost by the end of its lease."""
    locks = stand.connect()
    believed: list[float] = []
    with pytest.raises(LockLost):
        async with block(locks.lock("k", ttl=1.2)) as held:
            stand.proxy.black_hole()
            cut_at = time.monotonic()
            while not held.lost:
                believed.append(time.monotonic() - cut_at)
                assert believed[-1] < 1.2
                await stand.face.breathe()
    assert believed
    stand.proxy.heal()
    await free_soon(stand)


async def test_a_grant_that_comes_after_its_lease_is_given_back(stand: Stand) -> None:
    """C050, C066, C072, C140, M5: the server grants at once, its answer takes longer than the lease: nobody has it."""
    locks = stand.connect()
    await done(locks.status("k"))
    stand.proxy.delay(0.5, "down")
    with pytest.raises((LockNotAcquired, StoreUnavailable)):
        await done(locks.lock("k", ttl=0.45).acquire())
    stand.proxy.heal()
    await free_soon(stand)


async def test_a_short_wait_ends_although_nothing_comes_through(stand: Stand) -> None:
    """C063, W2: pool, connection and server are a black hole: `wait=0.2` is over soon all the same."""
    locks = stand.connect(timeout=60)
    stand.proxy.black_hole()
    began = time.monotonic()
    with pytest.raises((LockNotAcquired, StoreUnavailable)):
        await done(locks.lock("k", wait=0.2, ttl=300).acquire())
    assert time.monotonic() - began < 5.0


async def test_waiters_go_on_through_a_server_that_is_away_for_a_while(stand: Stand) -> None:
    """S4, W3: the way breaks while one waits, the holder releases meanwhile; the waiter gets the key when it heals."""
    holder = await stand.take(stand.elsewhere().lock("k", ttl=60))
    locks = stand.connect(timeout=1)
    waiting = stand.face.start(lambda: _acquire(locks.lock("k", wait=SOON * 2, ttl=30)))
    await _until_it_waits(stand)
    stand.proxy.refuse()
    stand.proxy.cut()
    assert await done(holder.release())
    stand.proxy.heal()
    while not waiting.over:
        await stand.face.breathe()
    got = await waiting.result()
    assert await done(got.release())


async def _acquire(lock: Any) -> Any:
    return await done(lock.acquire())


async def _until_it_waits(stand: Stand) -> None:
    """A claim by the way that can be broken has been refused, or waits at the service, which knows who does."""
    others = stand.elsewhere()
    give_up_at = time.monotonic() + SOON
    waits = False
    while not waits:
        assert time.monotonic() < give_up_at
        await stand.face.breathe()
        if stand.kind == "service":
            waits = bool((await done(others.status("k"))).waiters)
        else:
            waits = stand.proxy.traffic.chunks_up >= 3


async def test_a_forked_child_frees_renews_and_breaks_nothing(threads: Stand) -> None:
    """C012, C130, L13: a child of a holder is told that the handle is not its own; it locks by itself, and its end
    changes nothing for its parent, whose connections go on."""
    locks = threads.connect()
    held = locks.lock("k", ttl=30).acquire()
    threads.taken.append(held)
    child = os.fork()
    if not child:
        status = 1
        try:
            released = held.release()
            refused = locks.lock("k").try_acquire() is None
            own = locks.lock("own").acquire()
            status = 0 if not released and refused and held.lost_reason == "forked" and own.release() else 2
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended) == 0
    assert held.renew()
    assert not held.lost
    assert held.release()


_HOLDER = """
import sys, leased
url, key = sys.argv[1:]
locks = leased.connect(url)
while True:
    handle = locks.lock(key, ttl=1.5, wait=30).acquire()
    print("holds", flush=True)
    handle.release()
"""


def _sent(messages: int) -> Callable[[Traffic], bool]:
    return lambda traffic: traffic.chunks_up >= messages


def test_a_killed_holder_keeps_nobody_out_for_longer_than_its_lease(
    server: Server, proxy_to: Callable[[Server], Proxy]
) -> None:
    """C047, C090: killed after any of its messages, in acquiring, holding and releasing: one ttl later the key can be
    had."""
    namespace = f"killed{os.getpid()}"
    killed_at: dict[str, float] = {}
    for messages in range(1, 6):
        proxy, key = proxy_to(server), f"k{messages}"
        command = [sys.executable, "-c", _HOLDER, named(proxy.url, namespace), key]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"holds\n"
            proxy.wait_until(_sent(proxy.traffic.chunks_up + messages))
            holder.kill()
        killed_at[key] = time.monotonic()
    with leased.connect(named(server.url, namespace)) as locks:
        for key, at in killed_at.items():
            free_at = max(at + 1.5, time.monotonic())
            assert locks.lock(key, wait=SOON).acquire().release()
            assert time.monotonic() < free_at + 5.0


async def test_cancelled_calls_leave_nothing_wrong(server: Any) -> None:
    """C001, L12: acquires cancelled at any moment leave nothing held and no connection in use, and every later answer
    belongs to its own question."""
    url = named(server.url, f"cancelled{os.getpid()}")
    async with leased.aio.connect(url) as locks:
        for number in range(CANCELLED):
            cancelled = asyncio.ensure_future(locks.lock(f"k{number % 7}", ttl=30).try_acquire())
            for _ in range(number % 9):
                await asyncio.sleep(0)
            cancelled.cancel()
            (outcome,) = await asyncio.gather(cancelled, return_exceptions=True)
            if isinstance(outcome, leased.aio.Handle):
                assert await outcome.release()
            else:
                assert isinstance(outcome, asyncio.CancelledError)
        for number in range(7):
            handle = await locks.lock(f"k{number}", wait=SOON).acquire()
            assert (await locks.status(f"k{number}")).fencing_token == handle.fencing_token
            assert await handle.release()


async def test_a_cancelled_release_ends_in_a_free_key_or_can_be_repeated(server: Any) -> None:
    """C002: cut at any point, a release has freed the key, or the same handle still can; it is renewed no more."""
    url = named(server.url, f"released{os.getpid()}")
    async with leased.aio.connect(url) as locks:
        for turns in range(40):
            handle = await locks.lock("k", ttl=30, renew=True, wait=SOON).acquire()
            releasing = asyncio.ensure_future(handle.release())
            for _ in range(turns):
                await asyncio.sleep(0)
            releasing.cancel()
            await asyncio.gather(releasing, return_exceptions=True)
            if (await locks.status("k")).held:
                await handle.release()
            assert not (await locks.status("k")).held


async def test_one_client_serves_several_loops(server: Any) -> None:
    """L: the same locks in one loop after the other, with connections of each loop's own."""
    locks = leased.aio.connect(named(server.url, f"loops{os.getpid()}"))

    async def use() -> bool:
        async with locks.lock("k", wait=SOON) as held:
            return not held.lost

    def in_a_loop_of_its_own() -> bool:
        with asyncio.Runner() as runner:
            return runner.run(use())

    for _ in range(3):
        assert await asyncio.get_running_loop().run_in_executor(None, in_a_loop_of_its_own)
    assert await use()
    await locks.close()
