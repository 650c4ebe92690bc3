"""Owners: taking over one's own hold, what is reserved in a process, tokens and repeated claims."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import leased
from leased import InvalidRequest, LockDeadlock, LockLost, LockNotAcquired, LockNotHeld, LockTimeout, StoreUnavailable
from tests.faces.world import World, block, done

TOKEN = "a-token-of-my-own-0001"


async def test_the_same_owner_takes_its_hold_over(world: World) -> None:
    """O1: a claim with the holder's owner wins at once, with new token, lease and number; the old handle is dead."""
    old = await world.occupy("k", owner="run-7", ttl=30)
    world.move(10)
    new = await world.take(world.locks.lock("k", owner="run-7", ttl=30))
    assert new.fencing_token > old.fencing_token
    assert new.token != old.token
    assert new.remaining() > 28
    assert (await done(old.renew())).lost_reason == "retaken"
    assert old.lost_reason == "retaken"
    assert (await done(old.release())).reason == "not_holder"
    assert await done(new.renew())
    assert await world.held("k")


async def test_a_waiting_claim_of_the_owner_takes_over_at_once(still_world: World) -> None:
    """O3: a waiting acquire with the owner's name does not wait (this clock stands still)."""
    old = await still_world.occupy("k", owner="run-7")
    new = await still_world.take(still_world.locks.lock("k", owner="run-7", wait=leased.FOREVER))
    assert new.fencing_token > old.fencing_token


async def test_a_claim_of_the_owner_does_not_queue_behind_strangers(world: World) -> None:
    """W4, O3: a newcomer that names the holder's owner passes the line of others."""
    await world.occupy("k", owner="run-7")
    stranger = world.start(lambda: world.locks.lock("k", wait=30, owner="other").acquire())
    await world.until(lambda: world.store.asked("acquire") >= 1)
    new = await world.take(world.locks.lock("k", owner="run-7", wait=30))
    assert not stranger.over
    await done(new.release())
    world.keep(await stranger.result())


async def test_another_owner_or_none_is_ordinary_contention(world: World) -> None:
    """O1, O3: nothing re-enters without an owner, and no other text passes: case, spaces and prefixes count."""
    await world.occupy("k", owner="run-7")
    for owner in (None, "run-8", "run-7 ", "Run-7", "run"):
        assert await done(world.locks.lock("k", owner=owner).try_acquire()) is None
    nameless = await world.occupy("other")
    for owner in (None, "None", "x"):
        assert await done(world.locks.lock("other", owner=owner).try_acquire()) is None
    assert not nameless.lost


async def test_a_block_that_runs_here_is_not_taken_over_by_its_own_owner(world: World) -> None:
    """O1: two callers of one process with the same owner never enter each other: the second waits, a try is refused."""
    lock = world.locks.lock("k", owner="run-7", wait=30)
    inside: list[int] = []
    most: list[int] = []

    async def work() -> None:
        async with block(lock):
            inside.append(1)
            most.append(len(inside))
            for _ in range(5):
                await world.face.breathe()
            inside.pop()

    workers = [world.start(work) for _ in range(6)]
    for worker in workers:
        await worker.result()
    assert most == [1] * 6
    async with block(lock):
        assert await world.start(lambda: lock.try_acquire()).result() is None


async def test_a_block_that_overran_keeps_its_owner_out_of_this_process_only(world: World) -> None:
    """O1: from winning to the block's exit a claim of that owner here is refused, though its lease is over; others,
    also callers here without that owner, can have the key."""
    lock = world.locks.lock("k", owner="run-7", ttl=10, renew=False)
    sitter = await world.sit(lock)
    world.move(11)
    assert await done(lock.try_acquire()) is None
    other = await world.take(world.locks.lock("k"))
    await done(other.release())
    successor = await world.occupy("k", owner="run-7")
    with pytest.raises(LockLost):
        await sitter.leave()
    assert not successor.lost
    await done(successor.release())
    assert await done((await world.take(lock)).release())


async def test_a_reserved_owner_at_the_front_stops_nobody_else(world: World) -> None:
    """C198, O1: a waiter whose owner's block still runs stands in line without holding up those behind it."""
    mine = world.locks.lock("k", owner="run-7", ttl=10, renew=False, wait=60)
    sitter = await world.sit(mine)
    same_owner = world.start(lambda: mine.acquire())
    await world.waiting("k")
    other = world.start(lambda: world.locks.lock("k", wait=60).acquire())
    await world.waiting("k", 2)
    world.move(11)
    handle = world.keep(await other.result())
    assert not same_owner.over
    await done(handle.release())
    assert not same_owner.over
    with pytest.raises(LockLost):
        await sitter.leave()
    await done(world.keep(await same_owner.result()).release())


async def test_a_block_of_a_handle_is_a_block(world: World) -> None:
    """O1: while `with handle:` runs, a claim of its owner in this process is refused as for any other block."""
    lock = world.locks.lock("k", owner="run-7")
    async with block(await world.take(lock)):
        assert await world.start(lambda: lock.try_acquire()).result() is None
    await done((await world.take(lock)).release())


async def test_a_block_that_ends_late_does_not_let_a_third_caller_into_the_second_ones_block(world: World) -> None:
    """O1: each block reserves its owner for itself: the end of one does not end that of another."""
    lock = world.locks.lock("k", owner="run-7", ttl=10, renew=False)
    bare = await world.take(lock)
    second = await world.sit(lock)
    assert bare.lost_reason is None
    late = world.start(lambda: _enter_and_leave(bare))
    with suppress(leased.LeasedError):
        await late.result()
    assert not second.held.lost
    assert await done(lock.try_acquire()) is None
    await second.leave()


async def _enter_and_leave(handle: Any) -> None:
    async with block(handle):
        pass


async def test_bare_handles_can_be_taken_over_in_this_process(world: World) -> None:
    """O1: a bare handle is no block: the same owner takes it over, also here."""
    lock = world.locks.lock("k", owner="run-7")
    first = await world.take(lock)
    second = await world.take(lock)
    assert second.fencing_token > first.fencing_token
    assert (await done(first.release())).reason == "not_holder"


async def test_waiting_for_ones_own_block_by_owner_is_a_deadlock(world: World) -> None:
    """O1, L9: in the same thread or task a waiting claim of the running block's owner raises `LockDeadlock` at once."""
    lock = world.locks.lock("k", owner="run-7")
    async with block(lock) as held:
        with pytest.raises(LockDeadlock):
            await done(lock.acquire(60))
        assert await done(lock.try_acquire()) is None
        assert await done(held.renew())


async def test_an_owner_scope_names_the_locks_inside(world: World) -> None:
    """O7: locks taken inside use the scope's owner unless they name one; scopes nest, and end."""
    lock = world.locks.lock("k")
    with leased.owner_scope("run-7"):
        first = await world.take(lock)
        second = await world.take(lock)
        named = await world.take(world.locks.lock("named", owner="mine"))
        with leased.owner_scope("inner"):
            inner = await world.take(world.locks.lock("inner"))
        again = await world.take(world.locks.lock("again"))
    outside = await world.take(world.locks.lock("outside"))
    assert [handle.owner for handle in (first, second, named, inner, again, outside)] == [
        "run-7",
        "run-7",
        "mine",
        "inner",
        "run-7",
        None,
    ]
    assert second.fencing_token > first.fencing_token


@pytest.mark.parametrize("owner", ["", "x" * 256, "a\0b", 7])
def test_an_owner_that_cannot_be_one_is_refused(owner: Any) -> None:
    """M12, O7: owners have 1 to 255 characters without control characters, in scopes as in recipes."""
    with pytest.raises(InvalidRequest, match="owner"), leased.owner_scope(owner):
        pytest.fail("entered")
    with pytest.raises(InvalidRequest, match="owner"):
        leased.lock("k", owner=owner)
    with leased.owner_scope("ü" * 255):
        pass


async def test_an_unanswered_claim_is_repeated_with_the_same_token(world: World) -> None:
    """O6, C043: the store grants and the answer is lost: the repetition recognises its own grant and returns it."""
    for wait in (0, 30):
        world.store.lose_answer("acquire")
        handle = await world.take(world.locks.lock(f"k{wait}", wait=wait, retry_delay=0.001))
        tokens = [call.token for call in world.store.calls if call.key == f"k{wait}" and call.operation == "acquire"]
        assert tokens == [handle.token] * 2
        status = await world.memory.status(f"k{wait}", timeout=1)
        assert status.fencing_token == handle.fencing_token


async def test_giving_up_withdraws_an_unknown_grant(world: World) -> None:
    """C043: the answers are lost until the caller gives up: the grant is abandoned and the error says "unknown"."""
    world.store.lose_answer("acquire", times=9)
    with pytest.raises(StoreUnavailable) as raised:
        await done(world.locks.lock("k").try_acquire())
    assert raised.value.applied is None
    assert not isinstance(raised.value, LockNotAcquired)
    assert not await world.held("k")
    with pytest.raises(StoreUnavailable):
        await done(world.locks.lock("k", wait=0.05).acquire())
    assert not await world.held("k")


async def test_a_late_copy_of_a_given_up_claim_is_refused(world: World) -> None:
    """L12, O5: a request that was on its way when the caller gave up is refused when it arrives."""
    late: list[str] = []
    world.store.lose_request("acquire", times=2)
    with pytest.raises(StoreUnavailable):
        await done(world.locks.lock("k").try_acquire())
    late = [call.token for call in world.store.calls if call.operation == "abandon"]
    assert len(late) == 1
    from leased.model import Claim, Contended

    answer = await world.memory.acquire(Claim("k", late[0], 30.0), timeout=1)
    assert isinstance(answer, Contended)
    assert answer.ended


async def test_a_refusal_while_an_attempt_is_unanswered_proves_nothing(world: World) -> None:
    """Rule 1: after an unanswered attempt a refusal does not end the debt: the claim is abandoned all the same."""
    other = await world.occupy("k", ttl=30)
    world.store.lose_request("acquire")
    with pytest.raises(LockTimeout):
        await done(world.locks.lock("k", wait=0.1, retry_delay=0.01).acquire())
    assert world.store.asked("abandon") == 1
    assert not other.lost


async def test_a_clean_refusal_costs_no_clean_up(world: World) -> None:
    """A claim whose every attempt was answered is not abandoned: there is nothing to withdraw."""
    await world.occupy("k")
    assert await done(world.locks.lock("k").try_acquire()) is None
    with pytest.raises(LockTimeout):
        await done(world.locks.lock("k", wait=0.02).acquire())
    assert world.store.asked("abandon") == 0


async def test_a_callers_own_token_recovers_an_acquire(world: World) -> None:
    """O6: an acquire with a token of the caller's that ends in `StoreUnavailable` is not handed back; the same again
    gets the same grant, not rotated."""
    world.store.lose_answer("acquire", times=2)
    lock = world.locks.lock("k", ttl=30)
    with pytest.raises(StoreUnavailable):
        await done(lock.try_acquire(token=TOKEN))
    assert world.store.asked("abandon") == 0
    granted = (await world.memory.status("k", timeout=1)).fencing_token
    world.move(10)
    handle = world.keep(await done(lock.try_acquire(token=TOKEN)))
    assert (handle.fencing_token, handle.token) == (granted, TOKEN)
    assert handle.remaining() < 20


@pytest.mark.parametrize("ending", ["release", "force", "expiry", "abandon", "retake"])
async def test_a_token_gets_at_most_one_grant(world: World, ending: str) -> None:
    """O5: once its lease has ended, however, the same token is refused, also where the owner would be let in."""
    lock = world.locks.lock("k", ttl=10, owner="run-7")
    first = await world.take(lock, token=TOKEN)
    if ending == "release":
        assert await done(first.release())
    elif ending == "force":
        assert await done(world.locks.force_release("k"))
    elif ending == "expiry":
        world.move(10)
    elif ending == "abandon":
        await done(world.locks.abandon("k", TOKEN))
    else:
        await world.take(lock)
    assert await done(lock.try_acquire(token=TOKEN)) is None
    with pytest.raises(LockNotAcquired):
        await done(lock.acquire(5, token=TOKEN))
    with pytest.raises(LockNotHeld):
        await done(world.locks.restore(first.dump()))


async def test_an_abandoned_token_is_never_granted(world: World) -> None:
    """L7, L12: `abandon` works for a token that was never seen, and again; afterwards it is refused."""
    await done(world.locks.abandon("k", TOKEN))
    await done(world.locks.abandon("k", TOKEN))
    assert await done(world.locks.lock("k").try_acquire(token=TOKEN)) is None
    await done(world.keep(await done(world.locks.lock("k").try_acquire())).release())
    for bad in ("short", 7, ""):
        with pytest.raises(InvalidRequest):
            await done(world.locks.abandon("k", bad))


async def test_a_given_up_retake_may_have_ended_the_earlier_handle(world: World) -> None:
    """Rule 4: a claim of the owner whose answers were lost is withdrawn; the earlier handle says lost, and the key is
    free: nobody believes in anything."""
    earlier = await world.occupy("k", owner="run-7", ttl=30)
    world.store.lose_answer("acquire", times=2)
    with pytest.raises(StoreUnavailable):
        await done(world.locks.lock("k", owner="run-7").try_acquire())
    assert not await done(earlier.renew())
    assert earlier.lost_reason == "retaken"
    assert not await world.held("k")


async def test_a_grant_that_is_dead_on_arrival_is_handed_back(world: World) -> None:
    """C066, M5: an answer that comes after the lease is used up is no grant: nothing is returned, nothing is held."""
    world.store.after("acquire", lambda call: _pass(world, 0.6), times=1)
    assert await done(world.locks.lock("k", ttl=0.5).try_acquire()) is None
    await world.until(lambda: world.store.asked("abandon") == 1)
    assert not await world.held("k")


async def test_a_slow_grant_is_worth_what_is_left_of_it(world: World) -> None:
    """C066, C072: what remains is the ttl less the time that the attempt took, less the margin."""
    world.store.after("acquire", lambda call: _pass(world, 4))
    handle = await world.take(world.locks.lock("k", ttl=10))
    assert handle.remaining() <= 10 * 0.98 - 0.05 - 4
    world.store.before("renew", lambda call: _pass(world, 2))
    world.store.after("renew", lambda call: _pass(world, 2))
    await done(handle.renew())
    assert handle.remaining() <= 10 * 0.98 - 0.05 - 4
    assert not handle.lost


async def test_a_waiter_whose_grant_was_dead_on_arrival_goes_on_with_a_new_token(world: World) -> None:
    """C066, O5: inside a wait a dead grant is handed back and the claim asks again, with a token that was not used."""
    world.store.after("acquire", lambda call: _pass(world, 0.6), times=1)
    handle = await world.take(world.locks.lock("k", ttl=0.5, wait=30, retry_delay=0.001))
    tokens = [call.token for call in world.store.calls if call.operation == "acquire"]
    assert len(set(tokens)) == 2
    assert handle.token == tokens[1]
    await world.until(lambda: world.store.asked("abandon"))
    assert [call.token for call in world.store.calls if call.operation == "abandon"] == [tokens[0]]


async def _pass(world: World, seconds: float) -> None:
    world.move(seconds)


@pytest.mark.parametrize("spelling", ["sqlite://{}/locks.db", "sqlite:{}/./locks.db", "sqlite:{}/locks%2Edb"])
def test_a_running_block_is_known_however_its_store_is_spelled(tmp_path: Path, spelling: str) -> None:
    """O1: no other thread of the process re-takes a running block, by whatever URL it names the same file."""
    first, other = leased.connect(f"sqlite:{tmp_path}/locks.db"), leased.connect(spelling.format(tmp_path))
    with first.lock("k", owner="run"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(other.lock("k", owner="run").try_acquire).result() is None
    first.close()
    other.close()
