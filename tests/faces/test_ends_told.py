"""Every hold that an observer was told of ends for it, whatever becomes of the handle."""

import gc
from collections import Counter
from typing import Any

import pytest

from leased.observe import ENDS, Event
from tests.faces.world import World, block, done


def told(world: World, key: str) -> list[str]:
    """The names of what was told of this key."""
    return [event.name for event in world.events if event.key == key]


def ends(world: World) -> list[Event]:
    """Every event that ends a hold."""
    return [event for event in world.events if event.name in ENDS]


async def test_a_hand_over_ends_here_and_begins_there(world: World) -> None:
    """P3, L6: `handed_over` where it was, `restored` where it is; nothing more at the deadline of the first."""
    handle = await world.take(world.locks.lock("k", ttl=10, name="named"))
    text = handle.hand_over()
    assert [event.data["fencing_token"] for event in ends(world)] == [handle.fencing_token]
    assert world.events[-1].lock == "named"
    restored = world.keep(await done(world.locks.restore(text)))
    world.move(5)
    await done(restored.release())
    assert told(world, "k") == ["acquired", "handed_over", "restored", "released"]
    assert {event.data["fencing_token"] for event in world.events} == {handle.fencing_token}
    world.move(20)
    await done(handle.release())
    assert len(told(world, "k")) == 4


async def test_a_block_that_hands_over_ends_once(world: World) -> None:
    """P3, L6: leaving the block afterwards tells nothing more."""
    async with block(world.locks.lock("k", ttl=10)) as handle:
        handle.hand_over()
    assert told(world, "k") == ["acquired", "handed_over"]


async def test_a_bare_handle_that_runs_out_is_told(world: World) -> None:
    """P3, H2: without anybody asking it: `lost`, at its deadline, once."""
    handle = await world.take(world.locks.lock("k", ttl=10))
    world.move(11)
    await world.until(lambda: len(told(world, "k")) > 1)
    await done(handle.release())
    assert told(world, "k") == ["acquired", "lost"]
    assert ends(world)[0].data == {"reason": "expired", "fencing_token": handle.fencing_token}


@pytest.mark.parametrize("renew", [None, True])
async def test_a_forgotten_handle_ends_with_its_lease(world: World, renew: bool | None) -> None:
    """P3, C029: not renewed any more, `lost` when the lease is over; not before, for until then the key is held."""
    drop: list[Any] = [await done(world.locks.lock("k", ttl=10, renew=renew).acquire())]
    with pytest.warns(ResourceWarning, match="'k'"):
        drop.clear()
    gc.collect()
    world.move(2)
    assert told(world, "k") == ["acquired"]
    world.move(9)
    await world.until(lambda: len(told(world, "k")) > 1)
    assert told(world, "k") == ["acquired", "lost"]
    assert world.store.asked("renew", key="k") == 0


async def test_a_re_take_is_told_before_the_loss(world: World) -> None:
    """P3, O1: in the process that had the lease, once it learns that the same owner took it over."""
    old = await world.take(world.locks.lock("k", owner="run-7", ttl=30))
    await world.occupy("k", owner="run-7", ttl=30)
    assert not await done(old.renew())
    assert told(world, "k") == ["acquired", "retaken", "lost"]
    assert {event.data["fencing_token"] for event in world.events} == {old.fencing_token}


async def test_a_loss_for_another_reason_is_no_re_take(world: World) -> None:
    """P3: `retaken` is told of owners only."""
    handle = await world.take(world.locks.lock("k", ttl=10, owner="run-7"))
    await done(world.locks.force_release("k"))
    assert not await done(handle.renew())
    assert told(world, "k")[-1] == "lost"
    assert Counter(told(world, "k"))["retaken"] == 0


async def test_handles_that_end_are_not_kept_for_the_observer(world: World) -> None:
    """Nothing grows with history: what is watched for an observer goes with its end."""
    client = world.locks._opening.get()
    for number in range(300):
        handle = await done(world.locks.lock(f"k{number}", ttl=10).acquire())
        if number % 3 == 0:
            handle.hand_over()
        elif number % 3 == 1:
            await done(handle.release())
        else:
            await done(world.locks.force_release(handle.key))
            await done(handle.release())
    assert not client._watched
    assert len(ends(world)) == 300
