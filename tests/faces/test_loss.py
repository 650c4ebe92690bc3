"""Losing a lease: what the body, the block, the handle and the hooks are told, on both faces."""

# ruff: noqa: PT012 (what a whole block raises at its end is what these tests are about)

import asyncio
import contextlib
import logging
import threading
from typing import Any

import pytest

import leased
import leased.aio
from leased import LockLost, LockNotHeld, StoreNotUsable, StoreUnavailable
from tests.faces.world import Async, Blocking, World, block, done, recorded

LOG = logging.getLogger("leased")
IN_BLOCK = ("plain", "hold", "handle", "decorator", "run")


async def through(world: World, how: str, body: Any, **terms: Any) -> Any:
    """Run a plain function as the body of a block, entered in one of the ways there are."""
    lock = world.locks.lock("k", ttl=10, renew=False, **terms)
    if how == "plain":
        async with block(lock):
            return body()
    if how == "hold":
        async with block(lock.hold()):
            return body()
    if how == "handle":
        async with block(await world.take(lock)):
            return body()
    if how == "run":
        return await done(lock.run(body))
    if world.face.name == "blocking":
        return lock(body)()

    async def coroutine() -> Any:
        return body()

    return await lock(coroutine)()


@pytest.mark.parametrize("how", IN_BLOCK)
async def test_held_to_the_end_and_failed_is_the_bodys_own_error(world: World, how: str) -> None:
    """H4, C077: without a loss a failing body's error comes out as it is, and the key is free."""
    error = ValueError("mine")

    def body() -> None:
        raise error

    with pytest.raises(ValueError, match="mine") as raised:
        await through(world, how, body)
    assert raised.value is error
    assert not await world.held("k")


@pytest.mark.parametrize("how", IN_BLOCK)
async def test_lost_and_failed_is_a_loss_chained_from_the_bodys_error(world: World, how: str) -> None:
    """H4: lost and failed raises `LockLost` with key and reason, chained from what the body raised."""
    error = ValueError("mine")

    def body() -> None:
        world.move(11)
        raise error

    with pytest.raises(LockLost) as raised:
        await through(world, how, body)
    assert raised.value.__cause__ is error
    assert (raised.value.key, raised.value.reason) == ("k", "expired")


@pytest.mark.parametrize("how", [how for how in IN_BLOCK if how != "run"])
async def test_lost_and_succeeded_raises_unless_told_to_return(world: World, how: str) -> None:
    """H4: lost and succeeded raises `LockLost`; with `if_lost="return"` it passes."""
    with pytest.raises(LockLost) as raised:
        await through(world, how, lambda: world.move(11))
    assert raised.value.__cause__ is None
    await through(world, how, lambda: world.move(11), if_lost="return")


@pytest.mark.parametrize("how", IN_BLOCK)
async def test_a_failed_release_never_replaces_the_bodys_error(world: World, how: str) -> None:
    """C074, H4: the store fails at the release: the body's error comes out, with a note, and the problem is logged."""
    error = ValueError("mine")
    world.store.fail("release", StoreNotUsable("no permission"), times=9)

    def body() -> None:
        raise error

    with recorded(LOG, logging.WARNING) as lines, pytest.raises(ValueError, match="mine") as raised:
        await through(world, how, body)
    assert raised.value is error
    assert any("no permission" in note for note in error.__notes__)
    assert any("no permission" in line for line in lines)
    world.store.let_go()
    world.move(11)


@pytest.mark.parametrize("how", IN_BLOCK)
async def test_a_failed_release_after_success_is_logged_and_told(world: World, how: str) -> None:
    """C074: after a body that succeeded a failed release is a log line and an event; the block ends as it would."""
    world.store.fail("release", StoreNotUsable("no permission"), times=9)
    with recorded(LOG, logging.WARNING) as lines:
        await through(world, how, lambda: "value")
    assert any("no permission" in line for line in lines)
    assert [event.data["error"] for event in world.named("release_failed")] == ["StoreNotUsable"]
    world.store.let_go()
    world.move(11)


async def test_a_block_whose_lease_was_taken_says_so(world: World) -> None:
    """C092, H2: a block that overran and was followed by another holder tells the loss and leaves the key to it."""

    def body() -> None:
        world.move(10.5)

    other: Any = None
    with pytest.raises(LockLost):
        async with block(world.locks.lock("k", ttl=10, renew=False)) as held:
            body()
            other = await world.occupy("k", ttl=60)
    assert held.lost_reason == "expired"
    assert await world.held("k")
    assert not other.lost
    assert await done(other.renew())


async def test_a_renewal_that_is_refused_names_the_reason(world: World) -> None:
    """H2: what the store answers to a renewal is what the handle says: forced, retaken, taken."""
    for reason in ("force_released", "retaken", "taken"):
        handle = await world.take(world.locks.lock(reason, ttl=10, owner="o"))
        elsewhere = world.elsewhere()
        if reason == "force_released":
            await done(elsewhere.force_release(reason))
        elif reason == "retaken":
            await world.take(elsewhere.lock(reason, owner="o"))
        else:
            await done(elsewhere.abandon(reason, handle.token))
            await world.take(elsewhere.lock(reason))
        outcome = await done(handle.renew())
        assert (outcome.reason, outcome.lost_reason, handle.lost_reason) == ("lease_lost", reason, reason)


async def test_the_background_renewal_notices_a_loss(world: World) -> None:
    """H1, H2: the first definite loss ends a renewed lease at once: handle, hook, event and log line all say it."""
    handle = await world.take(world.locks.lock("k", ttl=30, renew=True))
    called = threading.Event()
    handle.on_lost(called.set)
    with recorded(LOG, logging.WARNING) as lines:
        await done(world.elsewhere().force_release("k"))
        world.move(11)
        await world.until(called.is_set)
    assert handle.lost_reason == "force_released"
    assert [event.data["reason"] for event in world.named("lost")] == ["force_released"]
    assert sum("'k'" in line for line in lines) == 1


async def test_a_partitioned_holder_stops_believing_by_its_own_clock(still_world: World) -> None:
    """C033, H2: every packet is swallowed; the handle is lost one ttl after the last confirmed call was started."""
    world = still_world
    handle = await world.take(world.locks.lock("k", ttl=15, renew=True))
    asked_at = world.clock.now()
    lost_at: list[float] = []
    handle.on_lost(lambda: lost_at.append(world.clock.now()))
    world.store.hang("renew", past_timeout=True)
    world.store.hang("many", past_timeout=True)
    while not handle.lost:
        await world.pass_time(0.25)
        assert world.clock.now() <= asked_at + 15
    await world.until(lambda: lost_at)
    assert handle.lost_reason == "expired"
    assert lost_at[0] <= asked_at + 15
    world.store.let_go()


async def test_errors_and_refusals_of_renewals_both_end_in_a_loss_in_time(still_world: World) -> None:
    """C036: when every renewal raises, the lost signal fires the stated margin before the last confirmed expiry."""
    world = still_world
    handle = await world.take(world.locks.lock("k", ttl=10, renew=True))
    expires_at = world.clock.now() + 10
    signalled: list[float] = []
    handle.on_lost(lambda: signalled.append(world.clock.now()))
    world.store.lose_request("renew", times=1_000)
    await world.pass_time(9.7, step=0.1)
    assert not handle.lost
    await world.pass_time(0.1, step=0.1)
    assert handle.lost
    await world.until(lambda: signalled)
    assert signalled[0] < expires_at


async def test_a_suspended_process_learns_of_its_loss_quietly(world: World) -> None:
    """C037: time jumps past the ttl with no hook registered: the process goes on, and the release returns quietly."""
    errors: list[object] = []
    before = threading.excepthook
    threading.excepthook = errors.append
    try:
        handle = await world.take(world.locks.lock("k", ttl=10, renew=True))
        with recorded(LOG, logging.WARNING) as lines:
            world.move(3_600)
            await world.until(lambda: world.named("lost"))
            outcome = await done(handle.release())
    finally:
        threading.excepthook = before
    assert not outcome
    assert handle.lost_reason == "expired"
    assert any("lost" in line for line in lines)
    assert errors == []


async def test_hooks_that_raise_or_dawdle_harm_nobody(world: World) -> None:
    """C040, H3: a raising and a sleeping hook of one lost lease: 49 others are renewed, the error is logged with its
    key, and a second loss still gets its callback."""
    handles = [await world.take(world.locks.lock(f"k{n}", ttl=10, renew=True)) for n in range(50)]
    let_go, called = threading.Event(), threading.Event()

    def fail() -> None:
        raise ZeroDivisionError("a hook")

    handles[0].on_lost(lambda: let_go.wait(20))
    handles[0].on_lost(fail)
    handles[1].on_lost(called.set)
    with recorded(LOG, logging.WARNING) as lines:
        await done(world.elsewhere().force_release("k0"))
        for round_ in range(1, 4):
            world.move(3.5)
            await world.until_more("renew", round_ * 48 - 1)
        await world.until(lambda: any("ZeroDivisionError" in line for line in lines))
        await done(world.elsewhere().force_release("k1"))
        world.move(3.5)
        await world.until(called.is_set)
    let_go.set()
    assert any("'k0'" in line for line in lines if "hook" in line)
    assert [handle.key for handle in handles if handle.lost] == ["k0", "k1"]


async def test_an_observer_that_raises_harms_nobody(world: World) -> None:
    """P3: an observer that raises is logged and changes nothing."""

    def observer(event: object) -> None:
        raise ZeroDivisionError("an observer")

    locks = world.connect(world.store, observer=observer)
    with recorded(LOG, logging.ERROR) as lines:
        async with block(locks.lock("k")) as held:
            assert await done(held.renew())
    assert not await world.held("k")
    assert any("ZeroDivisionError" in line for line in lines)


async def test_early_warning_comes_once_when_renewals_have_failed_for_a_third(still_world: World) -> None:
    """H6: `on_at_risk` fires once, when renewals have been failing for a third of the lease, before the loss."""
    world = still_world
    handle = await world.take(world.locks.lock("k", ttl=30, renew=True))
    warned: list[float] = []
    handle.on_at_risk(lambda: warned.append(world.clock.now()))
    started = world.clock.now()
    world.store.lose_request("renew", times=1_000)
    while not handle.lost:
        await world.pass_time(0.25)
    await world.until(lambda: warned)
    assert len(warned) == 1
    assert started + 19 <= warned[0] <= started + 23
    assert len(world.named("at_risk")) == 1


async def test_a_denial_stops_renewal_and_the_lease_goes_on_to_its_deadline(world: World) -> None:
    """H1, A4: a renewal that is denied is not a loss: the lease holds to its deadline and is then lost as `denied`."""
    handle = await world.take(world.locks.lock("k", ttl=30, renew=True))
    world.store.fail("renew", leased.AccessDenied("no more"), times=1_000)
    world.move(11)
    await world.until(lambda: world.named("denied"))
    assert not handle.lost
    asked = world.store.asked("renew")
    world.move(10)
    await world.face.breathe()
    assert (handle.lost, world.store.asked("renew")) == (False, asked)
    with pytest.raises(leased.AccessDenied):
        await done(handle.renew())
    world.move(9)
    assert handle.lost_reason == "denied"


async def test_a_denied_holder_can_still_release(world: World) -> None:
    """A4: release is never gated by the denial."""
    handle = await world.take(world.locks.lock("k", ttl=30, renew=True))
    world.store.fail("renew", leased.AccessDenied("no more"), times=1_000)
    world.move(11)
    await world.until(lambda: world.named("denied"))
    assert await done(handle.release())
    assert not await world.held("k")


async def test_a_store_that_has_gone_for_good_is_a_loss_of_its_own(world: World) -> None:
    """H2: a renewal that meets `StoreNotUsable` ends the hold as `store_lost`."""
    handle = await world.take(world.locks.lock("k", ttl=30, renew=True))
    world.store.fail("renew", StoreNotUsable("the file is another one"), times=1_000)
    world.move(11)
    await world.until(lambda: handle.lost)
    assert handle.lost_reason == "store_lost"


async def test_a_manual_renewal_without_an_answer_leaves_the_earlier_deadline(still_world: World) -> None:
    """H1, L5: `renew` raises `StoreUnavailable` when nobody answered; belief neither ends nor grows."""
    world = still_world
    handle = await world.take(world.locks.lock("k", ttl=10))
    before = handle.remaining()
    world.store.lose_request("renew")
    with pytest.raises(StoreUnavailable):
        await done(handle.renew(60))
    assert handle.remaining() == before
    world.store.lose_answer("renew")
    with pytest.raises(StoreUnavailable):
        await done(handle.renew(5))
    assert handle.remaining() <= 5


def test_a_blocking_body_is_told_by_its_handle_and_nothing_is_raised_in_it() -> None:
    """H3: a blocking body whose lease is lost runs on; its handle says so, and the block raises at its end."""
    world = World(Blocking())
    reached: list[bool] = []
    with pytest.raises(LockLost), world.locks.lock("k", ttl=10, renew=False) as held:
        world.move(11)
        reached.extend(held.lost for _ in range(1_000))
        with pytest.raises(LockLost):
            held.ensure_held()
    assert reached == [True] * 1_000


def test_an_async_body_is_cancelled_at_the_loss() -> None:
    """H3: an async body's task is cancelled where it waits, and the block raises `LockLost`, not cancellation."""
    world = World(Async())
    reached: list[str] = []

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LockLost) as raised:
            async with world.locks.lock("k", ttl=10, renew=False):
                asyncio.get_running_loop().call_soon(world.move, 11)
                try:
                    await asyncio.sleep(60)
                finally:
                    reached.append("cleanup")
                reached.append("never")
        assert raised.value.reason == "expired"
        assert task.cancelling() == 0
        await asyncio.sleep(0)

    world.run(main)
    assert reached == ["cleanup"]


def test_cancellation_from_outside_stays_cancellation() -> None:
    """H3: a cancelled body raises `CancelledError`, lost or not, and the key is free."""
    world = World(Async())

    async def body(lose: bool) -> None:
        async with world.locks.lock("k", ttl=10, renew=False):
            await asyncio.sleep(60)

    async def main() -> None:
        for lose in (False, True):
            task = asyncio.create_task(body(lose))
            await world.until(lambda: world.memory._records)
            task.cancel()
            if lose:
                world.move(11)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not await world.held("k")

    world.run(main)


def test_a_body_in_a_task_that_was_cancelled_before_still_learns_of_its_loss() -> None:
    """H3: clean-up code of a cancelled task that takes a lock and loses it gets `LockLost`: the old cancellation is not
    mistaken for a new one."""
    world = World(Async())
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            try:
                async with world.locks.lock("k", ttl=10, renew=False):
                    asyncio.get_running_loop().call_soon(world.move, 11)
                    await asyncio.sleep(60)
            except LockLost:
                ended.append("lost")
            raise

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    world.run(main)
    assert ended == ["lost"]


def test_a_body_that_swallows_its_cancellation_still_ends_in_a_loss() -> None:
    """H3, H4: a body that catches the cancellation, or ends just as it comes, still raises `LockLost`."""
    world = World(Async())

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LockLost):
            async with world.locks.lock("k", ttl=10, renew=False):
                asyncio.get_running_loop().call_soon(world.move, 11)
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
        with pytest.raises(LockLost):
            async with world.locks.lock("k", ttl=10, renew=False) as held:
                held._hold.stop()  # on its way, but the body ends first
                world.move(11)
        assert task.cancelling() == 0
        await asyncio.sleep(0.001)

    world.run(main)


def test_a_time_out_around_a_block_stays_a_time_out() -> None:
    """C187c, C004: the caller's own deadline strikes inside a block: `TimeoutError` comes out and the key is free."""
    world = World(Async())

    async def main() -> None:
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(0.01), world.locks.lock("k"):
                await asyncio.sleep(60)
        assert not isinstance(raised.value, leased.LeasedError)
        assert not await world.held("k")
        await world.occupy("k")
        with pytest.raises(TimeoutError) as waiting:
            async with asyncio.timeout(0.01), world.locks.lock("k", wait=60):
                pytest.fail("entered")
        assert not isinstance(waiting.value, leased.LockTimeout)

    world.run(main)


async def test_a_handed_over_block_ends_without_a_loss(world: World) -> None:
    """H4, L6: a block whose lease was handed over on purpose ends as its body does, and releases nothing."""
    async with block(world.locks.lock("k", ttl=10)) as held:
        text = held.hand_over()
        assert held.lost_reason == "handed_over"
        with pytest.raises(LockLost):
            held.ensure_held()
    assert await world.held("k")
    successor = world.keep(await done(world.locks.restore(text)))
    assert await done(successor.release())
    with pytest.raises(ValueError, match="mine"):
        async with block(world.locks.lock("k", ttl=10)) as held:
            held.hand_over()
            raise ValueError("mine")
    released = await world.take(world.locks.lock("other"))
    await done(released.release())
    with pytest.raises(LockNotHeld):
        released.hand_over()
    world.move(11)
