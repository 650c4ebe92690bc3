"""Checks of who is granted a key and with what: one table row of `acquire` after the other. They know no store."""

from __future__ import annotations

import time
from dataclasses import replace

from leased.model import Held, Lost, Terms
from leased.policy import MAX_FENCING_TOKEN, MAX_TTL, REPLAY_WINDOW
from leased.testing.contract.client import Client, equal, expect, moves_time, new_claim
from leased.testing.worlds import World


async def check_a_free_key_is_granted(world: World) -> None:
    """A claim on a free key is granted as asked for, with the time left that the store itself measured."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit, owner="report")
    asked_at = world.now()
    lease = await client.granted(claim)
    took = world.now() - asked_at
    found = (lease.key, lease.token, lease.ttl, lease.owner, lease.renewal)
    equal(found, (claim.key, claim.token, claim.ttl, "report", 0), what="key, token, ttl, owner and renewal of a grant")
    expect(
        claim.ttl - 1.1 * took - 1e-6 <= lease.left <= claim.ttl + 1.0, f"{claim.ttl} s asked for, {lease.left} left"
    )
    expect(0 < lease.fencing_token <= MAX_FENCING_TOKEN, f"fencing token {lease.fencing_token} is out of range")


async def check_a_held_key_is_refused(world: World) -> None:
    """While one claim holds a key every other one is refused, is shown the holder, and changes nothing."""
    client = Client(world.store)
    key = world.fresh_key()
    holder = new_claim(key, ttl=3 * world.unit, owner="first")
    lease = await client.granted(holder)
    for other in (new_claim(key, ttl=world.unit), new_claim(key, ttl=world.unit, owner="second")):
        seen = (await client.refused(other)).status
        expect(
            seen is not None and seen.state == "held" and seen.owner == "first", f"who holds it was not shown: {seen}"
        )
        await client.lost(other, reason="taken")
    still = await client.holds(holder)
    equal(still.fencing_token, lease.fencing_token, what="the holder's fencing token after refused claims")
    await client.freed(holder)
    equal(await client.state(key), "free", what="the key after its only lease was released")


async def check_the_same_claim_again_gets_the_same_grant(world: World) -> None:
    """A claim that is repeated while its lease lives gets that lease: same fencing token, and its time runs on."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
    first = await client.granted(claim)
    await world.advance(world.unit)
    again = await client.granted(claim)
    equal(again.fencing_token, first.fencing_token, what="fencing token of a repeated claim")
    expect(again.left <= first.left - world.unit, f"a repeated claim restarted the lease: {again.left} s left")
    await client.freed(claim)
    equal(await client.state(claim.key), "free", what="the key after one release of a claim that was sent twice")


async def check_a_lease_ends_by_itself(world: World) -> None:
    """A lease is valid until its ttl has passed and over at that instant, with nobody doing anything."""
    client = Client(world.store)
    key = world.fresh_key()
    claim, other = (new_claim(key, ttl=2 * world.unit) for _ in range(2))
    await client.granted(claim)
    await world.advance(world.unit)
    await client.refused(other)
    await client.holds(claim)
    await world.advance(world.unit)
    equal(await client.state(key), "free", what="the key at the instant of expiry")
    await client.lost(claim, reason="expired")
    await client.granted(other)


async def check_an_owner_takes_over_its_own_hold(world: World) -> None:
    """The owner named by the holder gets the key at once, with a new lease; the old token is worthless from then on."""
    client = Client(world.store)
    key = world.fresh_key()
    old, new = (new_claim(key, ttl=3 * world.unit, owner="run-7") for _ in range(2))
    first = await client.granted(old)
    await client.renewed(old, ttl=3 * world.unit, number=5)
    second = await client.granted(new)
    expect(second.fencing_token > first.fencing_token, "a take-over must raise the fencing token")
    equal(second.renewal, 0, what="renewals of a lease that was just taken over")
    await client.lost(old, reason="retaken")
    equal((await client.release(old)).reason, "not_holder", what="release by the token that was taken over")
    await client.ended(old)
    await client.holds(new)


async def check_only_the_very_same_owner_takes_over(world: World) -> None:
    """Owners are compared byte for byte, and no owner is nobody's owner: such claims are contention."""
    client = Client(world.store)
    strangers: dict[str | None, list[str | None]] = {
        "Run": [None, "run", "Run ", "Run\u0301", "Ru"],
        None: [None, "Run"],
        "\u00e9": ["e\u0301", "e"],
    }
    for owner, others in strangers.items():
        key = world.fresh_key()
        holder = new_claim(key, ttl=3 * world.unit, owner=owner)
        await client.granted(holder)
        for other in others:
            await client.refused(new_claim(key, ttl=3 * world.unit, owner=other))
        await client.holds(holder)


@moves_time
async def check_owners_do_not_open_a_closed_key(world: World) -> None:
    """The owner of a lease that ran out waits for the end of the closed period as everybody does."""
    client = Client(world.store)
    key = world.fresh_key()
    terms = Terms(lock_delay=2 * world.unit)
    await client.granted(new_claim(key, ttl=world.unit, owner="run", terms=terms))
    await world.advance(world.unit)
    await client.refused(new_claim(key, ttl=world.unit, owner="run"))
    await world.advance(2 * world.unit)
    await client.granted(new_claim(key, ttl=world.unit, owner="run"))


@moves_time
async def check_fencing_tokens_rise_whatever_ends_a_lease(world: World) -> None:
    """Each grant of a key has a higher fencing token than all before, on every client, however the last lease ended."""
    client, other = Client(world.store), Client(world.another())
    key, ttl = world.fresh_key(), 2 * world.unit
    seen = 0
    for ending in ("release", "expiry", "retake", "force", "abandon", "closed", "days", "release"):
        claim = new_claim(key, ttl=ttl, owner="run", terms=Terms(hold_at_least=ttl if ending == "closed" else 0.0))
        number = (await client.granted(claim)).fencing_token
        expect(number > seen, f"fencing token {number} after {seen}, after which the lease ended by {ending!r}")
        seen = number
        match ending:
            case "release":
                await client.freed(claim)
            case "closed":
                await client.freed(claim)
                await world.advance(ttl)
            case "expiry":
                await world.advance(ttl)
            case "force":
                expect(await client.force(key), "a forced release of a held key answers true")
            case "abandon":
                await client.abandon(claim)
            case "days":
                await client.freed(claim)
                await world.advance(3 * 86_400.0)
            case _:
                pass  # the next claim takes over
        client, other = other, client


async def check_fencing_tokens_follow_the_wall_clock(world: World) -> None:
    """A fencing token is at least the time in µs, so that it rises even over the loss of all data."""
    client = Client(world.store)
    wall = world.clock.wall() if world.clock else time.time() - 3_600.0
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
    number = (await client.granted(claim)).fencing_token
    expect(number >= int(wall * 1_000_000), f"fencing token {number} at {wall} s since the epoch")


@moves_time
async def check_a_token_that_ended_is_refused(world: World) -> None:
    """A late copy of a claim is refused once its lease has ended in any way, before owners are compared."""
    client = Client(world.store)
    for ending in ("release", "abandon", "retake", "force", "lapse", "lapse and successor"):
        key, ttl = world.fresh_key(), world.unit
        claim = new_claim(key, ttl=ttl, owner="run", late=True)
        await client.granted(claim)
        match ending:
            case "release":
                await client.freed(claim)
            case "abandon":
                await client.abandon(claim)
            case "retake":
                await client.granted(new_claim(key, ttl=ttl, owner="run"))
            case "force":
                await client.force(key)
            case _:
                await world.advance(ttl)
        if ending == "lapse and successor":
            await client.granted(new_claim(key, ttl=ttl, owner="run"))
        await client.ended(claim)
        await world.advance(REPLAY_WINDOW - 1.5 * world.unit)
        await client.ended(claim)


@moves_time
async def check_a_lapsed_token_is_refused_while_the_key_is_closed(world: World) -> None:
    """A claim whose lease ran out has ended, late or not, for as long as the closed period shows it; forcing the key
    open keeps that for a late one."""
    client = Client(world.store)
    for late in (False, True):
        claim = new_claim(world.fresh_key(), ttl=world.unit, late=late, terms=Terms(lock_delay=9 * world.unit))
        await client.granted(claim)
        await world.advance(8 * world.unit)
        await client.ended(claim)
        expect(await client.force(claim.key), "a forced release opens a key that a lapsed lease keeps closed")
        if late:
            await client.ended(claim)
        await client.granted(new_claim(claim.key, ttl=world.unit))


async def check_late_may_be_told_by_a_repeated_claim(world: World) -> None:
    """A claim that becomes `late` only when it is repeated is remembered after its end all the same."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
    await client.granted(claim)
    await client.granted(replace(claim, late=True))
    await client.granted(claim)
    await client.freed(claim)
    await client.ended(claim)


async def check_a_release_may_tell_that_a_copy_is_late(world: World) -> None:
    """`release(late=True)` has the token remembered, whether it freed the key or found nothing of that token."""
    client = Client(world.store)
    for granted in (True, False):
        claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
        if granted:
            await client.granted(claim)
        found = await client.release(claim, late=True)
        equal(found.reason, "" if granted else "not_holder", what="a release that is marked late")
        await client.ended(claim)
        equal(await client.state(claim.key), "free", what="the key after a late copy was refused")


async def check_an_abandoned_claim_is_never_granted(world: World) -> None:
    """An abandon that overtakes its claim wins: the claim is refused when it arrives, and the key stays free."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit, owner="run")
    await client.abandon(claim)
    await client.abandon(claim)
    await client.ended(claim)
    equal(await client.state(claim.key), "free", what="the key of an abandoned claim")
    await client.granted(new_claim(claim.key, ttl=3 * world.unit))


@moves_time
async def check_an_abandon_is_remembered_from_the_last_one(world: World) -> None:
    """Abandoning again has the token remembered for a whole window from then, whatever was remembered before."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
    await client.granted(claim)
    await client.freed(claim, late=True)
    await world.advance(REPLAY_WINDOW - world.unit)
    await client.abandon(claim)
    await world.advance(REPLAY_WINDOW - world.unit)
    await client.ended(claim)


async def check_no_time_is_rounded_down(world: World) -> None:
    """A ttl that a store's resolution cannot express is kept for at least as long as asked, by grant and renewal."""
    client = Client(world.store)
    for ttl in (0.1055, 0.4999, 0.9999, 1.0001, 7.0000004):
        claim = new_claim(world.fresh_key(), ttl=ttl)
        asked_at = world.now()
        lease = await client.granted(claim)
        least = ttl - 1.1 * (world.now() - asked_at) - 1e-7
        expect(least <= lease.left <= ttl + 1.0, f"{ttl} s asked for, {lease.left} s left at the grant")
        renewed_at = world.now()
        match await client.renew(claim, ttl=ttl, number=1):
            case Held(lease):
                least = ttl - 1.1 * (world.now() - renewed_at) - 1e-7
                expect(least <= lease.left <= ttl + 1.0, f"{ttl} s asked for, {lease.left} s left after a renewal")
            case Lost():
                expect(world.now() - asked_at > 0.9 * ttl, f"a lease of {ttl} s was over before its time")


async def check_the_longest_ttl_is_kept(world: World) -> None:
    """The largest ttl and the largest terms that callers may ask for are granted and renewed in full."""
    client = Client(world.store)
    terms = Terms(max_hold=MAX_TTL, hold_at_least=MAX_TTL, lock_delay=MAX_TTL)
    claim = new_claim(world.fresh_key(), ttl=MAX_TTL, terms=terms)
    expect((await client.granted(claim)).left >= MAX_TTL - world.unit, "the largest ttl was cut")
    expect((await client.renewed(claim, ttl=MAX_TTL, number=1)).left >= MAX_TTL - world.unit, "a renewal cut it")
    free_in = (await client.status(claim.key)).free_in
    expect(free_in is not None and free_in >= 2 * MAX_TTL - 2 * world.unit, f"the lock delay was cut: {free_in}")
    await client.abandon(claim)
    equal(await client.state(claim.key), "free", what="the key after it was abandoned")
