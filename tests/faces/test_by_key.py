"""What can be done by key: status, list, forced release, abandon; closed keys; namespaces."""

import json
import os
import socket
from typing import Any

import pytest

import leased
from leased import InvalidRequest, LockNotAcquired, LockTimeout, Status
from tests.faces.world import World, block, done


async def test_the_status_of_a_free_key_says_nothing_else(world: World) -> None:
    """M11: a free key has no owner, holder, times, number or metadata."""
    assert await done(world.locks.status("k")) == Status("k")
    assert not (await done(world.locks.status("k"))).held


async def test_the_status_of_a_held_key_says_what_anyone_may_see(world: World) -> None:
    """M11, M12: state, owner, holder, times, number and metadata; the process is named by itself; never the token."""
    handle = await world.take(
        world.locks.lock("k", ttl=30, owner="run-7", metadata={"reason": "month end", "n": [1, 2]}, lock_delay=5)
    )
    world.move(10)
    status = await done(world.locks.status("k"))
    assert (status.key, status.state, status.held, status.owner) == ("k", "held", True, "run-7")
    assert status.fencing_token == handle.fencing_token
    assert status.expires_in == pytest.approx(20, abs=0.5)
    assert status.free_in == pytest.approx(25, abs=0.5)
    assert status.expires_at == pytest.approx(world.clock.wall() + 20, abs=0.5)
    assert status.free_at == pytest.approx(world.clock.wall() + 25, abs=0.5)
    assert status.acquired_at == pytest.approx(world.clock.wall() - 10, abs=0.5)
    assert status.held_by.endswith(f"@{socket.gethostname()}:{os.getpid()}")
    program = status.held_by.partition("@")[0]
    own = {"host": socket.gethostname(), "pid": os.getpid(), "program": program}
    assert status.metadata == {**own, "reason": "month end", "n": [1, 2]}
    assert handle.token not in repr(status)


async def test_held_is_false_exactly_when_a_claim_would_win(world: World) -> None:
    """M11: also for a lapsed lease that nobody released."""
    await world.take(world.locks.lock("k", ttl=10))
    for moved, free in ((9.9, False), (0.2, True)):
        world.move(moved)
        assert (await done(world.locks.status("k"))).held is not free
    assert (await done(world.locks.status("k"))).state == "free"
    assert await done((await world.take(world.locks.lock("k"))).release())


async def test_a_key_stays_closed_until_its_hold_is_old_enough(world: World) -> None:
    """M9: with `hold_at_least` a key that was released early stays closed, unowned, until that age."""
    lock = world.locks.lock("k", hold_at_least=60)
    async with block(lock):
        world.move(1)
    status = await done(world.locks.status("k"))
    assert (status.state, status.held, status.owner, status.held_by) == ("closed", True, None, None)
    assert status.free_in == pytest.approx(59, abs=0.5)
    with pytest.raises(LockNotAcquired, match="closed"):
        await done(lock.acquire())
    world.move(59)
    assert await done((await world.take(lock)).release())


async def test_a_waiter_on_a_closed_key_is_granted_it_when_it_opens(world: World) -> None:
    """M9, W3: the opening of a closed key ends a nap."""
    async with block(world.locks.lock("k", hold_at_least=30)):
        pass
    waiter = world.start(lambda: world.locks.lock("k", wait=60).acquire())
    await world.waiting("k")
    world.move(30)
    world.keep(await waiter.result())


async def test_a_lease_that_ended_without_release_keeps_the_key_closed(world: World) -> None:
    """M10: `lock_delay` closes the key after expiry and forced release, not after a release."""
    lock = world.locks.lock("k", ttl=10, lock_delay=30)
    assert await done((await world.take(lock)).release())
    await world.take(lock)
    world.move(11)
    assert (await done(world.locks.status("k"))).state == "closed"
    with pytest.raises(LockTimeout, match="closed"):
        await done(world.locks.lock("k", wait=0.01).acquire())
    world.move(30)
    handle = await world.take(lock)
    assert await done(world.locks.force_release("k"))
    assert (await done(world.locks.status("k"))).state == "closed"
    assert handle.lost is False
    assert not await done(handle.renew())
    assert handle.lost_reason == "force_released"


async def test_a_forced_release_aims_at_a_number(world: World) -> None:
    """L7: with a number it ends that holder only; a late repeat cannot hit the successor."""
    first = await world.take(world.locks.lock("k"))
    assert not await done(world.locks.force_release("k", first.fencing_token + 1))
    assert not first.lost
    assert await done(world.locks.force_release("k", first.fencing_token))
    second = await world.take(world.locks.lock("k"))
    assert not await done(world.locks.force_release("k", first.fencing_token))
    assert await done(second.renew())
    assert await done(world.locks.force_release("k"))
    assert not await done(world.locks.force_release("k"))
    assert [event.name for event in world.events].count("force_released") == 2


async def test_a_forced_release_opens_a_closed_key_but_never_the_delay_it_started(world: World) -> None:
    """M10: aimed at the last number it opens a closed key; the delay that a forced release started stands."""
    held = await world.take(world.locks.lock("k", hold_at_least=60))
    await done(held.release())
    assert not await done(world.locks.force_release("k", held.fencing_token - 1))
    assert await done(world.locks.force_release("k", held.fencing_token))
    assert not await world.held("k")
    delayed = await world.take(world.locks.lock("k", lock_delay=60))
    assert await done(world.locks.force_release("k", delayed.fencing_token))
    for number in (delayed.fencing_token, None):
        assert not await done(world.locks.force_release("k", number))
    assert (await done(world.locks.status("k"))).state == "closed"


async def test_a_forced_release_wakes_a_waiter(world: World) -> None:
    """W3: a forced release here is signalled as any other."""
    world.store.deaf = True
    await world.occupy("k")
    waiter = world.start(lambda: world.locks.lock("k", wait=60, retry_delay=1).acquire())
    await world.waiting("k")
    assert await done(world.locks.force_release("k"))
    world.keep(await waiter.result())


async def test_abandoning_frees_at_once(world: World) -> None:
    """L7, M9: `abandon` opens the key whatever `hold_at_least` and `lock_delay` say; a wrong token changes nothing."""
    handle = await world.take(world.locks.lock("k", hold_at_least=60, lock_delay=60))
    await done(world.locks.abandon("k", "a-token-of-nobody-0001"))
    await done(world.locks.abandon("other", handle.token))
    assert await world.held("k")
    assert await done(handle.renew())
    handle = await world.take(world.locks.lock("k2", hold_at_least=60, lock_delay=60))
    await done(world.locks.abandon("k2", handle.token))
    assert not await world.held("k2")


async def test_a_list_is_complete_and_exact(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """L7, C145: all held and closed keys that begin with the text, in the order of their bytes, over any number of
    pages."""
    keys = ["job", "job:1", "job:10", "jobs", "Job", "jo", "jö", "job\U0001f600", "", "other"]
    for key in filter(None, keys):
        await world.take(world.locks.lock(key))
    async with block(world.locks.lock("job:closed", hold_at_least=60)):
        pass
    async with block(world.locks.lock("job:free")):
        pass
    monkeypatch.setattr("leased.sync.MAX_LIST_PAGE", 2)
    monkeypatch.setattr("leased.aio.MAX_LIST_PAGE", 2)
    found = [status.key for status in await done(world.locks.list("job"))]
    assert found == ["job", "job:1", "job:10", "job:closed", "jobs", "job\U0001f600"]
    assert [status.key for status in await done(world.locks.list("job:"))] == ["job:1", "job:10", "job:closed"]
    everything = [status.key for status in await done(world.locks.list())]
    assert everything == sorted(everything, key=str.encode)
    assert len(everything) == 10
    assert await done(world.locks.list("nothing")) == []
    for limit in (1, 2, 3, 6, 7):
        assert [status.key for status in await done(world.locks.list("job", limit=limit))] == found[:limit]
    with pytest.raises(InvalidRequest, match="a limit is a whole number from 1, not 0"):
        await done(world.locks.list(limit=0))


async def test_keys_are_compared_byte_for_byte(world: World) -> None:
    """S3, C149: case, trailing spaces, Unicode forms and prefixes differ; each is held by itself."""
    keys = ["A", "a", "e", "é", "e\u0301", "x", "x ", " x", "a/b", "a%2Fb", "..", "%", "\U0001f600", "\U0001f603"]
    handles = [await world.take(world.locks.lock(key)) for key in keys]
    assert len(await done(world.locks.list())) == len(keys)
    assert [handle.lost for handle in handles] == [False] * len(keys)


async def test_namespaces_separate(face: Any) -> None:
    """S3, L0: the same key in another namespace is another key; `leased_namespace=` in the URL is the same."""
    connect = face.module.connect
    one = connect("memory:separate", namespace="one")
    same = connect("memory:separate?leased_namespace=one")
    other = connect("memory:separate", namespace="other")
    plain = connect("memory:separate")
    handle = await done(one.lock("k").acquire())
    assert await done(same.lock("k").try_acquire()) is None
    for locks in (other, plain):
        mine = await done(locks.lock("k").try_acquire())
        assert mine is not None
        await done(mine.release())
        assert await done(locks.list()) == []
    await done(handle.release())


async def test_both_faces_share_the_memory_store_of_a_process() -> None:
    """L8: `memory:` is one store per process, whichever face opens it, and whoever closes it."""
    blocking, asynchronous = leased.connect("memory:both"), leased.aio.connect("memory:both")
    held = await asynchronous.lock("k").acquire()
    assert blocking.lock("k").try_acquire() is None
    await held.release()
    with blocking.lock("k"):
        assert await asynchronous.lock("k").try_acquire() is None
    blocking.close()
    assert await (await asynchronous.lock("k").acquire()).release()
    await asynchronous.close()


async def test_metadata_that_is_hostile_is_kept_as_it_is(world: World) -> None:
    """M12, C174: markup, quotes and control characters in metadata come back as data."""
    metadata = {"html": "<script>alert(1)</script>", "quote": '"\\', "control": "\x1b[31m\u202e", "nested": {"a": None}}
    await world.take(world.locks.lock("k", metadata=metadata))
    status = await done(world.locks.status("k"))
    assert {name: status.metadata[name] for name in metadata} == metadata
    json.dumps(status.metadata)
