"""Checks with several callers at the same time: threads of one process, or tasks of one loop. They know no store."""

from __future__ import annotations

import time
from dataclasses import replace

from leased.model import Claim, Contended, Held, Lease
from leased.testing.contract.client import Client, equal, expect, new_claim
from leased.testing.worlds import World


async def check_exactly_one_caller_wins(world: World) -> None:
    """Of many callers that claim a free key at the same time one is granted it, every time, over two clients."""
    clients = (Client(world.store), Client(world.another()))
    for _ in range(12):
        key = world.fresh_key()
        claims = [new_claim(key, ttl=9 * world.unit) for _ in range(8)]
        answers = await world.face.together([clients[n % 2].ask(claim) for n, claim in enumerate(claims)])
        winners = [answer.lease for answer in answers if isinstance(answer, Held)]
        equal(len(winners), 1, what="callers that were granted one key at the same time")
        await clients[0].freed(winners[0])


async def check_one_token_gets_one_grant(world: World) -> None:
    """Copies of one claim that arrive at the same time all name one lease; one release ends it."""
    client = Client(world.store)
    for _ in range(12):
        claim = new_claim(world.fresh_key(), ttl=9 * world.unit)
        leases = await world.face.together([client.granted(claim) for _ in range(6)])
        equal(len({lease.fencing_token for lease in leases}), 1, what="fencing tokens given to one claim")
        await client.freed(claim)
        equal(await client.state(claim.key), "free", what="the key after one release")


async def check_abandon_beats_its_claim(world: World) -> None:
    """However a claim and its abandon cross, the key is free afterwards and the claim stays refused."""
    client = Client(world.store)
    for _ in range(12):
        claim = new_claim(world.fresh_key(), ttl=9 * world.unit)
        await world.face.together([_asked(client, claim), client.abandon(claim), _asked(client, claim)])
        equal(await client.state(claim.key), "free", what="the key after claim and abandon crossed")
        await client.ended(claim)


async def _asked(client: Client, claim: Claim) -> None:
    await client.ask(claim)


async def check_one_of_several_take_overs_is_current(world: World) -> None:
    """When one owner takes over from several places at once, each grant has its own number; only the highest lives."""
    client = Client(world.store)
    for _ in range(6):
        key = world.fresh_key()
        claims = [new_claim(key, ttl=9 * world.unit, owner="run") for _ in range(6)]
        leases = await world.face.together([client.granted(claim) for claim in claims])
        equal(len({lease.fencing_token for lease in leases}), len(claims), what="different numbers of take-overs")
        newest = max(leases, key=lambda lease: lease.fencing_token)
        for lease in leases:
            if lease is newest:
                await client.holds(lease)
            else:
                await client.lost(lease, reason="retaken")
                equal((await client.release(lease)).reason, "not_holder", what="release of an earlier one")


async def check_renewals_and_a_release_do_not_disturb_each_other(world: World) -> None:
    """However renewals and the release of one lease cross, the key is free afterwards and stays free."""
    client = Client(world.store)
    for _ in range(12):
        claim = new_claim(world.fresh_key(), ttl=9 * world.unit)
        await client.granted(claim)
        renewals = [_renewed(client, claim, number) for number in (1, 2, 3)]
        await world.face.together([*renewals[:2], client.freed(claim), renewals[2]])
        equal(await client.state(claim.key), "free", what="the key after renewals crossed its release")
        await client.lost(claim, reason="expired")


async def _renewed(client: Client, claim: Claim, number: int) -> None:
    await client.renew(claim, ttl=claim.ttl, number=number)


async def check_a_number_without_protection_is_counted_right(world: World) -> None:
    """Callers that read, wait and write an unprotected number under the lock lose no count, and see numbers rise."""
    clients = (Client(world.store), Client(world.another()))
    key = world.fresh_key()
    number = 0
    seen: list[int] = []
    give_up_at = time.monotonic() + 20.0

    async def count(client: Client, rounds: int) -> None:
        nonlocal number
        while rounds:
            expect(time.monotonic() < give_up_at, "somebody who asks again and again is never granted a free key")
            answer = await client.ask(new_claim(key, ttl=9 * world.unit))
            if isinstance(answer, Contended):
                await world.face.sleep(0.0005)
                continue
            read = number
            await world.face.sleep(0)
            number = read + 1
            seen.append(answer.lease.fencing_token)
            await client.freed(answer.lease)
            rounds -= 1

    await world.face.together([count(clients[place % 2], 15) for place in range(8)])
    equal(number, 8 * 15, what="counted under the lock")
    expect(seen == sorted(set(seen)), "fencing tokens of one key do not rise in the order of its grants")


async def check_keys_do_not_wait_for_each_other(world: World) -> None:
    """Callers on different keys all succeed at the same time, and each finds its own lease."""
    client = Client(world.store)

    async def live(claim: Claim) -> Lease:
        await client.granted(claim)
        lease = await client.renewed(claim, ttl=claim.ttl, number=1)
        await client.lost(replace(claim, token="0" * 32), reason="taken")
        await client.freed(claim)
        return lease

    claims = [new_claim(world.fresh_key(), ttl=9 * world.unit) for _ in range(24)]
    leases = await world.face.together([live(claim) for claim in claims])
    equal([(lease.key, lease.token) for lease in leases], [(c.key, c.token) for c in claims], what="key and token")
