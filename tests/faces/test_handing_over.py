"""Handles as text: dump, hand-over, restore; pickling and copying of everything else."""

import asyncio
import copy
import json
import multiprocessing
import pickle
from typing import Any

import pytest

import leased
import leased.aio
from leased import InvalidRequest, LockLost, LockNotHeld, StoreUnavailable
from tests.faces.world import Face, World, block, done


async def test_a_dump_restores_elsewhere_with_the_true_remaining_time(world: World) -> None:
    """L6: the restored handle has token, number, owner and what is really left; the first one stays a handle."""
    handle = await world.take(world.locks.lock("k", ttl=30, owner="run-7"))
    text = handle.dump()
    world.move(10)
    locks = world.elsewhere()
    copy_ = world.keep(await done(locks.restore(text)))
    assert (copy_.key, copy_.owner, copy_.token, copy_.fencing_token) == (
        "k",
        "run-7",
        handle.token,
        handle.fencing_token,
    )
    assert 18 < copy_.remaining() < 20
    assert await done(copy_.renew())
    assert await done(handle.renew())
    assert await done(copy_.release())
    assert not await done(handle.release())


async def test_a_restored_handle_is_renewed_only_when_asked(world: World) -> None:
    """C196, L6: restoring does not renew in two places; with `renew=True` it renews here."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    text = handle.hand_over()
    plain = world.keep(await done(world.locks.restore(text)))
    other = await world.take(world.locks.lock("other", ttl=10, renew=True))
    for _ in range(2):
        before = world.store.asked("renew")
        world.move(3.4)
        await world.until_more("renew", before)
    assert world.store.asked("renew", key="k") == 0
    renewed = world.keep(await done(world.locks.restore(text, renew=True)))
    for _ in range(4):
        before = world.store.asked("renew", key="k")
        world.move(3)
        await world.until_more("renew", before, key="k")
    assert not renewed.lost
    assert plain.lost
    assert not other.lost


async def test_handing_over_ends_the_hold_here(world: World) -> None:
    """L6: after `hand_over` the handle is lost here (`handed_over`): not renewed, not released, not extended."""
    handle = await world.take(world.locks.lock("k", ttl=10, renew=True))
    handle.hand_over()
    assert handle.lost_reason == "handed_over"
    assert (await done(handle.release())).reason == "not_holder"
    outcome = await done(handle.renew())
    assert (outcome.reason, outcome.lost_reason) == ("lease_lost", "handed_over")
    with pytest.raises(LockLost):
        handle.hand_over()
    assert await world.held("k")
    world.move(11)
    assert not await world.held("k")


async def test_restoring_what_is_over_is_refused(world: World) -> None:
    """L6: a lease that was released, ran out, was forced or taken over cannot be restored; the reason is told."""
    for reason in ("expired", "force_released", "retaken"):
        handle = await world.take(world.locks.lock(reason, ttl=10, owner="o"))
        text = handle.dump()
        if reason == "expired":
            world.move(11)
        elif reason == "force_released":
            await done(world.locks.force_release(reason))
        else:
            await world.take(world.locks.lock(reason, owner="o"))
        with pytest.raises(LockNotHeld) as raised:
            await done(world.locks.restore(text))
        assert (raised.value.key, raised.value.reason) == (reason, reason)


async def test_restoring_asks_the_store_once(world: World) -> None:
    """L6: one question; without an answer it raises, and the lease is as it was."""
    handle = await world.take(world.locks.lock("k"))
    before = world.store.requests
    world.keep(await done(world.locks.restore(handle.dump())))
    assert world.store.requests == before + 1
    world.store.lose_request("look")
    with pytest.raises(StoreUnavailable):
        await done(world.locks.restore(handle.dump()))
    assert await done(handle.renew())


BROKEN: list[Any] = [
    "",
    "nonsense",
    "{}",
    "[]",
    "null",
    '"text"',
    "{" * 3_000,
    "[" * 4_000,
    "x" * 5_000,
    '{"leased": 2}',
    '{"leased": true, "key": "k"}',
    '{"leased": 1, "key": "k"}',
    '{"leased": 1, "key": "k", "token": "short", "fencingToken": 1, "owner": null}',
    '{"leased": 1, "key": "", "token": "TOKEN-OF-SOMEBODY-1", "fencingToken": 1, "owner": null}',
    '{"leased": 1, "key": 7, "token": "TOKEN-OF-SOMEBODY-1", "fencingToken": 1, "owner": null}',
    '{"leased": 1, "key": "k", "token": "TOKEN-OF-SOMEBODY-1", "fencingToken": "1", "owner": null}',
    '{"leased": 1, "key": "k", "token": "TOKEN-OF-SOMEBODY-1", "fencingToken": true, "owner": null}',
    '{"leased": 1, "key": "k", "token": "TOKEN-OF-SOMEBODY-1", "fencingToken": 1, "owner": 7}',
    '{"leased": 1, "key": "k", "token": "TOKEN-OF-SOMEBODY-1", "fencingToken": 1, "owner": ""}',
    '{"leased": 1, "key": "k", "token": "TOKEN-OF-SOMEBODY-1", "fencingToken": -1, "owner": null}',
    None,
    7,
    b'{"leased": 1}',
]


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: repr(text)[:40])
async def test_a_broken_text_is_refused_unseen(world: World, text: Any) -> None:
    """SEC17: what is not the text of a handle is `InvalidRequest`; nobody is asked, and nothing of it is shown."""
    with pytest.raises(InvalidRequest) as raised:
        await done(world.locks.restore(text))
    assert "TOKEN-OF-SOMEBODY" not in str(raised.value)
    assert raised.value.__context__ is None  # the parser's error would carry the text along
    assert world.store.requests == 0


async def test_the_text_of_a_handle_is_versioned_json_marked_as_secret(world: World) -> None:
    """M3, SEC17: the text says what it is, and that it is a secret."""
    handle = await world.take(world.locks.lock("schlüssel", owner="o"))
    value = json.loads(handle.dump())
    assert value["leased"] == 1
    assert value["secret"] is True
    assert value["token"] == handle.token


async def test_a_live_handle_refuses_to_be_copied(world: World) -> None:
    """C196: pickling and copying a handle is refused with a pointer to dump and restore."""
    handle = await world.take(world.locks.lock("k"))
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="restore"):
            attempt(handle)
    async with block(world.locks.lock("other")) as held:
        with pytest.raises(TypeError):
            pickle.dumps(held)


async def test_recipes_and_locks_survive_pickling_and_reconnect(face: Face) -> None:
    """C196, L1: a lock and its `Locks` are copied by URL and options; the copy holds nothing and connects on use."""
    locks = face.module.connect("memory:pickled", namespace="n", timeout=3)
    lock = locks.lock("k", ttl=17, wait=0, owner="o", metadata={"a": 1}, name="job")
    for duplicate in (pickle.loads(pickle.dumps(lock)), copy.deepcopy(lock), copy.copy(lock)):
        assert (duplicate.key, repr(duplicate)) == (lock.key, repr(lock))
        handle = await done(duplicate.acquire())
        assert (handle.ttl, handle.owner) == (17, "o")
        assert (await done(locks.status("k"))).fencing_token == handle.fencing_token
        await done(handle.release())
    again = pickle.loads(pickle.dumps(locks))
    assert repr(again) == repr(locks)
    async with block(again.lock("k")):
        assert await done(lock.try_acquire()) is None
    await done(locks.close())


async def test_a_lock_that_is_held_can_be_pickled_without_its_hold(face: Face) -> None:
    """C196: the copy of a lock whose block runs is a recipe like any other: it is refused as anybody is."""
    locks = face.module.connect("memory:pickled-while-held")
    lock = locks.lock("k")
    async with block(lock):
        duplicate = pickle.loads(pickle.dumps(lock))
        assert await done(duplicate.try_acquire()) is None
    handle = await done(duplicate.acquire())
    await done(handle.release())


async def test_what_cannot_be_pickled_says_why(world: World) -> None:
    """C196, C176: locks on a store object are refused with a sentence; the refusal shows no secret."""
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"connect\(\)"):
            attempt(world.locks.lock("k"))
        with pytest.raises(TypeError, match=r"connect\(\)"):
            attempt(world.locks)


async def test_module_level_locks_can_be_pickled(face: Face) -> None:
    """L1, L8: a lock on the process default is copied without any store."""
    lock = face.module.lock("k", ttl=9)
    duplicate = pickle.loads(pickle.dumps(lock))
    assert (duplicate.key, repr(duplicate)) == ("k", repr(lock))


def in_a_child(lock: Any, sender: Any) -> None:
    """What a spawned process does with a lock that it was sent."""
    if isinstance(lock, leased.Lock):
        with lock as held:
            sender.send((held.key, held.lost, held.fencing_token))
        return

    async def work() -> None:
        async with lock as held:
            sender.send((held.key, held.lost, held.fencing_token))

    asyncio.run(work())


@pytest.mark.parametrize("module", [leased, leased.aio], ids=["blocking", "async"])
def test_a_lock_can_be_sent_to_a_spawned_process(module: Any, tmp_path: Any) -> None:
    """C196: through multiprocessing's spawn a lock on a file works in the child, which connects by itself."""
    locks = module.connect(f"sqlite:{tmp_path}/locks.db")
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=in_a_child, args=(locks.lock("k", ttl=60), sender))
    child.start()
    assert receiver.poll(20)
    key, lost, fencing_token = receiver.recv()
    child.join(20)
    assert (key, lost, child.exitcode) == ("k", False, 0)

    with leased.connect(f"sqlite:{tmp_path}/locks.db") as here:
        handle = here.lock("k").acquire()
        assert handle.fencing_token > fencing_token
        handle.release()


@pytest.mark.parametrize(
    "error",
    [
        leased.LockTimeout("m", key="k", holder=leased.Status("k"), timeout=2.0, hint="h"),
        leased.LockLost("m", key="k", reason="expired"),
        leased.InvalidRequest("m", code="LOCK_KEY_INVALID"),
        leased.StoreUnavailable("m", applied=None),
        leased.RateLimited("m", retry_after=3.0),
        leased.LockDeadlock("m", key="k", taken_at="f.py:1"),
        leased.StaleFencingToken("m", fencing_token=1, seen=2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: leased.LeasedError) -> None:
    """C196: an error that crosses a process pool keeps its class, message, code and data."""
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert (str(twin), twin.code, vars(twin)) == (str(error), error.code, vars(error))
