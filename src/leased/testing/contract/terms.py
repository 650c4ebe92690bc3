"""Checks of `max_hold`, `hold_at_least` and `lock_delay`: when leases must end and keys open. They know no store."""

from __future__ import annotations

from leased.model import Terms
from leased.testing.contract.client import Client, equal, expect, moves_time, new_claim
from leased.testing.worlds import World


@moves_time
async def check_max_hold_cuts_the_grant(world: World) -> None:
    """A ttl beyond `max_hold` is cut at it when granted, and the loss at that instant says so."""
    client = Client(world.store)
    terms = Terms(max_hold=2 * world.unit, lock_delay=world.unit)
    claim = new_claim(world.fresh_key(), ttl=9 * world.unit, terms=terms)
    expect((await client.granted(claim)).left <= 2 * world.unit + 1e-6, "a grant reaches beyond `max_hold`")
    await world.advance(world.unit)
    await client.holds(claim)
    await world.advance(world.unit)
    await client.lost(claim, reason="max_hold")
    equal((await client.release(claim)).reason, "expired", what="release after `max_hold`")


@moves_time
async def check_max_hold_cuts_renewals(world: World) -> None:
    """Renewals never move the end that `max_hold` set at the grant; a renewal still says `Held` until then."""
    client = Client(world.store)
    terms = Terms(max_hold=5 * world.unit, lock_delay=world.unit)
    claim = new_claim(world.fresh_key(), ttl=2 * world.unit, terms=terms)
    await client.granted(claim)
    for number in range(1, 5):
        await world.advance(world.unit)
        left = (await client.renewed(claim, ttl=2 * world.unit, number=number)).left
        most = min(2, 5 - number) * world.unit
        expect(most - world.unit / 2 < left <= most + 1e-6, f"{left} s left where `max_hold` leaves {most}")
    await world.advance(world.unit)
    await client.lost(claim, reason="max_hold")


@moves_time
async def check_running_out_before_max_hold_is_expiry(world: World) -> None:
    """A lease that ran out before its `max_hold` is lost as `expired`, and as `max_hold` only once that has passed."""
    client = Client(world.store)
    terms = Terms(max_hold=3 * world.unit, lock_delay=9 * world.unit)
    claim = new_claim(world.fresh_key(), ttl=world.unit, terms=terms)
    await client.granted(claim)
    await world.advance(world.unit)
    await client.lost(claim, reason="expired")
    await world.advance(2 * world.unit)
    await client.lost(claim, reason="max_hold")


@moves_time
async def check_a_take_over_starts_a_new_max_hold(world: World) -> None:
    """The lease of a take-over has the terms of its own claim, counted from its own grant."""
    client = Client(world.store)
    key = world.fresh_key()
    await client.granted(new_claim(key, ttl=2 * world.unit, owner="run", terms=Terms(max_hold=2 * world.unit)))
    await world.advance(world.unit)
    second = new_claim(key, ttl=4 * world.unit, owner="run", terms=Terms(max_hold=4 * world.unit))
    expect((await client.granted(second)).left > 3 * world.unit, "the earlier lease's `max_hold` cut the new one")


@moves_time
async def check_hold_at_least_keeps_a_released_key_closed(world: World) -> None:
    """After a release the key stays closed, for everybody and unowned, until the lease would be that old."""
    client = Client(world.store)
    terms = Terms(hold_at_least=4 * world.unit)
    claim = new_claim(world.fresh_key(), ttl=2 * world.unit, owner="run", terms=terms)
    lease = await client.granted(claim)
    await world.advance(world.unit)
    await client.freed(claim)
    seen = await client.status(claim.key)
    equal((seen.state, seen.owner, seen.expires_in), ("closed", None, None), what="state, owner and expiry")
    equal(seen.fencing_token, lease.fencing_token, what="fencing token of a closed key")
    expect(
        seen.free_in is not None and seen.free_in <= 3 * world.unit + 1e-6, f"it should open in time: {seen.free_in}"
    )
    await client.refused(new_claim(claim.key, ttl=world.unit, owner="run"))
    equal((await client.release(claim)).reason, "not_holder", what="a second release")
    await world.advance(2 * world.unit)
    await client.refused(new_claim(claim.key, ttl=world.unit))
    await world.advance(world.unit)
    equal(await client.state(claim.key), "free", what="the key once the lease would be old enough")
    await client.granted(new_claim(claim.key, ttl=world.unit))


@moves_time
async def check_hold_at_least_outlasts_expiry(world: World) -> None:
    """A lease that runs out before that age leaves the key closed until then; an older one opens it when released."""
    client = Client(world.store)
    lapsing = new_claim(world.fresh_key(), ttl=world.unit, terms=Terms(hold_at_least=3 * world.unit))
    await client.granted(lapsing)
    lasting = new_claim(world.fresh_key(), ttl=9 * world.unit, terms=Terms(hold_at_least=2 * world.unit))
    await client.granted(lasting)
    await world.advance(2 * world.unit)
    equal(await client.state(lapsing.key), "closed", what="a key after expiry, before the least hold")
    equal((await client.release(lapsing)).reason, "expired", what="release of a lease that ran out")
    equal(await client.state(lapsing.key), "closed", what="the key after that release")
    await client.freed(lasting)
    equal(await client.state(lasting.key), "free", what="a key released after the least hold")
    await world.advance(world.unit)
    equal(await client.state(lapsing.key), "free", what="the key after the least hold")


@moves_time
async def check_lock_delay_follows_a_lease_that_ran_out(world: World) -> None:
    """After expiry the key stays closed for `lock_delay`, counted from the last expiry, and opens at that instant."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=world.unit, terms=Terms(lock_delay=2 * world.unit))
    await client.granted(claim)
    await client.renewed(claim, ttl=2 * world.unit, number=1)
    await world.advance(2 * world.unit)
    equal(await client.state(claim.key), "closed", what="the key after expiry")
    await client.lost(claim, reason="expired")
    equal((await client.release(claim)).reason, "expired", what="a late release")
    await world.advance(world.unit)
    await client.refused(new_claim(claim.key, ttl=world.unit))
    await world.advance(world.unit)
    await client.granted(new_claim(claim.key, ttl=world.unit))


async def check_lock_delay_does_not_follow_a_release(world: World) -> None:
    """A released key is free at once, whatever its `lock_delay`."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit, terms=Terms(lock_delay=9 * world.unit))
    await client.granted(claim)
    await client.freed(claim)
    equal(await client.state(claim.key), "free", what="the key after a clean release")


async def check_an_abandon_opens_the_key_at_once(world: World) -> None:
    """A grant that nobody wanted closes nothing: neither `hold_at_least` nor `lock_delay` follows an abandon."""
    client = Client(world.store)
    terms = Terms(hold_at_least=9 * world.unit, lock_delay=9 * world.unit)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit, terms=terms)
    await client.granted(claim)
    await client.abandon(claim)
    equal(await client.state(claim.key), "free", what="the key after the abandon")
    await client.lost(claim, reason="expired")


@moves_time
async def check_an_abandon_leaves_a_closed_period_alone(world: World) -> None:
    """Abandoning a claim whose lease ran out opens nothing: the delay was not its own to shorten."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=world.unit, terms=Terms(lock_delay=3 * world.unit))
    await client.granted(claim)
    await world.advance(2 * world.unit)
    await client.abandon(claim)
    equal(await client.state(claim.key), "closed", what="the key after the abandon of a lapsed lease")
    equal((await client.release(claim)).reason, "expired", what="release of that lease")


@moves_time
async def check_a_forced_release_starts_the_lock_delay(world: World) -> None:
    """Forcing a live lease closes the key for `lock_delay` from then, and repeating it never opens that; the least
    hold does not follow."""
    client = Client(world.store)
    terms = Terms(hold_at_least=90 * world.unit, lock_delay=2 * world.unit)
    claim = new_claim(world.fresh_key(), ttl=9 * world.unit, terms=terms)
    number = (await client.granted(claim)).fencing_token
    await world.advance(world.unit)
    expect(await client.force(claim.key, fencing_token=number), "a forced release of a held key answers true")
    equal(await client.state(claim.key), "closed", what="the key after a forced release with a lock delay")
    for again in (number, None):
        expect(not await client.force(claim.key, fencing_token=again), "forcing again must not open the delay")
    await world.advance(world.unit)
    await client.refused(new_claim(claim.key, ttl=world.unit))
    await world.advance(world.unit)
    await client.granted(new_claim(claim.key, ttl=world.unit))


@moves_time
async def check_a_forced_release_opens_a_closed_key(world: World) -> None:
    """A key that a release or an expiry left closed is opened by force, aimed at its last fencing token or at none."""
    client = Client(world.store)
    for ending in ("release", "expiry"):
        for aimed in (True, False):
            terms = Terms(hold_at_least=9 * world.unit, lock_delay=9 * world.unit)
            claim = new_claim(world.fresh_key(), ttl=2 * world.unit, terms=terms)
            number = (await client.granted(claim)).fencing_token
            if ending == "release":
                await client.freed(claim)
            else:
                await world.advance(2 * world.unit)
            equal(await client.state(claim.key), "closed", what=f"the key after {ending}")
            expect(not await client.force(claim.key, fencing_token=number + 1), "a wrong number must not open the key")
            equal(await client.state(claim.key), "closed", what="the key after a badly aimed force")
            opened = await client.force(claim.key, fencing_token=number if aimed else None)
            expect(opened, f"a key closed after {ending} should be opened by force")
            equal(await client.state(claim.key), "free", what="the key after it was forced open")
            expect(not await client.force(claim.key), "an open key has nothing to force")
