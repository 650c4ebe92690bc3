"""Cancelling tasks at every point at which they wait: nothing is left held, and the caller sees its cancellation."""

# ruff: noqa: PT012 (what a whole block raises at its end is what these tests are about)

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import leased
from leased import StoreUnavailable
from tests.faces.faults import Call
from tests.faces.world import Async, World

Main = Callable[[World], Awaitable[Any]]


class Pausing(World):
    """A world whose store lets the loop turn before and after each operation, so that every call can be cut there."""

    def __init__(self) -> None:
        super().__init__(Async())
        self.cut: asyncio.Task[Any] | None = None
        self.cut_at = -1
        self.pauses = 0
        for operation in ("acquire", "release", "renew", "look", "status"):
            self.store.before(operation, self._pause, times=float("inf"))
            self.store.after(operation, self._pause, times=float("inf"))

    async def _pause(self, call: Call) -> None:
        """One point to be cancelled at; clean-up that is not the caller's own task is not cut."""
        if self.cut is not None and asyncio.current_task() is self.cut:
            self.pauses += 1
            if self.pauses - 1 == self.cut_at:
                self.cut.cancel()
        await asyncio.sleep(0)


async def cut_everywhere(work: Main, check: Main) -> int:
    """Run work once for each point at which its task can be cancelled; `check` what is left each time."""
    at = 0
    while True:
        world = Pausing()
        task = world.cut = asyncio.create_task(_run(work, world))
        world.cut_at = at
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if world.pauses <= at:
            await world.close()
            return at
        assert task.cancelled()
        world.cut = None
        await check(world)
        await world.close()
        at += 1


async def _run(work: Main, world: World) -> Any:
    return await work(world)


async def everything_is_free(world: World) -> None:
    """No hold, no line, no owner, no block, no renewal; and the next one gets the key within a round trip."""
    await settle()
    client = world.locks._client()
    assert not await world.held("k")
    assert (client.env.lines._lines, client.env.lines._reserved, client.blocks) == ({}, {}, set())
    handle = await world.elsewhere().lock("k").try_acquire()
    assert handle is not None
    await handle.release()
    renewed = world.store.asked("renew")
    world.move(40)
    await settle()
    assert world.store.asked("renew") == renewed


async def settle() -> None:
    """Let the loop do what is ready."""
    for _ in range(10):
        await asyncio.sleep(0)


async def use_block(world: World) -> None:
    """`async with lock:`."""
    async with world.locks.lock("k", owner="o"):
        await asyncio.sleep(0)


async def use_handle(world: World) -> None:
    """`acquire`, `renew`, `release`."""
    handle = world.keep(await world.locks.lock("k", owner="o").acquire())
    await handle.renew()
    await handle.release()


async def use_run(world: World) -> None:
    """`run` of an async function."""

    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert (await world.locks.lock("k", owner="o").run(work)).value == 7


def test_a_block_cancelled_at_any_point_leaves_nothing() -> None:
    """C001, C004, L12: wherever its task is cancelled, the cancellation comes out and the key is free."""
    for use in (use_block, use_run):
        assert asyncio.run(cut_everywhere(use, everything_is_free)) >= 4


def test_a_cancelled_release_frees_the_key_or_can_be_made_again() -> None:
    """C002: the release is cancelled at each point: the key is free, or the same handle frees it; nobody renews on."""

    async def work(world: World) -> None:
        cut_at, world_ = -1, world
        assert isinstance(world_, Pausing)
        cut_at, world_.cut_at = world_.cut_at, -1
        handle = world.keep(await world.locks.lock("k", ttl=30, renew=True).acquire())
        world_.cut_at, world_.pauses = cut_at, 0
        await handle.release()

    async def check(world: World) -> None:
        await settle()
        (handle,) = world.kept
        if await world.held("k"):
            assert await handle.release()
        assert not await world.held("k")
        assert (await handle.release()).reason == "already_released"
        world.move(40)
        await settle()
        assert world.store.asked("renew") == 0

    assert asyncio.run(cut_everywhere(work, check)) >= 2


def test_a_cancelled_renewal_leaves_the_lease_as_it_was_or_renewed() -> None:
    """H1: a renewal that is cancelled is no loss: the earlier deadline stands, or the new one; it can be renewed."""

    async def work(world: World) -> None:
        assert isinstance(world, Pausing)
        cut_at, world.cut_at = world.cut_at, -1
        handle = world.keep(await world.locks.lock("k", ttl=30).acquire())
        world.cut_at, world.pauses = cut_at, 0
        await handle.renew(60)

    async def check(world: World) -> None:
        (handle,) = world.kept
        assert 28 < handle.remaining() < 60
        assert await handle.renew(60)
        assert handle.remaining() > 55
        assert await handle.release()

    assert asyncio.run(cut_everywhere(work, check)) >= 2


def test_an_acquire_cancelled_at_the_instant_of_the_grant_is_handed_back() -> None:
    """C001: the store grants, and in the same instant the task is cancelled: within one round trip a third caller has
    the key, and before that the cancellation does not reach the caller."""
    world = World(Async())

    async def main() -> None:
        held = await world.occupy("k")
        task = asyncio.create_task(world.locks.lock("k", wait=30).acquire())
        await world.waiting("k")
        await world.until(lambda: world.memory._bells)

        async def cancel(call: Call) -> None:
            answer = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(answer.set_result, None)
            asyncio.get_running_loop().call_soon(task.cancel)
            await answer

        await settle()
        world.store.after("acquire", cancel)
        await held.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.store.asked("abandon") == 1
        third = await world.elsewhere().lock("k").try_acquire()
        assert third is not None
        await third.release()
        assert world.locks._client().env.lines.waiting("k") == 0

    world.run(main)


def test_a_waiter_cancelled_at_any_moment_leaves_the_line() -> None:
    """C001, L12: cancelled in the line, in the middle or at the front: those behind are served, nothing is left."""
    world = World(Async())

    async def main() -> None:
        held = await world.occupy("k")
        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(world.locks.lock("k", wait=60).acquire()))
            await world.waiting("k", number + 1)
        for number in (2, 0, 4):
            tasks[number].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[number]
        await world.waiting("k", 2)
        await held.release()
        first = await tasks[1]
        assert not tasks[3].done()
        await first.release()
        await (await tasks[3]).release()
        assert world.locks._client().env.lines._lines == {}

    world.run(main)


def test_a_release_in_a_dead_deadline_is_still_sent() -> None:
    """C004, L12: the body's time-out has passed, or its task is cancelled again while it leaves: the release is made in
    its own budget, the key is free right after, and the caller sees its cancellation."""
    world = World(Async())

    async def main() -> None:
        world.store.delay("release", 0.02, times=9)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001), world.locks.lock("k"):
                await asyncio.sleep(60)
        assert not await world.held("k")

        async def body() -> None:
            async with world.locks.lock("k"):
                await asyncio.sleep(60)

        task = asyncio.create_task(body())
        await world.until(lambda: world.memory._records)
        task.cancel()
        for _ in range(3):
            await settle()
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await world.held("k")

    world.run(main)


def test_a_clean_up_ends_within_its_budget() -> None:
    """L12: where the store does not answer, a cancelled caller is let go after the clean-up budget; the lease was never
    renewed and is over within one ttl."""
    world = World(Async(), flowing=False)

    async def main() -> None:
        world.store.hang("acquire", times=1)
        world.store.hang("abandon", past_timeout=True)
        task = asyncio.create_task(world.locks.lock("k", wait=60).acquire())
        await world.until(lambda: world.store.asked("acquire"))
        task.cancel()
        await settle()
        assert not task.done()
        await world.pass_time(2.5)
        with pytest.raises(asyncio.CancelledError):
            await task

    world.run(main)


def test_cancelling_does_not_take_back_a_callers_own_token_unless_cancelled() -> None:
    """O6: an acquire with a token of the caller's is kept when it ends in `StoreUnavailable`, and abandoned when it is
    cancelled."""
    world = World(Async())

    async def main() -> None:
        token = "a-token-of-my-own-0001"
        world.store.lose_answer("acquire", times=2)
        with pytest.raises(StoreUnavailable):
            await world.locks.lock("k").try_acquire(token=token)
        assert await world.held("k")
        await world.locks.abandon("k", token)

        async def hang(call: Call) -> None:
            await asyncio.sleep(60)

        world.store.after("acquire", hang)
        task = asyncio.create_task(world.locks.lock("k2").try_acquire(token=f"{token}-other"))
        await world.until(lambda: world.store.asked("acquire", key="k2"))
        await settle()
        assert await world.held("k2")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await world.held("k2")

    world.run(main)


def test_a_task_group_that_fails_frees_the_blocks_of_its_members() -> None:
    """C077: when one task of a group fails the others are cancelled in their blocks, and every key is free."""
    world = World(Async())

    async def main() -> None:
        async def sit(key: str) -> None:
            async with world.locks.lock(key):
                await asyncio.sleep(60)

        async def fail() -> None:
            await world.until(lambda: len(world.memory._records) == 3)
            raise ZeroDivisionError

        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.TaskGroup() as group:
                for key in ("a", "b", "c"):
                    group.create_task(sit(key))
                group.create_task(fail())
        assert raised.value.subgroup(ZeroDivisionError)
        assert not raised.value.subgroup(leased.LeasedError)
        assert await world.locks.list() == []

    world.run(main)
