"""Blocks inside blocks: waiting for oneself, the current handle, shared locks, holds left elsewhere."""

import asyncio
import contextvars
import functools
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest

import leased
import leased.aio
from leased import LockDeadlock, LockLost, LockNotAcquired, LockNotHeld
from tests.faces.world import Async, Blocking, World, block, done


async def test_waiting_for_oneself_is_refused_at_once(still_world: World) -> None:
    """C085, L9: a waiting claim on a key that an enclosing block holds raises `LockDeadlock`; a single try is
    contention (this clock stands still: a wait would hang)."""
    world = still_world
    lock = world.locks.lock("k")
    async with block(lock), block(world.locks.lock("between")):
        for wait in (0.5, 60, leased.FOREVER):
            with pytest.raises(LockDeadlock) as raised:
                await done(world.locks.lock("k").acquire(wait))
            assert raised.value.key == "k"
            assert "'k'" in str(raised.value)
        with pytest.raises(LockDeadlock):
            async with block(world.locks.lock("k", wait=60)):
                pytest.fail("entered")
        with pytest.raises(LockDeadlock):
            await done(world.locks.lock("k", wait=60).run(lambda: None))
        assert await done(lock.try_acquire()) is None
        with pytest.raises(LockNotAcquired) as refused:
            await done(lock.acquire())
        assert not isinstance(refused.value, LockDeadlock)


async def test_other_callers_of_the_process_wait_as_anybody_does(world: World) -> None:
    """L9: a thread or task started inside a block waits for it and is granted the key after it."""
    lock = world.locks.lock("k", wait=30)
    async with block(lock):
        waiter = world.start(lambda: lock.acquire())
        await world.waiting("k")
    await done(world.keep(await waiter.result()).release())


async def test_a_key_of_another_store_is_another_key(world: World) -> None:
    """L9, S3: the same key in another store, or another key here, is no deadlock."""
    other = World(world.face)
    elsewhere, another = other.locks.lock("k", wait=5), world.locks.lock("k2", wait=5)
    async with block(world.locks.lock("k")), block(elsewhere), block(another):
        assert await other.held("k")
    await other.close()


async def test_a_lost_block_is_waited_for_by_its_own_caller(world: World) -> None:
    """L9, C042: once the enclosing lease is lost, waiting is no deadlock any more: the key is granted again."""
    lock = world.locks.lock("k", ttl=10, renew=False, if_lost="return")
    async with block(lock):
        world.move(11)
        async with block(world.locks.lock("k", wait=5)) as again:
            assert not again.lost


def test_the_deadlock_names_the_line_where_the_key_was_taken() -> None:
    """L9: file and line of the enclosing block are the caller's, however the block was entered."""
    world = World(Blocking())
    lock = world.locks.lock("k")
    told: list[tuple[str, str]] = []

    def inner() -> None:
        with pytest.raises(LockDeadlock) as raised:
            lock.acquire(5)
        told.append((raised.value.taken_at, str(raised.value)))

    lines = [sys._getframe().f_lineno + offset for offset in (1, 3, 5, 7, 8)]
    with lock:
        inner()
    with lock.hold():
        inner()
    with lock.acquire():
        inner()
    lock.run(inner)
    lock(inner)()
    for line, (taken_at, text) in zip(lines, told, strict=True):
        assert taken_at == f"{__file__}:{line}"
        assert taken_at in text


def test_the_async_deadlock_names_the_line_where_the_key_was_taken() -> None:
    """L9: as in the blocking face."""
    world = World(Async())
    lock = world.locks.lock("k")
    told: list[str] = []

    async def inner() -> None:
        with pytest.raises(LockDeadlock) as raised:
            await lock.acquire(5)
        told.append(raised.value.taken_at)

    async def main() -> list[int]:
        lines = [sys._getframe().f_lineno + offset for offset in (1, 3, 5, 7, 8)]
        async with lock:
            await inner()
        async with lock.hold():
            await inner()
        async with await lock.acquire():
            await inner()
        await lock.run(inner)
        await lock(inner)()
        return lines

    lines = asyncio.run(main())
    assert told == [f"{__file__}:{line}" for line in lines]


async def test_current_is_the_handle_of_the_innermost_block(world: World) -> None:
    """L10: `current()` and `current_fencing_token()` follow blocks in and out, from any depth of calls, lost or not."""

    def deep(depth: int) -> Any:
        return deep(depth - 1) if depth else (leased.current(), leased.current_fencing_token())

    assert deep(3) == (None, None)
    async with block(world.locks.lock("a", ttl=10, renew=False, if_lost="return")) as outer:
        assert deep(3) == (outer, outer.fencing_token)
        async with block(world.locks.lock("b")) as inner:
            assert deep(3) == (inner, inner.fencing_token)
        assert deep(3) == (outer, outer.fencing_token)
        world.move(11)
        assert outer.lost
        assert deep(3) == (outer, outer.fencing_token)
        bare = await world.take(world.locks.lock("bare"))
        assert deep(0) == (outer, outer.fencing_token)
        await done(bare.release())
    assert deep(0) == (None, None)


async def test_both_faces_share_what_is_current(world: World) -> None:
    """L10: the names of both faces are the same functions."""
    assert leased.current is leased.aio.current
    assert leased.current_fencing_token is leased.aio.current_fencing_token
    assert leased.owner_scope is leased.aio.owner_scope


def test_current_follows_tasks_and_to_thread() -> None:
    """L10: a task started inside a block, and a function in a worker thread, see its handle; other tasks do not."""
    world = World(Async())

    async def main() -> None:
        outside_go = asyncio.Event()

        async def outside() -> Any:
            await outside_go.wait()
            return leased.current()

        stranger = asyncio.create_task(outside())
        async with world.locks.lock("k") as held:
            outside_go.set()
            assert await asyncio.create_task(asyncio.sleep(0, leased.current())) is held

            async def inside() -> Any:
                return leased.current()

            assert await asyncio.create_task(inside()) is held
            assert await asyncio.to_thread(leased.current) is held
            assert await stranger is None
        assert leased.current() is None

    world.run(main)


async def test_blocks_left_in_another_order_leave_the_right_one_current(world: World) -> None:
    """L10: leaving an outer block first does not make it current again, nor end the inner one."""
    outer, inner = block(world.locks.lock("a").hold()), block(world.locks.lock("b").hold())
    await outer.__aenter__()
    held = await inner.__aenter__()
    await outer.__aexit__(None, None, None)
    assert leased.current() is held
    assert not await world.held("a")
    assert await world.held("b")
    await inner.__aexit__(None, None, None)
    assert leased.current() is None
    assert not await world.held("b")


async def test_a_hold_is_used_once(world: World) -> None:
    """L2: `lock.hold()` is single-use; the lock itself is not."""
    lock = world.locks.lock("k")
    hold = lock.hold()
    async with block(hold):
        pass
    with pytest.raises(LockNotHeld):
        async with block(hold):
            pytest.fail("entered twice")
    for _ in range(3):
        async with block(lock):
            pass


async def test_a_hold_may_be_left_by_another_thread_or_task(world: World) -> None:
    """L2: a hold that one thread or task enters is left by another, which releases the key."""
    hold = block(world.locks.lock("k").hold())
    held = await world.start(hold.__aenter__).result()
    assert await world.held("k")
    assert not held.lost
    await world.start(lambda: hold.__aexit__(None, None, None)).result()
    assert not await world.held("k")


async def test_a_shared_lock_is_left_by_whoever_entered_it(world: World) -> None:
    """C010: three callers overrun in the same lock object; each leaves its own block, and nobody frees another's."""
    lock = world.locks.lock("k", ttl=10, renew=False)
    entered: list[Any] = []
    leave = [threading.Event() for _ in range(3)]

    def entered_by(number: int) -> bool:
        return len(entered) == number

    async def work(number: int) -> str:
        try:
            async with block(lock) as held:
                entered.append(held)
                await world.until(leave[number].is_set)
        except LockLost:
            return "lost"
        return "held"

    workers = []
    for number in range(3):
        workers.append(world.start(functools.partial(work, number)))
        await world.until(functools.partial(entered_by, number + 1))
        if number < 2:
            world.move(11)
    leave[1].set()
    assert await workers[1].result() == "lost"
    leave[0].set()
    assert await workers[0].result() == "lost"
    assert await world.held("k")
    assert not entered[2].lost
    leave[2].set()
    assert await workers[2].result() == "held"
    assert not await world.held("k")


async def test_a_shared_lock_left_in_another_context_frees_its_own_block_or_none(world: World) -> None:
    """C010, C092: a slow caller's `__exit__` that runs in another context never frees the block of the next holder."""
    lock = world.locks.lock("k", ttl=10, renew=False, if_lost="return")
    slow = block(lock)

    async def enter_slow() -> Any:
        return await slow.__aenter__()

    first = await world.start(enter_slow).result()
    world.move(11)
    assert first.lost
    go_on = threading.Event()
    entered: list[Any] = []

    async def quick() -> None:
        async with block(lock) as held:
            entered.append(held)
            await world.until(go_on.is_set)

    second = world.start(quick)
    await world.until(lambda: entered)

    async def leave_slow() -> None:
        await slow.__aexit__(None, None, None)

    with suppress(leased.LeasedError, RuntimeError):
        await world.start(leave_slow).result()
    assert await world.held("k")
    assert not entered[0].lost
    go_on.set()
    await second.result()
    assert not await world.held("k")


def test_a_lock_entered_twice_by_one_thread_for_different_keys_nests() -> None:
    """L1: one lock object of a key that is free again can be entered inside a copy of the caller's context."""
    world = World(Blocking())
    lock = world.locks.lock("k")

    def enter() -> None:
        with lock:
            assert world.locks.status("k").held

    contextvars.copy_context().run(enter)
    with lock:
        pass
    assert not world.locks.status("k").held
