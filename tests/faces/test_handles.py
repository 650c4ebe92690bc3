"""Handles: what they say, renewing, releasing, hooks, as a value in any thread or task, as a block."""

import asyncio
import gc
import logging
import threading
from typing import Any

import pytest

import leased
from leased import InvalidRequest, LockLost, LockNotHeld, StoreUnavailable
from leased.engine import lose
from tests.faces.world import Async, Blocking, World, block, done, recorded

LOG = logging.getLogger("leased")


async def test_a_handle_tells_the_public_facts(world: World) -> None:
    """L5: key, owner, ttl, fencing token, remaining time; and `token`, which no text form shows."""
    handle = await world.take(world.locks.lock("k", ttl=20, owner="run-7"))
    assert (handle.key, handle.owner, handle.ttl) == ("k", "run-7", 20)
    assert isinstance(handle.fencing_token, int)
    assert 0 < handle.fencing_token < 2**53
    assert 19 < handle.remaining() <= 20 * 0.98 - 0.05
    assert (handle.lost, handle.lost_reason, handle.expired) == (False, None, False)
    assert handle.ensure_held() is None
    assert len(handle.token) >= 22
    for text in (repr(handle), str(handle), f"{handle}"):
        assert handle.token not in text
        assert "'k'" in text or " k" in text


async def test_fencing_tokens_rise_with_every_grant(world: World) -> None:
    """M4: across release, expiry, forced release and re-take each grant has a higher number; renewals keep theirs."""
    lock = world.locks.lock("k", ttl=10, owner="o")
    seen = []
    for ending in ("release", "expiry", "force", "retake", "last"):
        handle = await world.take(lock)
        seen.append(handle.fencing_token)
        await done(handle.renew())
        assert handle.fencing_token == seen[-1]
        if ending == "release":
            await done(handle.release())
        elif ending == "expiry":
            world.move(11)
        elif ending == "force":
            await done(world.locks.force_release("k"))
    assert seen == sorted(set(seen))


async def test_renewing_sets_the_end_and_never_adds(world: World) -> None:
    """M7, C062: three renewals to 30 s leave 30 s; a smaller ttl shortens; the default is the handle's ttl."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    for _ in range(3):
        assert await done(handle.renew(30))
    assert 29 < handle.remaining() <= 30
    assert (await world.memory.status("k", timeout=1)).expires_in == pytest.approx(30, abs=0.5)
    assert await done(handle.renew("5s"))
    assert 4 < handle.remaining() <= 5
    world.move(3)
    assert await done(handle.renew())
    assert 4 < handle.remaining() <= 5


async def test_no_renewal_passes_max_hold(world: World) -> None:
    """M8, C062: the first grant is cut at `max_hold`, no renewal moves that end, and reaching it is told as such."""
    handle = await world.take(world.locks.lock("k", ttl=30, max_hold=20))
    assert handle.remaining() <= 20
    world.move(15)
    assert await done(handle.renew(30))
    assert handle.remaining() <= 5
    world.move(5)
    assert handle.lost_reason == "max_hold"
    outcome = await done(handle.renew())
    assert (bool(outcome), outcome.reason, outcome.lost_reason) == (False, "lease_lost", "max_hold")


async def test_a_new_acquisition_starts_a_new_max_hold(world: World) -> None:
    """M8: a re-take by the same owner begins a deadline of its own."""
    lock = world.locks.lock("k", ttl=30, max_hold=20, owner="o")
    await world.take(lock)
    world.move(15)
    assert 18 < (await world.take(lock)).remaining() <= 20


async def test_nothing_revives_a_lapsed_lease(world: World) -> None:
    """M7, C021: a renewal after the end answers no and creates nothing, even if nobody took the key."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    world.move(10)
    outcome = await done(handle.renew(60))
    assert (bool(outcome), outcome.reason, outcome.lost_reason) == (False, "lease_lost", "expired")
    assert not await world.held("k")
    assert handle.lost


async def test_a_renewal_that_comes_too_late_does_not_take_the_key_again(world: World) -> None:
    """C021: A pauses past its end, B acquires and releases; A's renewal says lost and leaves the key free."""
    late = await world.take(world.locks.lock("k", ttl=10))
    text = late.dump()
    world.move(10.5)
    other = await world.occupy("k")
    assert await done(other.release())
    assert not await done(late.renew())
    assert not await world.held("k")
    with pytest.raises(LockNotHeld):
        await done(world.locks.restore(text))
    with pytest.raises(LockNotHeld):
        await done(late.extend())
    again = await world.take(world.locks.lock("k"))
    assert again.fencing_token > other.fencing_token > late.fencing_token


async def test_extend_is_renew_that_raises(world: World) -> None:
    """L5: `extend` sets the end as `renew` does, and raises `LockNotHeld` with a reason when it is over."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    assert await done(handle.extend(30)) is None
    assert handle.remaining() > 28
    await done(world.elsewhere().force_release("k"))
    with pytest.raises(LockNotHeld) as raised:
        await done(handle.extend())
    assert (raised.value.key, raised.value.reason) == ("k", "force_released")
    other = await world.take(world.locks.lock("k2"))
    await done(other.release())
    with pytest.raises(LockNotHeld):
        await done(other.extend())


async def test_each_ending_has_its_own_true_words(world: World) -> None:
    """C186, L5: an expired, taken over, forced and already released lease each say which it is."""
    lock = world.locks.lock("k", ttl=10)
    released = await world.take(lock)
    assert await done(released.release())
    assert (await done(released.release())).reason == "already_released"
    assert (await done(released.renew())).reason == "released"
    with pytest.raises(LockNotHeld):
        released.ensure_held()
    assert (released.lost, released.remaining()) == (False, 0)

    expired = await world.take(lock)
    world.move(11)
    assert (await done(expired.release())).reason == "expired"
    assert expired.lost_reason == "expired"
    with pytest.raises(LockLost, match="'k'"):
        expired.ensure_held()

    taken = await world.take(lock)
    world.move(11)
    other = await world.occupy("k")
    assert (await done(taken.release())).reason == "not_holder"
    await done(other.release())

    forced = await world.take(lock)
    await done(world.elsewhere().force_release("k"))
    assert (await done(forced.release())).reason == "not_holder"
    assert forced.lost_reason == "force_released"


async def test_once_lost_always_lost(world: World) -> None:
    """H2: a release after the local deadline does not turn a lost handle into one that was held to its end."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    world.move(9.8)
    assert handle.lost_reason == "expired"
    await done(handle.release())
    assert handle.lost_reason == "expired"
    assert [event.data["reason"] for event in world.named("lost")] == ["expired"]


async def test_truth_is_pulled_and_never_late(still_world: World) -> None:
    """H2, C036: `lost` turns true at the local deadline, the stated margin before the store's expiry."""
    world = still_world
    handle = await world.take(world.locks.lock("k", ttl=10))
    world.move(10 * 0.98 - 0.05 - 1e-3)
    assert not handle.lost
    assert handle.ensure_held() is None
    world.move(2e-3)
    assert (handle.lost, handle.expired, handle.remaining()) == (True, True, 0)
    assert await world.held("k")
    with pytest.raises(LockLost) as raised:
        handle.ensure_held()
    assert (raised.value.key, raised.value.reason) == ("k", "expired")


async def test_a_release_that_was_not_answered_can_be_made_again(world: World) -> None:
    """L5, O5: a store that is down for the clean-up budget raises; later the same handle frees the key."""
    handle = await world.take(world.locks.lock("k"))
    world.store.down = True
    worker = world.start(handle.release)
    await world.until(lambda: world.store.asked("release") > 1)
    world.move(2)
    with pytest.raises(StoreUnavailable):
        await worker.result()
    world.store.down = False
    assert await done(handle.release())
    assert not await world.held("k")
    assert world.named("release_failed")


async def test_a_release_whose_answer_was_lost_counts_as_freed(world: World) -> None:
    """C043: the store frees the key, the answer is lost, the repetition finds nothing: that is a release."""
    handle = await world.take(world.locks.lock("k"))
    world.store.lose_answer("release")
    assert await done(handle.release())
    assert not await world.held("k")


async def test_a_handle_is_a_value_of_any_thread(world: World) -> None:
    """C009, L5: a handle made in one thread or task is renewed and released in another."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    assert await world.start(lambda: handle.renew(30)).result()
    assert handle.remaining() > 20
    assert await world.start(handle.release).result()
    assert not await world.held("k")


async def test_a_handle_is_a_block_that_releases(world: World) -> None:
    """L5: a handle is a context manager; it releases at the end, also when the body fails, and refuses a lost one."""
    handle = await world.take(world.locks.lock("k"))
    async with block(handle) as entered:
        assert entered is handle
        assert leased.current() is handle
    assert not await world.held("k")
    with pytest.raises(LockNotHeld):
        async with block(handle):
            pytest.fail("entered a released handle")
    second = await world.take(world.locks.lock("k", ttl=10))
    with pytest.raises(ZeroDivisionError):
        async with block(second):
            raise ZeroDivisionError
    assert not await world.held("k")
    third = await world.take(world.locks.lock("k", ttl=10))
    world.move(11)
    with pytest.raises(LockLost):
        async with block(third):
            pytest.fail("entered a lost handle")


async def test_a_bare_handle_does_not_renew_itself_unless_asked(world: World) -> None:
    """L1, L4: `acquire` gives a lease that ends by itself; with `renew=True` it goes on."""
    plain = await world.take(world.locks.lock("plain", ttl=10))
    renewed = await world.take(world.locks.lock("renewed", ttl=10, renew=True))
    for _ in range(8):
        asked = world.store.asked("renew")
        world.move(3)
        await world.until_more("renew", asked)
    await world.until(lambda: not renewed.lost)
    assert plain.lost
    assert world.store.asked("renew", key="plain") == 0
    assert renewed.remaining() > 5


async def test_a_forgotten_handle_is_named_and_not_renewed(world: World) -> None:
    """C029, C078: a renewing handle that its owner dropped is warned of by key, no longer renewed, and not released."""
    lock = world.locks.lock("forgotten", ttl=10, renew=True)
    handle = await done(lock.acquire())
    fencing_token = handle.fencing_token
    drop = [handle]
    del handle
    with recorded(LOG, logging.WARNING) as lines, pytest.warns(ResourceWarning, match="forgotten"):
        drop.clear()
    gc.collect()
    assert any("forgotten" in line for line in lines)
    other = await world.take(world.locks.lock("other", ttl=10, renew=True))
    for _ in range(2):
        before = world.store.asked("renew", key="other")
        world.move(3.4)
        await world.until_more("renew", before, key="other")
    assert world.store.asked("renew", key="forgotten") == 0
    assert (await world.memory.status("forgotten", timeout=1)).fencing_token == fencing_token
    world.move(4)
    assert not await world.held("forgotten")
    assert not other.lost


async def test_a_block_cannot_be_forgotten(world: World) -> None:
    """C078: `with lock:` without a variable keeps and renews its lease until the block ends."""
    async with block(world.locks.lock("k", ttl=10)):
        gc.collect()
        for _ in range(4):
            before = world.store.asked("renew")
            world.move(3.4)
            await world.until_more("renew", before)
        assert await world.held("k")
    assert not await world.held("k")


async def test_hooks_of_a_loss_are_called_once(world: World) -> None:
    """L5: `on_lost` is called once, after `lost` is true; on a handle that is lost already, at once."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    seen: list[bool] = []
    handle.on_lost(lambda: seen.append(handle.lost))
    world.move(11)
    await world.until(lambda: seen)
    handle.on_lost(lambda: seen.append(handle.lost))
    await world.until(lambda: len(seen) == 2)
    await done(handle.release())
    assert seen == [True, True]


async def test_a_release_that_finds_the_lease_over_tells_the_hooks(world: World) -> None:
    """H3, L5: a loss that is found at the release, before anybody noticed, reaches `on_lost` as any other does."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    seen = threading.Event()
    handle.on_lost(seen.set)
    handle._hold.keeper.discard(handle._hold)  # as if the release came just before the loop woke
    world.move(11)
    await done(handle.release())
    await world.until(seen.is_set)


async def test_a_loss_in_the_very_moment_of_registering_is_told_once(world: World) -> None:
    """L5: a lease that is lost while `on_lost` is on its way still calls the hook, and no hook twice."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    called: list[str] = []
    handle.on_lost(lambda: called.append("first"))

    class LosesFirst(list[Any]):
        def append(self, item: Any) -> None:
            lose(handle._client.env, handle._hold, "taken")
            super().append(item)

    handle._hold.lost_hooks = LosesFirst(handle._hold.lost_hooks)
    handle.on_lost(lambda: called.append("second"))
    await world.until(lambda: len(called) == 2)
    handle.on_lost(lambda: called.append("third"))
    await world.until(lambda: len(called) == 3)
    assert sorted(called) == ["first", "second", "third"]


async def test_hooks_are_not_called_after_a_release(world: World) -> None:
    """L5: a lease that was released in time is not lost, however much time passes."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    called: list[str] = []
    handle.on_lost(lambda: called.append("lost"))
    handle.on_at_risk(lambda: called.append("at risk"))
    assert await done(handle.release())
    other = await world.take(world.locks.lock("other", ttl=10))
    ended = threading.Event()
    other.on_lost(ended.set)
    world.move(60)
    await world.until(ended.is_set)
    assert called == []


async def test_a_ttl_outside_the_limits_is_refused_by_renew_before_the_store(world: World) -> None:
    """M5, C061: `renew` and `extend` refuse what `lock` refuses, and the lease goes on as it was."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    for ttl in (0, -1, 0.104, 90 * 86_400 + 1, float("nan"), "soon"):
        with pytest.raises(InvalidRequest):
            await done(handle.renew(ttl))
        with pytest.raises(InvalidRequest):
            await done(handle.extend(ttl))
    assert world.store.asked("renew") == 0
    assert await done(handle.renew("90d"))
    assert handle.remaining() == pytest.approx(90 * 86_400 * 0.98, rel=1e-3)


def test_async_hooks_run_in_the_loop_that_registered_them() -> None:
    """L5: an async `on_lost` runs as a task of its loop; a sync one in a thread, so that it cannot hold up the loop."""
    world = World(Async())

    async def main() -> None:
        handle = await world.take(world.locks.lock("k", ttl=10))
        threads: list[int] = []
        came = asyncio.Event()

        async def in_loop() -> None:
            threads.append(threading.get_ident())
            came.set()

        handle.on_lost(in_loop)
        handle.on_lost(lambda: threads.append(threading.get_ident()))
        world.move(11)
        await asyncio.wait_for(came.wait(), 5)
        await world.until(lambda: len(threads) == 2)
        assert threading.get_ident() in threads
        assert len(set(threads)) == 2

    world.run(main)


def test_blocking_hooks_run_in_threads_of_their_own() -> None:
    """L5: hooks of the blocking face run in threads of their own, never in that of the caller."""
    world = World(Blocking())
    handle = world.locks.lock("k", ttl=10).acquire()
    threads: list[int] = []
    came = threading.Event()
    handle.on_lost(lambda: threads.append(threading.get_ident()))
    handle.on_lost(came.set)
    world.move(11)
    assert came.wait(5)
    handle.release()
    assert threading.get_ident() not in threads
