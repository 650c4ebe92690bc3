"""Outages: leases survive what their ttl allows, nothing ends the process, and the log stays short."""

import logging
import subprocess
import sys
import threading
from functools import partial

import pytest

from leased import StoreUnavailable
from tests.faces.world import World, block, done, recorded

LOG = logging.getLogger("leased")


async def test_leases_survive_an_outage_that_their_ttl_allows(world: World) -> None:
    """C191: the store is away for 2 s while 20 leases of 10 s are held: none is lost, none is late."""
    handles = [await world.take(world.locks.lock(f"k{n}", ttl=10, renew=True)) for n in range(20)]
    world.move(3)
    world.store.down = True
    asked = world.store.asked("renew")
    world.move(1)
    await world.until_more("renew", asked)
    world.move(1)
    world.store.down = False
    before = world.store.asked("renew")
    world.move(1)
    await world.until_more("renew", before + 19)
    assert [handle.lost for handle in handles] == [False] * 20
    world.move(5)
    assert [handle.lost for handle in handles] == [False] * 20


async def test_an_hour_of_outage_with_fifty_leases_is_a_bounded_number_of_lines(still_world: World) -> None:
    """C191: an outage of an hour with 50 leases, at the loudest level: at most a few lines for each lease, not for each
    try, and the same number of events."""
    world = still_world
    handles = [await world.take(world.locks.lock(f"k{n}", ttl=60, renew=True)) for n in range(50)]
    with recorded(LOG, logging.DEBUG) as lines:
        world.store.down = True
        await world.pass_time(70, step=2)
        await world.pass_time(3_530, step=353)
        assert [handle.lost_reason for handle in handles] == ["expired"] * 50
        assert len(lines) <= 3 * 50
    assert len(world.named("lost")) == 50
    assert len(world.named("renewal_failed")) <= 3 * 50
    world.store.down = False


async def test_a_waiter_in_a_long_outage_says_nothing_for_each_try(still_world: World) -> None:
    """C191: a wait of ten minutes through an outage writes next to nothing, and ends as soon as the store is back."""
    world = still_world
    world.store.down = True

    def asked_more(before: int) -> bool:
        """Time goes on, for the waiter may not have begun to rest when it was moved."""
        world.move(0.05)
        return world.store.asked("acquire") > before

    with recorded(LOG, logging.DEBUG) as lines:
        waiter = world.start(lambda: world.locks.lock("k", wait=3_600).acquire())
        await world.until(lambda: world.store.asked("acquire"))
        for _ in range(60):
            asked = world.store.asked("acquire")
            world.move(2)
            await world.until(partial(asked_more, asked))
        world.store.down = False
        world.move(2)
        world.keep(await waiter.result())
    assert len(lines) <= 3


async def test_a_body_goes_on_through_an_outage_and_learns_the_truth(world: World) -> None:
    """C191, C074: the store goes away for good under a block: the body runs, the block says lost, the process lives."""
    errors: list[object] = []
    before = threading.excepthook
    threading.excepthook = errors.append
    sitter = await world.sit(world.locks.lock("k", ttl=10))
    world.store.down = True
    world.move(11)
    leaving = world.start(sitter.leave)
    await world.until(lambda: world.store.asked("release") or leaving.over)
    world.move(3)
    with pytest.raises(Exception, match="'k'"):
        await leaving.result()
    assert sitter.held.lost_reason == "expired"
    world.store.down = False
    threading.excepthook = before
    assert errors == []


async def test_what_comes_back_is_used_at_once(world: World) -> None:
    """S4: after an outage the next call works; nothing has to be made anew by the caller."""
    world.store.down = True
    for call in (world.locks.lock("k").try_acquire, lambda: world.locks.status("k"), world.locks.list):
        with pytest.raises(StoreUnavailable):
            await done(call())
    world.store.down = False
    async with block(world.locks.lock("k")):
        assert (await done(world.locks.status("k"))).held


def test_an_error_of_a_store_in_the_background_ends_nothing() -> None:
    """C191, C023: a store that raises what it may not, in a renewal, ends neither the process nor other renewals."""
    program = """
import logging, sys, time, leased
from leased.clocks import BlockingClock
from leased.stores.memory import MemoryStore
logging.basicConfig(stream=sys.stdout)

class Broken(MemoryStore):
    calls = 0
    async def renew(self, key, token, **kwargs):
        Broken.calls += 1
        if key == "broken":
            raise ZeroDivisionError("a bug in a store")
        return await super().renew(key, token, **kwargs)
    async def many(self, operations, *, timeout):
        raise ZeroDivisionError("a bug in a store")

locks = leased.connect(Broken(BlockingClock()))
bad = locks.lock("broken", ttl=0.6, renew=True).acquire()
good = locks.lock("good", ttl=0.6, renew=True).acquire()
until = time.monotonic() + 2
while time.monotonic() < until and not bad.lost:
    time.sleep(0.01)
assert bad.lost
assert not good.lost, "the other lease was not renewed"
assert good.release()
print("alive")
"""
    ran = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=20)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1] == "alive"
    assert len(ran.stdout.splitlines()) < 400
