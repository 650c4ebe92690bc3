"""Loops, threads and processes that share handles and keys: who may do what, and who is told what."""

import asyncio
import gc
import logging
import secrets
import threading
import warnings
from typing import Any

import pytest

import leased
import leased.aio
from leased import LockLost
from leased.observe import Event
from tests.faces.world import World, block, done, recorded

LOG = logging.getLogger("leased")


@pytest.fixture
def locks() -> leased.aio.Locks:
    """Asyncio locks on a memory store, for several loops."""
    return leased.aio.connect("memory:several-loops")


def test_a_handle_of_one_loop_is_released_in_another(locks: leased.aio.Locks) -> None:
    """C193: acquired in one `asyncio.run`, renewed and released in a second: the store is reached, nothing warns, and
    the first loop's renewals are over."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        handle = asyncio.run(locks.lock("k", renew=True).acquire())

        async def later() -> None:
            assert await handle.renew()
            assert await handle.release()
            assert not (await locks.status("k")).held

        asyncio.run(later())
        gc.collect()


def test_a_handle_is_released_from_a_thread_with_a_loop_of_its_own(locks: leased.aio.Locks) -> None:
    """C193: while the first loop runs, another thread's loop renews and releases the handle; its renewals end."""

    async def main() -> None:
        handle = await locks.lock("k", ttl=5, renew=True).acquire()
        outcomes: list[Any] = []

        async def elsewhere() -> None:
            outcomes.append(await handle.renew(60))
            outcomes.append(await handle.release())

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.001)
        assert all(outcomes)
        assert handle._hold.keeper is None
        assert not (await locks.status("k")).held

    asyncio.run(main())


@pytest.fixture(params=[False, True], ids=["quiet", "observed"])
def kept(request: pytest.FixtureRequest) -> leased.aio.Locks:
    """Asyncio locks on a memory store; where they are observed, bare handles are kept, too."""
    events: list[Event] = []
    url = f"memory:{secrets.token_hex(8)}"  # where no other test holds anything
    return leased.aio.connect(url, observer=events.append if request.param else None)


def test_a_handle_is_renewed_in_the_loop_that_uses_it(kept: leased.aio.Locks) -> None:
    """C193, H1: got with `renew` in a loop that is gone, it is renewed while a block of a second loop runs under it."""
    handle = asyncio.run(kept.lock("k", ttl=1.5, renew=True).acquire())

    async def later() -> None:
        before = handle._hold.applied
        async with handle:
            while handle._hold.applied < before + 2:
                await asyncio.sleep(0.001)
                handle.ensure_held()

    asyncio.run(asyncio.wait_for(later(), 20))


def test_a_block_is_stopped_in_the_loop_in_which_it_runs(kept: leased.aio.Locks) -> None:
    """C193, H3: without renewal, the body of a block in a second loop is cancelled when the lease ends."""
    handle = asyncio.run(kept.lock("k", ttl=0.3).acquire())

    async def later() -> None:
        async with handle:
            await asyncio.sleep(60)

    with pytest.raises(LockLost):
        asyncio.run(asyncio.wait_for(later(), 20))


def test_a_callback_is_called_in_the_loop_in_which_it_was_given(kept: leased.aio.Locks) -> None:
    """C193, H3: `on_lost` of a second loop is called when the lease ends, although the first one is gone."""
    handle = asyncio.run(kept.lock("k", ttl=0.3).acquire())

    async def later() -> None:
        told = asyncio.Event()
        handle.on_lost(told.set)
        await asyncio.wait_for(told.wait(), 20)

    asyncio.run(later())


@pytest.mark.parametrize("last", ["block", "close"])
def test_forgotten_handles_of_a_loop_that_is_gone_have_ended(last: str) -> None:
    """P3: their ends are told by whatever comes next: a block of another loop, or the end of all."""
    events: list[Event] = []
    locks = leased.aio.connect(f"memory:{secrets.token_hex(8)}", observer=events.append)

    async def forget() -> None:
        for number in range(5):
            await locks.lock(f"k{number}", ttl=0.2).acquire()

    async def later() -> None:
        while any([(await locks.status(f"k{number}")).held for number in range(5)]):
            await asyncio.sleep(0.001)
        if last == "block":
            async with locks.lock("another"):
                pass
        else:
            await locks.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of handles that were forgotten
        asyncio.run(forget())
        gc.collect()
    asyncio.run(asyncio.wait_for(later(), 20))
    lost = [event.data["reason"] for event in events if event.name == "lost"]
    assert lost == ["expired"] * 5


def test_loops_wait_for_each_other(locks: leased.aio.Locks) -> None:
    """W3, C193: tasks of two loops stand in one line: a release in one loop wakes the waiter of the other."""
    holding, finish = threading.Event(), threading.Event()
    order: list[str] = []

    async def hold() -> None:
        async with locks.lock("k"):
            holding.set()
            while not finish.is_set():
                await asyncio.sleep(0.001)
            order.append("first")

    async def wait() -> None:
        async with locks.lock("k", wait=10):
            order.append("second")

    threads = [
        threading.Thread(target=lambda: asyncio.run(hold())),
        threading.Thread(target=lambda: asyncio.run(wait())),
    ]
    threads[0].start()
    assert holding.wait(5)
    threads[1].start()
    while locks._client().env.lines.waiting("k") == 0:
        pass
    finish.set()
    for thread in threads:
        thread.join(10)
    assert order == ["first", "second"]


def test_both_faces_wait_for_each_other() -> None:
    """L8, W3: a thread of the blocking face waits in the same line as tasks, for the same memory store."""
    blocking, asynchronous = leased.connect("memory:both-faces"), leased.aio.connect("memory:both-faces")
    order: list[str] = []

    def wait() -> None:
        with blocking.lock("k", wait=10):
            order.append("thread")

    async def main() -> None:
        thread = threading.Thread(target=wait)
        async with asynchronous.lock("k"):
            thread.start()
            while blocking._client().env.lines.waiting("k") == 0:
                await asyncio.sleep(0.001)
            order.append("task")
        while thread.is_alive():
            await asyncio.sleep(0.001)

    asyncio.run(main())
    assert order == ["task", "thread"]


def test_an_owner_is_reserved_across_loops(locks: leased.aio.Locks) -> None:
    """O1: a block of one loop keeps claims of its owner out in another loop of the process, too."""
    inside, finish = threading.Event(), threading.Event()

    async def hold() -> None:
        async with locks.lock("k", owner="run-7"):
            inside.set()
            while not finish.is_set():
                await asyncio.sleep(0.001)

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    assert inside.wait(5)
    assert asyncio.run(locks.lock("k", owner="run-7").try_acquire()) is None
    finish.set()
    thread.join(5)


def test_a_loop_that_ends_with_a_renewing_handle_lets_it_run_out(locks: leased.aio.Locks) -> None:
    """C193, L14: nobody renews for a loop that is gone; the handle is lost at its deadline and says so."""
    handle = asyncio.run(locks.lock("k", ttl=0.2, renew=True).acquire())
    give_up = threading.Event()
    give_up.wait(0.2)
    assert handle.lost_reason == "expired"
    with pytest.raises(LockLost):
        handle.ensure_held()


def test_a_forgotten_handle_of_a_dead_loop_raises_nothing(locks: leased.aio.Locks) -> None:
    """C029, C193: dropping it is a warning that names the key, not an error of a closed loop."""

    async def main() -> list[Any]:
        return [await locks.lock("dropped", renew=True).acquire()]

    kept = asyncio.run(main())
    with recorded(LOG, logging.WARNING) as lines, pytest.warns(ResourceWarning, match="dropped"):
        kept.clear()
    gc.collect()
    assert len([line for line in lines if "dropped" in line]) == 1


async def test_equal_names_are_no_identity(world: World) -> None:
    """C014: two processes with equal host, process id and owner-less claims: one holds, and whatever the other builds
    of names renews and releases nothing."""
    held = await world.take(world.locks.lock("k"))
    other = world.elsewhere()
    assert await done(other.lock("k").try_acquire()) is None
    status = await done(other.status("k"))
    forged = held.dump().replace(held.token, "0" * len(held.token))
    with pytest.raises(leased.LockNotHeld):
        await done(other.restore(forged))
    await done(other.abandon("k", "0" * 32))
    assert status.held_by
    assert await done(held.renew())


async def test_only_expiry_decides_never_whether_a_process_lives(world: World) -> None:
    """C099, M12: the holder's process is gone, or has our own number: its lease still stands until it expires."""
    handle = await world.occupy("k", ttl=30)
    status = await done(world.locks.status("k"))
    assert {"host", "pid", "program"} <= set(status.metadata)
    handle._hold.end("handed_over")
    assert await done(world.locks.lock("k").try_acquire()) is None
    world.move(29)
    assert await done(world.locks.lock("k").try_acquire()) is None
    world.move(1)
    assert await done(world.keep(await done(world.locks.lock("k").try_acquire())).release())


async def test_a_renewal_in_flight_changes_nothing_after_the_release(world: World) -> None:
    """C019: a renewal is on its way while the block is left: the key is free and stays free, and none follows."""
    world.store.hang("renew", times=1)
    async with block(world.locks.lock("k", ttl=10)) as held:
        world.move(4)
        await world.until(lambda: world.store.asked("renew"))
    assert not await world.held("k")
    world.store.let_go()
    world.move(30)
    await world.face.breathe()
    assert not await world.held("k")
    assert world.store.asked("renew") == 1
    assert not held.lost


async def test_an_ended_run_cannot_free_the_next_one(world: World) -> None:
    """C092: run X overran, run Y has the key: whatever X does at its end, Y keeps it; only force ignores the token."""
    run_x = await world.take(world.locks.lock("k", ttl=10))
    world.move(11)
    run_y = await world.occupy("k", ttl=60)
    assert not await done(run_x.release())
    assert not await done(run_x.renew())
    await done(world.locks.abandon("k", run_x.token))
    assert not await done(world.locks.force_release("k", run_x.fencing_token))
    assert await done(run_y.renew())
    assert world.store.asked("force_release") == 1


async def test_the_paused_holder_learns_before_it_can_harm(world: World) -> None:
    """C199, H7: A is paused, B acquires and writes; when A goes on its handle says lost at once, and the guard, which
    takes no lower number, refuses its write."""
    guard: list[int] = []

    def write(fencing_token: int) -> bool:
        if guard and fencing_token < guard[-1]:
            return False
        guard.append(fencing_token)
        return True

    paused = await world.take(world.locks.lock("k", ttl=10))
    world.move(60)
    quick = await world.occupy("k")
    assert write(quick.fencing_token)
    assert paused.lost
    assert not write(paused.fencing_token)
    assert write(quick.fencing_token)
