"""Growth: after many keys, waits, losses and cancellations everything is as small as at the start."""

import asyncio
import gc
import sys
import threading
from typing import Any

import leased
import leased.aio
from leased.policy import REPLAY_WINDOW
from tests.faces.world import Async, Blocking, World, block, done

KEYS = 50_000


def remembered(world: World) -> dict[str, int]:
    """How much each part of client and store keeps."""
    client = world.locks._client()
    keepers = [close.__self__ for close in client.closers if hasattr(close, "__self__")]
    return {
        "lines": len(client.env.lines._lines),
        "owners": len(client.env.lines._reserved),
        "blocks": len(client.blocks),
        "bare": len(client.bare),
        "records": len(world.memory._records),
        "marks": len(world.memory._marks),
        "bells": len(world.memory._bells),
        "kept": sum(len(k._heap) + len(k._fresh) for k in keepers if hasattr(k, "_heap")),
    }


async def test_keys_that_were_used_leave_nothing(world: World) -> None:
    """C180: thousands of keys, in blocks, as bare handles, with owners, waited for and refused: nothing is kept."""
    world.store.calls = Forgetful()
    handle = None
    for number in range(1_000):
        lock = world.locks.lock(f"k{number}", owner="o", wait=1)
        async with block(lock):
            assert await done(world.locks.lock(f"k{number}").try_acquire()) is None
        handle = await done(lock.acquire())
        await done(handle.release())
    handle = None
    left = remembered(world)
    assert left.pop("kept") < 200
    assert left == dict.fromkeys(left, 0)


class Forgetful(list[Any]):
    """A list that keeps nothing."""

    def append(self, item: object) -> None:
        """Forget it."""


async def test_leases_that_ran_out_are_swept(world: World) -> None:
    """C180, C179, S9: keys that nobody released are gone after the replay window, in bounded steps."""
    world.store.calls = Forgetful()
    for number in range(2_000):
        handle = await done(world.locks.lock(f"k{number}", ttl=1).acquire())
        handle._hold.end("handed_over")
    world.move(1 + REPLAY_WINDOW + 1)
    for number in range(1_100):
        await done(world.locks.lock(f"later{number}").run(lambda: None))
    assert remembered(world)["records"] <= 64
    assert remembered(world)["marks"] == 0


async def test_abandoned_tokens_are_forgotten_after_the_window(world: World) -> None:
    """C180, O5: marks of ended tokens go with the replay window."""
    world.store.calls = Forgetful()
    for number in range(1_000):
        await done(world.locks.abandon("k", f"a-token-of-nobody-{number:06}"))
    assert remembered(world)["marks"] == 1_000
    world.move(REPLAY_WINDOW + 1)
    for number in range(200):
        await done(world.locks.lock(f"later{number}").run(lambda: None))
    assert remembered(world)["marks"] == 0


async def test_a_key_used_again_later_still_gets_a_higher_number(world: World) -> None:
    """C179, M4: after its record was swept a key's next fencing token is above every earlier one."""
    first = await done(world.locks.lock("k", ttl=1).acquire())
    first._hold.end("handed_over")
    world.move(10 * 86_400)
    for number in range(100):
        await done(world.locks.lock(f"other{number}").run(lambda: None))
    second = await done(world.locks.lock("k").acquire())
    assert second.fencing_token > first.fencing_token
    await done(second.release())


def measured(work: Any) -> int:
    """Blocks of memory that are still allocated after this work, beyond what there was before."""
    work(1_000)
    gc.collect()
    before = sys.getallocatedblocks()
    work(KEYS)
    gc.collect()
    return sys.getallocatedblocks() - before


def test_memory_returns_to_the_start_on_the_blocking_face() -> None:
    """C180: after fifty thousand distinct keys memory is as at the start."""
    with leased.connect("memory:growth-blocking") as locks:

        def work(number: int) -> None:
            for n in range(number):
                with locks.lock(f"growth:{n}"):
                    pass

        assert measured(work) < KEYS / 100


def test_memory_returns_to_the_start_on_the_asyncio_face() -> None:
    """C180: as on the blocking face."""

    async def use(number: int) -> None:
        async with leased.aio.connect("memory:growth-async") as locks:
            for n in range(number):
                async with locks.lock(f"growth:{n}"):
                    pass

    assert measured(lambda number: asyncio.run(use(number))) < KEYS / 100


def test_cancelled_waiters_leave_nothing() -> None:
    """C180: thousands of cancelled waits leave no place, watch, task or mark behind."""
    world = World(Async())

    async def main() -> None:
        held = await world.occupy("k", ttl=3_600)
        for _ in range(20):
            tasks = [asyncio.create_task(world.locks.lock("k", wait=60).acquire()) for _ in range(100)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await held.release()
        for _ in range(10):
            await asyncio.sleep(0)
        left = remembered(world)
        assert left == dict.fromkeys(left, 0)
        assert len(asyncio.all_tasks()) <= 2

    world.run(main)


def test_threads_do_not_pile_up() -> None:
    """H1, C180: a hundred renewed leases, held, renewed and released again and again, use a handful of threads."""
    world = World(Blocking())
    before = threading.active_count()
    most = 0
    for _ in range(3):
        handles = [world.locks.lock(f"k{n}", ttl=10, renew=True).acquire() for n in range(100)]
        world.move(3.5)
        most = max(most, threading.active_count() - before)
        for handle in handles:
            handle.release()
    world.locks.close()
    assert most <= 4


async def test_a_lock_object_keeps_nothing_of_its_blocks(world: World) -> None:
    """C180: a lock that is entered thousands of times, and refused as often, stays as it is."""
    lock = world.locks.lock("k")
    for _ in range(500):
        async with block(lock):
            try:
                async with block(world.locks.lock("k")):
                    pass
            except leased.LockNotAcquired:
                continue
    assert lock._scopes == []
