"""Asking for a key: granted, refused, waited for; the limits of waiting; errors that tell the truth."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import leased
from leased import LockNotAcquired, LockTimeout, RateLimited, StoreNotUsable, StoreUnavailable
from tests.faces.faults import Call
from tests.faces.world import World, block, done


async def test_a_block_excludes_everybody_else(world: World) -> None:
    """L2: while a block runs nobody else gets the key, here or elsewhere; afterwards the key is free."""
    async with block(world.locks.lock("k")) as held:
        assert await done(world.locks.lock("k").try_acquire()) is None
        assert await done(world.elsewhere().lock("k").try_acquire()) is None
        assert held.key == "k"
        assert not held.lost
    assert not await world.held("k")


async def test_a_refused_block_never_runs_and_says_that_a_wait_would_wait(world: World) -> None:
    """L2, C079: a block without a grant raises before its body, names key and holder, and points to `wait=`."""
    held = await world.occupy("k", owner="run-7")
    entered = False
    with pytest.raises(LockNotAcquired) as refused:
        async with block(world.locks.lock("k")):
            entered = True
    assert not entered
    assert type(refused.value) is LockNotAcquired
    assert refused.value.key == "k"
    assert refused.value.holder is not None
    assert refused.value.holder.owner == "run-7"
    for word in ("'k'", "run-7", "wait="):
        assert word in str(refused.value)
    assert await done(held.release())


async def test_a_wait_that_ran_out_is_a_time_out_that_names_key_holder_and_time(world: World) -> None:
    """L2, C079, C187a: the block and the waiting acquire raise `LockTimeout` with key, holder and waited time."""
    await world.occupy("k", owner="run-7")
    lock = world.locks.lock("k", wait=0.02)
    entered = False
    with pytest.raises(LockTimeout) as from_block:
        async with block(lock):
            entered = True
    with pytest.raises(LockTimeout) as from_acquire:
        await done(lock.acquire())
    assert not entered
    for raised in (from_block, from_acquire):
        assert (raised.value.key, raised.value.timeout) == ("k", 0.02)
        assert raised.value.holder is not None
        assert raised.value.holder.owner == "run-7"
        assert "0.02 s" in str(raised.value)


async def test_none_is_the_only_answer_of_a_refused_single_try(world: World) -> None:
    """L4, C079: a single try that is refused gives `None`, which no block can use as a handle."""
    await world.occupy("k")
    refused = await done(world.locks.lock("k", wait=60).try_acquire())
    assert refused is None
    assert world.store.asked("acquire") == 1
    assert not hasattr(refused, "__enter__")
    assert not hasattr(refused, "__aenter__")


async def test_a_wait_of_zero_is_one_attempt_and_never_sleeps(still_world: World) -> None:
    """W1, C053: with `wait=0` the store is asked once and no time passes (this clock stands still)."""
    await still_world.occupy("k")
    with pytest.raises(LockNotAcquired):
        await done(still_world.locks.lock("k").acquire())
    assert await done(still_world.locks.lock("k", wait=9).try_acquire()) is None
    assert not await done(still_world.locks.lock("k", wait=9).try_run(lambda: None))
    assert still_world.store.asked("acquire") == 3


@pytest.mark.parametrize("wait", [0.01, 0.12, 0.3])
async def test_the_last_sleep_is_cut_to_the_time_left(world: World, wait: float) -> None:
    """C053, W2: with naps that have grown longer than the wait, the caller is back within it plus one round trip."""
    await world.occupy("k")
    started = time.monotonic()
    with pytest.raises(LockTimeout):
        await done(world.locks.lock("k", wait=wait, retry_delay=1).acquire())
    assert wait <= time.monotonic() - started < wait + 0.5


async def test_waiting_and_lease_length_are_independent(world: World) -> None:
    """W1, C055: a claim with a ttl of 5 s that waits 40 of its 60 s then has a whole lease of 5 s."""
    held = await world.occupy("k", ttl=100)
    waiter = world.start(lambda: world.locks.lock("k", ttl=5).acquire(60))
    await world.waiting("k")
    world.move(40)
    assert await done(held.release())
    handle = world.keep(await waiter.result())
    assert 4.5 < handle.remaining() <= 5


async def test_the_lease_counts_from_the_attempt_that_won(world: World) -> None:
    """C056, M5: a claim with a ttl of 2 s that waited for 5 s gets its ttl less the margins."""
    held = await world.occupy("k", ttl=100)
    waiter = world.start(lambda: world.locks.lock("k", ttl=2, wait=30).acquire())
    await world.waiting("k")
    world.move(5)
    await done(held.release())
    handle = world.keep(await waiter.result())
    assert 1.5 < handle.remaining() <= 2 * 0.98 - 0.05
    assert not handle.lost


async def test_waiting_for_ever_must_be_written(world: World) -> None:
    """W1: `wait=leased.FOREVER` outlives any span of time, and ends with the grant."""
    held = await world.occupy("k", ttl="90d")
    waiter = world.start(lambda: world.locks.lock("k", wait=leased.FOREVER).acquire())
    await world.waiting("k")
    world.move(80 * 86_400.0)
    assert not waiter.over
    await done(held.release())
    assert world.keep(await waiter.result()).key == "k"


async def test_the_holders_known_expiry_ends_a_nap(world: World) -> None:
    """W3: a waiter asks again at the holder's expiry, although nothing was released and no bell rang."""
    world.store.deaf = True
    await world.occupy("k", ttl=3)
    started = time.monotonic()
    waiter = world.start(lambda: world.locks.lock("k", wait=60).acquire())
    await world.waiting("k")
    world.move(3)
    world.keep(await waiter.result())
    assert time.monotonic() - started < 2


async def test_an_event_of_the_caller_ends_a_wait(world: World) -> None:
    """L4: `cancel=` ends the wait from another thread; the error says so, and nothing of the claim is left."""
    await world.occupy("k")
    stop = threading.Event()
    lock = world.locks.lock("k", wait=60)
    waiters = [
        world.start(lambda: lock.acquire(cancel=stop)),
        world.start(lambda: lock.run(lambda: None, cancel=stop)),
    ]
    await world.waiting("k", 2)
    stop.set()
    with pytest.raises(LockNotAcquired) as raised:
        await waiters[0].result()
    assert not isinstance(raised.value, LockTimeout)
    assert "asked" in str(raised.value)
    assert not (await waiters[1].result()).ran
    await world.waiting("k", 0)


async def test_a_lock_says_whether_a_claim_would_be_refused(world: World) -> None:
    """L7, M11: `locked()` is true exactly while a claim would be refused, also after a lapse that nobody released."""
    lock = world.locks.lock("k", ttl=10)
    assert not await done(lock.locked())
    await world.take(lock)
    assert await done(lock.locked())
    world.move(10)
    assert not await done(lock.locked())


async def test_a_lost_or_expired_lock_object_begins_anew(world: World) -> None:
    """C042: after a loss and after a release the same lock competes for the key and gives new handles."""
    lock = world.locks.lock("k", ttl=10)
    first = await world.take(lock)
    world.move(11)
    second = await world.take(lock)
    assert first.lost
    assert second.fencing_token > first.fencing_token
    await done(second.release())
    world.move(1_000)
    third = await world.take(lock)
    assert third.fencing_token > second.fencing_token
    assert len({first.token, second.token, third.token}) == 3
    assert await done(lock.try_acquire()) is None


async def test_one_lock_object_in_many_hands_gives_each_its_own_handle(world: World) -> None:
    """C010: a slow holder that leaves late never frees the next one, although both used the same lock object."""
    lock = world.locks.lock("k", ttl=5)
    slow = await world.take(lock)
    world.move(6)
    quick = await world.take(lock)
    outcome = await done(slow.release())
    assert not outcome
    assert outcome.reason == "not_holder"
    assert await world.held("k")
    assert await done(quick.renew())


async def test_ten_callers_of_one_lock_object_are_never_inside_together(world: World) -> None:
    """C018: without an owner nothing re-enters: callers that share client and lock object count without a miss."""
    lock = world.locks.lock("k", wait=30, retry_delay=0.001)
    count, inside, most = 0, 0, 0

    async def work() -> None:
        nonlocal count, inside, most
        async with block(lock):
            inside += 1
            most = max(most, inside)
            before = count
            await world.face.breathe()
            count = before + 1
            inside -= 1

    workers = [world.start(work) for _ in range(10)]
    for worker in workers:
        await worker.result()
    assert (count, most) == (10, 1)


PERMANENT: list[Callable[[], BaseException]] = [
    lambda: StoreNotUsable("the driver is missing"),
    lambda: leased.AccessDenied("no"),
    lambda: leased.InvalidRequest("too long for this store"),
    lambda: leased.Unauthenticated("who are you"),
    lambda: ZeroDivisionError("a bug in a driver"),
]


@pytest.mark.parametrize("error", PERMANENT, ids=lambda make: type(make()).__name__)
async def test_a_permanent_error_ends_the_wait_at_once(world: World, error: Callable[[], BaseException]) -> None:
    """C135, C121: what cannot work is told at once, unchanged, and never as "somebody else holds it"."""
    raised = error()
    world.store.fail("acquire", raised, times=9)
    with pytest.raises(type(raised)) as found:
        await done(world.locks.lock("k", wait=60).acquire())
    assert found.value is raised
    assert world.store.asked("acquire") == 1
    with pytest.raises(type(raised)):
        await done(world.locks.lock("k").try_acquire())


async def test_a_store_that_never_answers_is_not_contention(world: World) -> None:
    """C187b, S2: a wait that passed because the store was silent ends in `StoreUnavailable` with outcome unknown."""
    world.store.lose_request("acquire", times=1_000)
    with pytest.raises(StoreUnavailable) as raised:
        await done(world.locks.lock("k", wait=0.1).acquire())
    assert raised.value.applied is None
    with pytest.raises(StoreUnavailable):
        await done(world.locks.lock("k").try_acquire())
    with pytest.raises(StoreUnavailable):
        async with block(world.locks.lock("k")):
            pytest.fail("the body ran without a grant")


async def test_a_wait_absorbs_what_goes_by(world: World) -> None:
    """C121: lost requests, refused connections and limits inside a wait are tried again, and the claim wins."""
    world.store.lose_request("acquire")
    world.store.fail("acquire", StoreUnavailable("refused", applied=False))
    world.store.fail("acquire", RateLimited("slow down", retry_after=0.01))
    handle = await world.take(world.locks.lock("k", wait=30, retry_delay=0.001))
    assert handle.remaining() > 25


async def test_a_limit_is_shown_by_a_single_try_and_absorbed_by_a_wait(world: World) -> None:
    """R2: over the limit a single try raises `RateLimited` with the seconds to wait, a wait ends in `LockTimeout`."""
    world.store.fail("acquire", RateLimited("slow down", retry_after=7.0), times=1_000)
    with pytest.raises(RateLimited) as raised:
        await done(world.locks.lock("k").try_acquire())
    assert raised.value.retry_after == 7.0
    started = time.monotonic()
    with pytest.raises(LockTimeout):
        await done(world.locks.lock("k", wait=0.05).acquire())
    assert time.monotonic() - started < 1


async def test_a_finite_wait_reaches_every_inner_step(world: World) -> None:
    """C063, W2: with a store that swallows requests, a wait of 0.2 s is over in 0.2 s plus a round trip."""
    world.store.hang("acquire")
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await done(world.locks.lock("k").acquire(0.2))
    assert 0.2 <= time.monotonic() - started < 1
    assert all(call.timeout <= 0.2 for call in world.store.calls if call.operation == "acquire")


async def test_both_tries_of_a_single_attempt_fit_in_the_operation_timeout(still_world: World) -> None:
    """O6: the one repetition of a single try is sent unchanged, and both fit in the operation timeout."""
    world = still_world
    locks = world.connect(world.store, timeout=4)
    world.store.lose_request("acquire", times=2)
    with pytest.raises(StoreUnavailable):
        await done(locks.lock("k").try_acquire())
    first, second = (call for call in world.store.calls if call.operation == "acquire")
    assert first.token == second.token
    assert first.timeout + second.timeout <= 4


async def test_an_observer_learns_of_grants_and_refusals(world: World) -> None:
    """P3: `acquired`, `contended` and `rejected` are told with the key and the lock's name, never with a token."""
    lock = world.locks.lock("k", name="nightly")
    handle = await world.take(lock)
    await done(lock.try_acquire())
    with pytest.raises(LockTimeout):
        await done(lock.acquire(0.01))
    assert [event.name for event in world.events] == ["acquired", "contended", "rejected"]
    assert {(event.key, event.lock) for event in world.events} == {("k", "nightly")}
    assert handle.token not in repr(world.events)


async def test_a_grant_that_comes_after_the_wait_still_counts_as_told(world: World) -> None:
    """C050: an acquire whose answer arrives after the wait limit either returns the handle or leaves nothing held."""
    world.store.delay_answer("acquire", 0.15)
    outcome: Any = None
    try:
        outcome = await done(world.locks.lock("k").acquire(0.05))
    except (LockTimeout, StoreUnavailable):
        assert not await world.held("k")
    else:
        assert not outcome.lost
        assert await done(outcome.release())


async def test_an_attempt_that_fails_late_hands_its_grant_back(world: World) -> None:
    """C050, C043: the store grants, its answer is cut off after the wait: the caller is refused and the key is free."""

    async def slow_and_cut(call: Call) -> None:
        await world.clock.sleep(0.05)
        raise StoreUnavailable("the connection broke")

    world.store.after("acquire", slow_and_cut)
    with pytest.raises(StoreUnavailable):
        await done(world.locks.lock("k").acquire(0.02))
    assert not await world.held("k")
