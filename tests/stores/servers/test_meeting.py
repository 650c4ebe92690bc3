"""Callers who meet at one key, or at keys that are nearly one, on every server store."""

import asyncio
import secrets
import time
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest

import leased.aio
from leased.join import Joined
from tests.faces.world import done
from tests.servers.process import Server
from tests.stores.servers.conftest import KINDS, Stand, named

SOON = 20.0
"""Seconds within which something has to happen that needs no time of its own, on a machine that is busy."""


async def test_ten_tasks_with_one_lock_object_are_ten_callers(server: Any) -> None:
    """C018: without an owner nobody enters again what his own process holds: one after the other is inside."""
    inside = counted = 0
    async with leased.aio.connect(named(server.url, secrets.token_hex(8))) as locks:
        lock = locks.lock("k", wait=SOON * 2)

        async def count() -> None:
            nonlocal inside, counted
            async with lock:
                inside += 1
                assert inside == 1
                read = counted
                assert await locks.lock("k").try_acquire() is None
                inside, counted = inside - 1, read + 1

        await asyncio.gather(*(count() for _ in range(10)))
    assert counted == 10


async def test_a_renewal_under_way_brings_nothing_back(stand: Stand) -> None:
    """C019: the handle is released while a renewal of it is on its way; whichever comes first, the key is free and
    stays so."""
    locks, others = stand.connect(), stand.elsewhere()
    for _ in range(3):
        handle = await stand.take(locks.lock("k", ttl=30))
        stand.proxy.delay(0.1, "up")
        renewing = stand.face.start(partial(_renewed, handle))
        await stand.face.breathe()
        assert await done(handle.release())
        await renewing.result()
        stand.proxy.delay(0.0, "up")
        assert not await done(handle.renew())
        status = await done(others.status("k"))
        assert (status.held, status.expires_in) == (False, None)


async def _renewed(handle: Any) -> Any:
    return await done(handle.renew())


async def test_one_renewal_that_failed_ends_no_other(stand: Stand) -> None:
    """C023: one renewal does not arrive; the next ones do, and the lease goes on for many times its ttl."""
    handle = await stand.take(stand.connect().lock("k", ttl=1.5, renew=True))
    stand.proxy.lose_request(1, containing=b"k")
    others, ends_at = stand.elsewhere(), time.monotonic() + 5.0
    while time.monotonic() < ends_at:
        assert not handle.lost
        assert await done(others.lock("k").try_acquire()) is None
        await asyncio.sleep(0.1) if stand.face.name == "async" else time.sleep(0.1)  # between two looks
    assert stand.proxy.traffic.tripped == 1
    assert await done(handle.release())


# Through the service a claim waits in the service: nobody is refused and then begins to watch, so there is no such gap.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "service"])
async def test_a_release_between_looking_and_watching_is_not_missed(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C084, W3: the key opens after the waiter was refused, and before its watch is in force: it asks again at once."""
    locks, others = stand.connect(), stand.elsewhere()
    watch, holding = Joined.watch, list[Any]()

    async def release_first(self: Any, key: str, bell: Any) -> Any:
        while holding:
            assert await done(holding.pop().release())
        return await watch(self, key, lambda: None)  # and no bell is heard

    monkeypatch.setattr(Joined, "watch", release_first)
    took = []
    for _ in range(5):
        holding.append(await stand.take(others.lock("k", ttl=60)))
        began = time.monotonic()
        handle = await stand.take(locks.lock("k", wait=SOON))
        took.append(time.monotonic() - began)
        assert not holding
        assert await done(handle.release())
    assert min(took) < 0.5


async def test_keys_that_begin_alike_are_strangers(stand: Stand) -> None:
    """C145: each is held, waited for, listed and released without the others; a prefix is just what a key begins
    with."""
    names = ("job", "job:1", "job:10", "jobs")
    locks, others = stand.connect(), stand.elsewhere()
    handles = {name: await stand.take(locks.lock(name, ttl=60)) for name in names}
    for prefix, expected in {"job": list(names), "job:": ["job:1", "job:10"], "job:1": ["job:1", "job:10"]}.items():
        assert [status.key for status in await done(others.list(prefix=prefix))] == expected
    waiting = {name: stand.face.start(partial(_acquired, others, name)) for name in names}
    for name in reversed(names):
        assert await done(handles[name].release())
        while not waiting[name].over:
            await stand.face.breathe()
        taken = await waiting.pop(name).result()
        assert taken.fencing_token > handles[name].fencing_token
        assert not any(other.over for other in waiting.values())
        assert await done(taken.release())


async def _acquired(locks: Any, name: str) -> Any:
    return await done(locks.lock(name, ttl=60, wait=SOON).acquire())


@pytest.mark.parametrize("character", ["n", "ß", "\N{EURO SIGN}", "\N{GRINNING FACE}"])
async def test_the_longest_names_fit(server: Server, kind: str, character: str) -> None:
    """C152, S3: 255 characters of one, two, three or four bytes each, of a namespace and of a key in it. Through the
    service both together are that long, with two signs between them: there a namespace is a part of the key."""
    longest = character * (127 if kind == "service" else 255)
    namespace = longest[:-1] if kind == "service" else longest
    async with leased.aio.connect(named(server.url, quote(namespace))) as locks:
        handle = await locks.lock(longest).acquire()
        assert [status.key for status in await locks.list()] == [longest]
        assert await handle.renew()
        assert await handle.release()
        with pytest.raises(leased.InvalidRequest, match="255"):
            await locks.lock(longest + character).acquire()
