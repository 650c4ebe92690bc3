"""Checks that a store forgets what nobody needs any more. They know no store."""

from __future__ import annotations

from leased.model import Terms
from leased.policy import FENCE_RETENTION, REPLAY_WINDOW
from leased.testing.contract.client import Client, expect, moves_time, new_claim
from leased.testing.worlds import NotRunHere, World

_MANY = 200
_FEW = 12


@moves_time
async def check_nothing_grows_with_history(world: World) -> None:
    """Keys that were used once, and tokens that ended, are gone some time later, however each of them ended: what a
    store keeps depends on what is held, not on what was."""
    if world.size is None:
        raise NotRunHere("nobody knows how to count what this store keeps")
    client = Client(world.store)
    endings = ("release", "late release", "abandon", "force", "lapse", "late lapse", "closed")
    for place in range(_MANY):
        ending = endings[place % len(endings)]
        terms = Terms(lock_delay=world.unit if ending == "closed" else 0.0)
        claim = new_claim(world.fresh_key(), ttl=world.unit, late=ending.startswith("late"), terms=terms)
        await client.granted(claim)
        match ending:
            case "release" | "late release":
                await client.freed(claim, late=ending == "late release")
            case "abandon":
                await client.abandon(claim)
            case "force":
                await client.force(claim.key)
            case _:
                pass  # it runs out below
    await world.advance(2 * FENCE_RETENTION + REPLAY_WINDOW)
    for _ in range(_MANY):
        claim = new_claim(world.fresh_key(), ttl=world.unit)
        await client.granted(claim)
        await client.freed(claim)
    await world.advance(2 * FENCE_RETENTION + REPLAY_WINDOW)
    await client.granted(new_claim(world.fresh_key(), ttl=world.unit))
    kept = world.size()
    expect(kept <= _FEW, f"{kept} entries are kept for one lease, after {2 * _MANY} that are over")


@moves_time
async def check_one_key_does_not_grow(world: World) -> None:
    """A key that is used again and again, and lapses each time, keeps one record, and its ended tokens go in time."""
    if world.size is None:
        raise NotRunHere("nobody knows how to count what this store keeps")
    client = Client(world.store)
    key = world.fresh_key()
    for _ in range(_MANY):
        await client.granted(new_claim(key, ttl=world.unit, late=True))
        await world.advance(world.unit)
    most = REPLAY_WINDOW / world.unit + _FEW
    kept = world.size()
    expect(kept <= most, f"{kept} entries are kept for one key whose last {most:.0f} leases can matter")
