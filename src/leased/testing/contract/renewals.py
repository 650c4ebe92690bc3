"""Checks of `renew` and `look`: they set, never add, never create and never revive. They know no store."""

from __future__ import annotations

from dataclasses import replace

from leased.testing.contract.client import Client, equal, expect, moves_time, new_claim
from leased.testing.worlds import World


async def check_a_renewal_sets_the_expiry(world: World) -> None:
    """Three renewals in a row leave one ttl, not three; the fencing token does not change."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=world.unit)
    granted = await client.granted(claim)
    for number in (1, 2, 3):
        lease = await client.renewed(claim, ttl=3 * world.unit, number=number)
        expect(2 * world.unit < lease.left <= 3 * world.unit + 1.0, f"{lease.left} s left, 3 × {world.unit} asked for")
        equal((lease.fencing_token, lease.renewal), (granted.fencing_token, number), what="fencing token and number")
        equal(lease.ttl, 3 * world.unit, what="ttl after a renewal")


@moves_time
async def check_a_renewal_may_shorten(world: World) -> None:
    """A smaller ttl takes time away, and the lease then ends at that earlier instant."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=90 * world.unit)
    await client.granted(claim)
    lease = await client.renewed(claim, ttl=2 * world.unit, number=1)
    expect(lease.left <= 2 * world.unit + 1.0, f"a shortening renewal left {lease.left} s")
    await world.advance(world.unit)
    await client.holds(claim)
    await world.advance(world.unit)
    await client.lost(claim, reason="expired")
    await client.granted(new_claim(claim.key, ttl=world.unit))


@moves_time
async def check_renewals_keep_a_lease_alive(world: World) -> None:
    """A lease that is renewed in time is never over, for many times its ttl."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=2 * world.unit)
    await client.granted(claim)
    for number in range(1, 20):
        await world.advance(world.unit)
        await client.renewed(claim, ttl=2 * world.unit, number=number)
        await client.refused(new_claim(claim.key, ttl=world.unit))


@moves_time
async def check_a_late_copy_of_a_renewal_changes_nothing(world: World) -> None:
    """A renewal with an equal or a lower number is answered with the store's number and time, and changes neither."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=2 * world.unit)
    await client.granted(claim)
    await client.renewed(claim, ttl=4 * world.unit, number=7)
    await world.advance(world.unit)
    for ttl in (world.unit / 2, 90 * world.unit):
        for number in (7, 6, 1, 0):
            lease = await client.renewed(claim, ttl=ttl, number=number)
            equal(lease.renewal, 7, what=f"the store's number after a copy numbered {number}")
            expect(2 * world.unit < lease.left <= 3 * world.unit + 1.0, f"a late copy changed the time: {lease.left} s")
    await client.renewed(claim, ttl=4 * world.unit, number=8)


async def check_numbers_may_leave_gaps(world: World) -> None:
    """Any higher number is the newest one: renewals whose requests were lost do not matter."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=world.unit)
    await client.granted(claim)
    for number in (3, 4, 1_000, 2**31 + 1):
        equal((await client.renewed(claim, ttl=world.unit, number=number)).renewal, number, what="renewal number")
    await client.abandon(claim)


@moves_time
async def check_a_renewal_never_revives(world: World) -> None:
    """A lease that ran out stays over, even if nobody took the key, and the key stays free."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=world.unit)
    await client.granted(claim)
    await world.advance(world.unit)
    await client.lost(claim, reason="expired")
    equal(await client.state(claim.key), "free", what="the key after renewals of a lapsed lease")
    await world.advance(90 * world.unit)
    await client.lost(claim, reason="expired")
    await client.granted(new_claim(claim.key, ttl=world.unit))
    await client.lost(claim, reason="taken")


async def check_a_renewal_never_creates(world: World) -> None:
    """A token that was never granted holds nothing, on a key that nobody used and on one that was released."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
    await client.lost(claim, reason="expired")
    equal(await client.state(claim.key), "free", what="a key that only a renewal named")
    await client.granted(claim)
    await client.freed(claim)
    await client.lost(claim, reason="expired")
    equal(await client.state(claim.key), "free", what="the key after a renewal that came too late")


async def check_only_the_whole_token_renews(world: World) -> None:
    """Tokens are compared whole and exactly; the holder's is not affected by renewals of others."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
    await client.granted(claim)
    token = claim.token
    for wrong in (token[:-1], token + "0", token.upper() + "A", token + " ", "", "x"):
        await client.lost(replace(claim, token=wrong), reason="taken")
        equal((await client.release(replace(claim, token=wrong))).reason, "not_holder", what="release by a wrong token")
    equal((await client.holds(claim)).renewal, 0, what="the holder's renewals after those of others")


async def check_the_reason_of_a_loss_is_told(world: World) -> None:
    """A loss names what ended the lease, and the first reason stands: forced, or taken after it was released."""
    client = Client(world.store)
    forced = new_claim(world.fresh_key(), ttl=3 * world.unit)
    await client.granted(forced)
    await client.force(forced.key)
    await client.lost(forced, reason="force_released")
    equal((await client.release(forced, late=True)).reason, "not_holder", what="release after a forced one")
    await client.granted(new_claim(forced.key, ttl=3 * world.unit))
    await client.lost(forced, reason="force_released")
    released = new_claim(world.fresh_key(), ttl=3 * world.unit)
    await client.granted(released)
    await client.freed(released)
    await client.granted(new_claim(released.key, ttl=3 * world.unit))
    await client.lost(released, reason="taken")


@moves_time
async def check_a_look_changes_nothing(world: World) -> None:
    """A look shows the time left and the renewal number, and moves neither."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=4 * world.unit, owner="run")
    granted = await client.granted(claim)
    await client.renewed(claim, ttl=3 * world.unit, number=4)
    await world.advance(world.unit)
    for _ in range(2):
        seen = await client.holds(claim)
        equal(
            (seen.renewal, seen.fencing_token, seen.owner), (4, granted.fencing_token, "run"), what="what a look shows"
        )
        expect(0 < seen.left <= 2 * world.unit + 1e-6, f"a look shows {seen.left} s left")
    await world.advance(2 * world.unit)
    await client.lost(claim, reason="expired")
