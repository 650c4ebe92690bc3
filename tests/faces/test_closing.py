"""Closing: nothing is granted or renewed any more, nothing is released under a running block, nothing runs on."""

import asyncio
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import leased
from leased import LockLost, LockNotHeld, StoreNotUsable
from tests.faces.world import Async, Blocking, Face, World, block, done


async def test_closed_locks_grant_nothing(world: World) -> None:
    """L11: every use of closed locks is refused with `StoreNotUsable`, which is not retryable."""
    lock = world.locks.lock("k", wait=60)
    await done(world.locks.close())
    calls: list[Any] = [
        lock.acquire,
        lock.try_acquire,
        lambda: lock.run(lambda: None),
        lambda: lock.try_run(lambda: None),
        lock.locked,
        lambda: world.locks.status("k"),
        world.locks.list,
        lambda: world.locks.force_release("k"),
        lambda: world.locks.abandon("k", "a-token-of-my-own-0001"),
    ]
    for call in calls:
        with pytest.raises(StoreNotUsable, match="closed") as raised:
            await done(call())
        assert raised.value.retryable is False
    with pytest.raises(StoreNotUsable):
        async with block(lock):
            pytest.fail("entered")
    assert world.store.asked("acquire") == 0


async def test_closing_twice_and_unopened_is_quiet(face: Face) -> None:
    """L11, L0: closing again, or before anything was opened, does nothing."""
    locks = face.module.connect("memory:never-opened")
    await done(locks.close())
    await done(locks.close())
    async with block(face.module.connect("memory:as-a-block")) as entered, block(entered.lock("k")):
        pass
    with pytest.raises(StoreNotUsable):
        await done(entered.lock("k").try_acquire())


async def test_the_store_is_closed_with_the_locks(world: World) -> None:
    """L11: without a running block the store is closed at once."""
    async with block(world.locks.lock("k")):
        pass
    await done(world.locks.close())
    assert world.store.closed


async def test_nothing_is_released_under_a_running_block(world: World) -> None:
    """L11: a block that runs while its locks are closed keeps its lease, unrenewed; leaving it in time releases."""
    async with block(world.locks.lock("k", ttl=30)) as held:
        await done(world.locks.close())
        assert not held.lost
        assert await world.held("k")
        assert not world.store.closed
        world.move(11)
        await world.face.breathe()
        assert world.store.asked("renew") == 0
    assert world.memory._records == {}
    assert world.store.asked("release") == 1
    assert world.store.closed


async def test_a_block_that_outlives_the_closing_is_lost_as_closed(world: World) -> None:
    """L11: at its deadline the handle of such a block is lost, with its own reason."""
    sitter = await world.sit(world.locks.lock("k", ttl=10))
    await done(world.locks.close())
    assert not sitter.held.lost
    world.move(10)
    assert sitter.held.lost_reason == "closed"
    await world.until(lambda: world.named("lost"))
    assert [event.data["reason"] for event in world.named("lost")] == ["closed"]
    with pytest.raises(LockLost) as raised:
        await sitter.leave()
    assert raised.value.reason == "closed"
    assert world.store.closed


async def test_a_bare_handle_is_not_renewed_after_closing(world: World) -> None:
    """L11: a renewing bare handle goes on to its deadline and is lost as `closed`."""
    handle = await done(world.locks.lock("k", ttl=10, renew=True).acquire())
    await done(world.locks.close())
    assert not handle.lost
    world.move(10)
    assert handle.lost_reason == "closed"
    assert world.store.asked("renew") == 0


async def test_closing_ends_the_waits(world: World) -> None:
    """L11: who waits while the locks are closed is told so soon, and nothing is granted to it, although a block of the
    same locks still runs and then frees the key."""
    sitter = await world.sit(world.locks.lock("k"))
    waiter = world.start(lambda: world.locks.lock("k", wait=600).acquire())
    await world.waiting("k")
    await done(world.locks.close())
    world.move(1)
    with pytest.raises(StoreNotUsable, match="closed"):
        await waiter.result()
    await sitter.leave()
    assert world.store.asked("release") == 1


async def test_a_grant_on_its_way_at_the_closing_is_handed_back(world: World) -> None:
    """L11: an acquire that was asked before and is answered after the closing is not granted, and leaves nothing."""
    keep_open = await world.sit(world.locks.lock("other"))
    world.store.hang("acquire", key="k", times=1)
    asking = world.start(lambda: world.locks.lock("k", wait=60).acquire())
    await world.until(lambda: world.store.asked("acquire", key="k"))
    await done(world.locks.close())
    world.store.let_go()
    with pytest.raises(StoreNotUsable):
        await asking.result()
    assert not await world.held("k")
    await keep_open.leave()


async def test_closing_is_not_held_up_by_a_hung_renewal(world: World) -> None:
    """C025, L11: with a renewal that hangs for ever, closing returns at once."""
    handle = await world.take(world.locks.lock("k", ttl=30, renew=True))
    world.store.hang("renew", past_timeout=True)
    world.move(11)
    await world.until(lambda: world.store.asked("renew"))
    closing = world.start(world.locks.close)
    await closing.result()
    assert not handle.lost
    world.store.let_go()


async def test_others_who_use_the_store_are_not_closed(face: Face) -> None:
    """L8, L11: closing one `Locks` on `memory:` leaves others of the process alone."""
    one, two = face.module.connect("memory:shared-by-two"), face.module.connect("memory:shared-by-two")
    handle = await done(two.lock("k").acquire())
    await done(one.lock("other").try_run(lambda: None))
    await done(one.close())
    assert await done(handle.renew())
    assert await done(handle.release())
    await done(two.close())


def leased_threads() -> list[str]:
    """The threads of this package that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("leased")]


def test_closing_ends_all_threads() -> None:
    """LIVE10, L14: after closing no thread of the client is left within the clean-up budget."""
    world = World(Blocking())
    before = set(threading.enumerate())
    handle = world.locks.lock("k", ttl=30, renew=True).acquire()
    world.move(11)
    wait_until(lambda: world.store.asked("renew") > 0)
    assert set(threading.enumerate()) - before
    handle.release()
    world.locks.close()
    wait_until(lambda: not [t for t in set(threading.enumerate()) - before if t.name.startswith("leased")], seconds=1)


def wait_until(condition: Any, *, seconds: float = 8.0) -> None:
    """Wait for something that other threads will make true."""
    import time

    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, leased_threads()
        time.sleep(0.001)


def test_closing_ends_all_tasks() -> None:
    """LIVE10, L14: after closing no task of the client is left."""
    world = World(Async())

    async def main() -> None:
        handle = await world.locks.lock("k", ttl=30, renew=True).acquire()
        async with world.locks.lock("k2"):
            pass
        await handle.release()
        await world.locks.close()
        for _ in range(20):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    world.run(main)


async def test_a_released_handle_of_closed_locks_stays_released(world: World) -> None:
    """L5: after closing, a handle answers from what it knows."""
    handle = await world.take(world.locks.lock("k"))
    await done(handle.release())
    await done(world.locks.close())
    assert (await done(handle.release())).reason == "already_released"
    with pytest.raises(LockNotHeld):
        handle.ensure_held()
    assert isinstance(leased.StoreNotUsable("x"), leased.StoreUnavailable)


def test_closing_while_others_take_handles() -> None:
    """L11: handles that other threads take in the very moment of closing do not disturb it."""
    locks = leased.connect("memory:closing-while-others-take")

    class Moving(set[weakref.ref[Any]]):
        """Changes while it is gone through for the first time, as a set to which another thread adds."""

        moved = False

        def __iter__(self) -> Iterator[Any]:
            if not self.moved:
                self.moved = True
                raise RuntimeError("Set changed size during iteration")
            return super().__iter__()

    client = locks._client()
    handle = locks.lock("k").acquire()
    client.bare = Moving(client.bare)
    locks.close()
    assert client.bare.moved
    assert handle._hold.last_reason == "closed"
    handle._hold.end("closed")


async def test_a_bare_handle_can_be_released_after_the_closing(face: Face, tmp_path: Path) -> None:
    """L11: closing takes nobody's handle away: its release still frees the key, and the store goes after the last."""
    url = f"sqlite:{tmp_path / 'locks.db'}"
    locks = face.module.connect(url)
    first, second = await done(locks.lock("a").acquire()), await done(locks.lock("b").acquire())
    await done(locks.close())
    assert await done(first.release())
    assert await done(second.release())
    with pytest.raises(StoreNotUsable):
        await done(locks._opening._client.store.status("a", timeout=1.0))
    others = face.module.connect(url)
    assert not (await done(others.status("a"))).held
    assert not (await done(others.status("b"))).held
    await done(others.close())
