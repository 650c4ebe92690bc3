"""Checks of `many`: a batch answers as its members would one by one. They know no store."""

from __future__ import annotations

from leased.model import Abandon, Acquire, Contended, Held, Look, Lost, Release, Released, Renew
from leased.store import Outcome
from leased.testing.contract.client import Client, equal, expect, moves_time, new_claim
from leased.testing.worlds import World


def _word(outcome: Outcome) -> str:
    match outcome:
        case Held():
            return "held"
        case Contended(ended=ended):
            return "ended" if ended else "contended"
        case Lost(reason):
            return f"lost: {reason}"
        case Released(reason):
            return f"released: {reason}"
        case None:
            return "abandoned"
        case error:
            return f"raised: {type(error).__name__}"


async def check_an_empty_batch_is_answered(world: World) -> None:
    """No operations, no answers, no error."""
    equal(list(await Client(world.store).many()), [], what="the answers to an empty batch")


async def check_a_batch_answers_as_its_members_would(world: World) -> None:
    """Every kind of operation, on keys in every state, has its own answer in its own place."""
    client = Client(world.store)
    ttl = 9 * world.unit
    held, free, taken, forced, spare = (new_claim(world.fresh_key(), ttl=ttl) for _ in range(5))
    for claim in (held, taken, forced):
        await client.granted(claim)
    await client.force(forced.key)
    outcomes = await client.many(
        Look(free.key, free.token),
        Acquire(free),
        Acquire(new_claim(taken.key, ttl=ttl)),
        Renew(held.key, held.token, ttl, 3),
        Renew(forced.key, forced.token, ttl, 1),
        Acquire(forced),
        Release(taken.key, held.token),
        Release(taken.key, taken.token),
        Abandon(spare.key, spare.token),
        Look(held.key, held.token),
    )
    wanted = ["lost: expired", "held", "contended", "held", "lost: force_released", "ended"]
    wanted += ["released: not_holder", "released: ", "abandoned", "held"]
    equal([_word(outcome) for outcome in outcomes], wanted, what="the answers of a batch")
    last = outcomes[-1]
    expect(isinstance(last, Held) and last.lease.renewal == 3, f"a renewal in the batch should show: {last!r}")
    await client.holds(free)
    equal(await client.state(taken.key), "free", what="a key that was released in a batch")
    await client.ended(spare)


async def check_a_batch_may_name_a_key_twice(world: World) -> None:
    """Operations on one key act in their order, each upon what the one before it left."""
    client = Client(world.store)
    key, ttl = world.fresh_key(), 9 * world.unit
    first, second, third = (new_claim(key, ttl=ttl, owner=owner) for owner in (None, "run", "run"))
    outcomes = await client.many(
        Acquire(first),
        Acquire(second),
        Renew(key, first.token, ttl, 1),
        Renew(key, first.token, ttl, 2),
        Release(key, first.token),
        Acquire(second),
        Acquire(third),
        Look(key, second.token),
        Abandon(key, third.token),
        Acquire(third),
        Acquire(new_claim(key, ttl=ttl)),
    )
    wanted = ["held", "contended", "held", "held", "released: ", "held", "held", "lost: retaken", "abandoned", "ended"]
    equal([_word(outcome) for outcome in outcomes], [*wanted, "held"], what="answers of a batch on one key")
    numbers = [outcome.lease.fencing_token for outcome in outcomes if isinstance(outcome, Held)]
    expect(numbers == sorted(numbers) and len(set(numbers)) == 4, f"fencing tokens in a batch: {numbers}")


@moves_time
async def check_a_large_batch_keeps_its_order(world: World) -> None:
    """Hundreds of renewals at once are answered each for its own lease, lost ones among them."""
    client = Client(world.store)
    claims = [new_claim(world.fresh_key(), ttl=world.unit if place % 3 else 9 * world.unit) for place in range(300)]
    granted = await client.many(*(Acquire(claim) for claim in claims))
    expect(all(isinstance(outcome, Held) for outcome in granted), "free keys are granted in a batch")
    await world.advance(world.unit)
    outcomes = await client.many(*(Renew(claim.key, claim.token, claim.ttl, 1) for claim in claims))
    for place, (claim, before, outcome) in enumerate(zip(claims, granted, outcomes, strict=True)):
        if place % 3:
            equal(outcome, Lost("expired"), what=f"renewal {place} of a lease that ran out")
            continue
        expect(isinstance(outcome, Held) and isinstance(before, Held), f"renewal {place} of a live lease: {outcome!r}")
        if isinstance(outcome, Held) and isinstance(before, Held):
            found = (outcome.lease.key, outcome.lease.token, outcome.lease.fencing_token)
            equal(found, (claim.key, claim.token, before.lease.fencing_token), what=f"lease {place} of the batch")
