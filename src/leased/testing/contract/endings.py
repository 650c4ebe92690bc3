"""Checks of `release`, `abandon` and `force_release`: who can end a lease and who cannot. They know no store."""

from __future__ import annotations

from leased.model import Acquire, Claim, Held, Terms
from leased.policy import REPLAY_WINDOW
from leased.testing.contract.client import Client, equal, expect, moves_time, new_claim
from leased.testing.worlds import World


async def check_a_release_frees_the_key(world: World) -> None:
    """The holder's release is true and frees the key at once; a second one is false and says `not_holder`."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
    await client.granted(claim)
    await client.freed(claim)
    equal(await client.state(claim.key), "free", what="the key after its release")
    equal((await client.release(claim)).reason, "not_holder", what="a second release")
    await client.granted(new_claim(claim.key, ttl=3 * world.unit))


async def check_a_release_by_others_changes_nothing(world: World) -> None:
    """A token that does not hold the key, and the holder's token on another key, release nothing."""
    client = Client(world.store)
    claim, elsewhere = (new_claim(world.fresh_key(), ttl=3 * world.unit) for _ in range(2))
    await client.granted(claim)
    await client.granted(elsewhere)
    for key, token in ((claim.key, elsewhere.token), (elsewhere.key, claim.token), (world.fresh_key(), claim.token)):
        answer = await client.release(Claim(key, token, 1.0))
        equal(answer.reason, "not_holder", what="release with a token of another key")
    await client.holds(claim)
    await client.holds(elsewhere)


@moves_time
async def check_a_release_that_comes_too_late_says_so(world: World) -> None:
    """A holder who overran never frees the next holder's lease; it is told `expired` while nobody came after it."""
    client = Client(world.store)
    slow = new_claim(world.fresh_key(), ttl=world.unit, terms=Terms(lock_delay=world.unit))
    await client.granted(slow)
    await world.advance(world.unit)
    for _ in range(2):
        equal((await client.release(slow)).reason, "expired", what="release of a lease that ran out")
    await world.advance(world.unit)
    following = new_claim(slow.key, ttl=3 * world.unit)
    await client.granted(following)
    equal((await client.release(slow)).reason, "not_holder", what="release after a successor came")
    await client.abandon(slow)
    await client.holds(following)


async def check_a_renewal_after_the_release_does_nothing(world: World) -> None:
    """Renewals that arrive after the release change nothing: the key stays free, or with its next holder."""
    client = Client(world.store)
    key = world.fresh_key()
    claim, following = (new_claim(key, ttl=3 * world.unit) for _ in range(2))
    await client.granted(claim)
    await client.freed(claim)
    await client.lost(claim, reason="expired")
    equal(await client.state(key), "free", what="the key after a renewal that came after its release")
    await client.granted(following)
    await client.lost(claim, reason="taken")
    await client.holds(following)


async def check_an_abandon_of_others_changes_nothing(world: World) -> None:
    """Abandoning a claim that was refused, or one on another key, leaves the holder alone."""
    client = Client(world.store)
    key = world.fresh_key()
    holder, loser = (new_claim(key, ttl=3 * world.unit) for _ in range(2))
    await client.granted(holder)
    await client.refused(loser)
    await client.abandon(loser)
    await client.abandon(new_claim(world.fresh_key(), ttl=1.0))
    await client.holds(holder)
    await client.freed(holder)
    await client.ended(loser)


async def check_an_abandoned_grant_frees_the_key(world: World) -> None:
    """Abandoning the holder's claim ends its lease: the key is free, the token refused, the release void."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
    await client.granted(claim)
    await client.abandon(claim)
    equal(await client.state(claim.key), "free", what="the key after an abandon")
    equal((await client.release(claim)).reason, "not_holder", what="release after an abandon")
    await client.lost(claim, reason="expired")
    await client.ended(claim)


async def check_an_abandon_spares_what_others_were_told(world: World) -> None:
    """With `heard`, a lease ends only if nobody else was told of it: by a repeated claim, or a renewal."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
    await client.granted(claim)
    for told in (1, 2, 3):
        for heard in range(told):
            await client.abandon(claim, heard=heard)
        equal((await client.holds(claim)).renewal, 0, what="the renewal number of a lease that was not renewed")
        await client.granted(claim)
    await client.abandon(claim, heard=4)
    equal(await client.state(claim.key), "free", what="the key after it was abandoned by who heard all answers")
    await client.ended(claim)
    unanswered = new_claim(claim.key, ttl=3 * world.unit)
    await client.granted(unanswered)
    await client.abandon(unanswered, heard=3)
    equal(await client.state(claim.key), "free", what="the key after who may have heard of more than was told")
    await client.ended(unanswered)
    renewed = new_claim(claim.key, ttl=3 * world.unit, owner="run")
    await client.granted(renewed)
    await client.renew(renewed, ttl=3 * world.unit, number=0)
    await client.renewed(renewed, ttl=3 * world.unit, number=1)
    await client.granted(renewed)
    for heard in (0, 1, 2, 3):
        await client.abandon(renewed, heard=heard)
    await client.holds(renewed)
    following = new_claim(claim.key, ttl=3 * world.unit, owner="run")
    await client.granted(following)
    await client.lost(renewed, reason="retaken")  # and not marked before


async def check_an_abandon_by_who_heard_of_it_leaves_no_late_copy(world: World) -> None:
    """With `heard`, a claim that holds nothing is marked as without it, so that a copy of it is refused."""
    client = Client(world.store)
    key = world.fresh_key()
    for heard in (0, 1):
        claim = new_claim(key, ttl=3 * world.unit)
        await client.abandon(claim, heard=heard)
        await client.ended(claim)
        equal(await client.state(key), "free", what="the key of an abandoned claim")


@moves_time
async def check_a_mark_ends_while_another_goes_on(world: World) -> None:
    """Each ended token is refused for the replay window from its own end on, and no longer because of later ones; asked
    for by itself and in a batch."""
    client = Client(world.store)
    keys = [world.fresh_key() for _ in range(3)]
    early, late = ([new_claim(key, ttl=3 * world.unit) for key in keys] for _ in range(2))
    for claim in early:
        await client.abandon(claim)
    await world.advance(REPLAY_WINDOW * 2 / 3)
    for claim in late:
        await client.abandon(claim)
    await world.advance(REPLAY_WINDOW / 2)
    for claim in late:
        await client.ended(claim)
    outcomes = await client.many(*(Acquire(claim) for claim in early[:2]))
    expect(all(isinstance(outcome, Held) for outcome in outcomes), "a batch goes by a mark that is over")
    await client.granted(early[2])


async def check_a_forced_release_ends_the_lease_it_names(world: World) -> None:
    """With a number, only the lease of that number ends; without one, whatever lease there is."""
    client = Client(world.store)
    key = world.fresh_key()
    for named in (True, False):
        claim = new_claim(key, ttl=3 * world.unit)
        number = (await client.granted(claim)).fencing_token
        for wrong in (number - 1, number + 1, 0):
            expect(not await client.force(key, fencing_token=wrong), "a number that is not the holder's ends nothing")
        await client.holds(claim)
        expect(await client.force(key, fencing_token=number if named else None), "a forced release answers true")
        equal(await client.state(key), "free", what="the key after a forced release without lock delay")
        await client.lost(claim, reason="force_released")
        equal((await client.release(claim)).reason, "not_holder", what="release after a forced one")
        await client.ended(claim)
        expect(not await client.force(key), "a free key has nothing to force")
        expect(not await client.force(key, fencing_token=number), "nor has it for the last number")


async def check_a_late_forced_release_misses_the_successor(world: World) -> None:
    """Repeating a forced release with the number it was aimed at does not hit the next holder."""
    client = Client(world.store)
    key = world.fresh_key()
    number = (await client.granted(new_claim(key, ttl=3 * world.unit))).fencing_token
    expect(await client.force(key, fencing_token=number), "a forced release of a held key answers true")
    following = new_claim(key, ttl=3 * world.unit)
    await client.granted(following)
    expect(not await client.force(key, fencing_token=number), "a late repeat must not hit the successor")
    await client.holds(following)


@moves_time
async def check_nothing_is_forced_where_nothing_is_held(world: World) -> None:
    """A forced release of a key that was never used, or whose lease ran out, is false and leaves it free."""
    client = Client(world.store)
    expect(not await client.force(world.fresh_key()), "a key that nobody used has nothing to force")
    claim = new_claim(world.fresh_key(), ttl=world.unit)
    number = (await client.granted(claim)).fencing_token
    await world.advance(world.unit)
    for aim in (None, number):
        expect(not await client.force(claim.key, fencing_token=aim), "a lease that ran out has nothing to force")
    await client.granted(new_claim(claim.key, ttl=world.unit))
