"""Checks of keys: every text is a key of its own, byte for byte, in its own namespace. They know no store."""

from __future__ import annotations

from leased.model import Claim
from leased.policy import MAX_KEY_LENGTH
from leased.testing.contract.client import Client, equal, expect, new_claim
from leased.testing.worlds import World

_TWINS = (
    ("A", "a"),
    ("x", "x "),
    ("x", " x"),
    ("e", "\u00e9"),
    ("\u00e9", "e\u0301"),
    ("\u212b", "\u00c5"),
    ("\ufb01", "fi"),
    ("ß", "ss"),
    ("İ", "i"),
    ("\U0001f600", "\U0001f601"),
    ("\U0001f469\u200d\U0001f680", "\U0001f469\U0001f680"),
    ("a/b", "a%2Fb"),
    ("a%2Fb", "a%2fb"),
    ("a+b", "a b"),
    ("%", "%25"),
    ("a\\b", "a\\\\b"),
    ("{a}b", "a}b{"),
    ("a'b", "a''b"),
    ("..", "."),
    ("0", "00"),
    ("1", "1.0"),
    ("null", "NULL"),
    ("plumless", "buckeroo"),
    ("\u202ea", "a"),
)
"""Pairs that some store, file name, URL or collation takes for one; `plumless` and `buckeroo` have one CRC-32."""


async def check_keys_are_compared_byte_for_byte(world: World) -> None:
    """Two keys that differ in any byte are two keys: both are granted, and the release of one leaves the other."""
    client = Client(world.store)
    for first, second in _TWINS:
        start = world.fresh_key(":")
        one, other = (new_claim(start + text, ttl=9 * world.unit) for text in (first, second))
        await client.granted(one)
        await client.granted(other)
        equal((await client.status(one.key)).key, one.key, what="the key that status shows")
        await client.freed(one)
        await client.holds(other)
        equal(await client.state(one.key), "free", what=f"{first!r} while {second!r} is held")
        equal(await client.listed(start), [other.key], what="the list")
        await client.freed(other)


async def check_keys_that_begin_alike_do_not_meet(world: World) -> None:
    """A key has nothing to do with those that it begins: each is granted, renewed, forced and released by itself."""
    client = Client(world.store)
    start = world.fresh_key()
    claims = [new_claim(start + text, ttl=9 * world.unit) for text in ("", ":", ":1", ":10", ":1:", "s", "%", "*")]
    for claim in claims:
        await client.granted(claim)
    await client.freed(claims[0])
    await client.abandon(claims[1])
    expect(await client.force(claims[2].key), "a forced release of a held key answers true")
    for claim in claims[3:]:
        equal((await client.renewed(claim, ttl=9 * world.unit, number=1)).key, claim.key, what="key of a renewed lease")
    for claim in claims[:3]:
        equal(await client.state(claim.key), "free", what=f"{claim.key!r} while longer keys are held")


async def check_the_longest_keys_fit(world: World) -> None:
    """Keys and owners of 255 characters (keys with what a namespace adds to them) work whatever those are made of, and
    differ in their last one."""
    client = Client(world.store)
    for character in ("k", "\u00e4", "\u6f22", "\U0001f512"):
        start = world.fresh_key(":")
        filler = character * (world.longest_key - len(start) - 1)
        one, other = (
            new_claim(start + filler + last, ttl=9 * world.unit, owner=character * MAX_KEY_LENGTH)
            for last in (character, "x")
        )
        expect(len(one.key) == len(other.key) == world.longest_key, "the keys of this check have the full length")
        await client.granted(one)
        await client.granted(other)
        equal((await client.status(one.key)).owner, character * MAX_KEY_LENGTH, what="the longest owner")
        equal(await client.listed(start + filler), sorted((one.key, other.key), key=str.encode), what="the list")
        await client.renewed(one, ttl=9 * world.unit, number=1)
        await client.freed(one)
        await client.holds(other)
        await client.freed(other)


async def check_awkward_keys_live_a_whole_life(world: World) -> None:
    """A key that would be special in a URL, a file name, a query or a script works like any other."""
    client = Client(world.store)
    endings = (
        "/",
        "//",
        "/../..",
        "?b#c",
        "a;b",
        "*",
        "'; DROP TABLE x; --",
        "{}",
        "${x}",
        "%s%n",
        '"',
        "<b>",
        "\u00a0",
    )
    for ending in endings:
        claim = new_claim(world.fresh_key(ending), ttl=9 * world.unit)
        number = (await client.granted(claim)).fencing_token
        equal((await client.status(claim.key)).fencing_token, number, what=f"fencing token of {ending!r}")
        await client.renewed(claim, ttl=9 * world.unit, number=1)
        equal([seen.key for seen in await client.page(claim.key)], [claim.key], what=f"the list of {ending!r}")
        expect(await client.force(claim.key, fencing_token=number), f"{ending!r} should be forced")
        await client.lost(claim, reason="force_released")


async def check_namespaces_are_separate(world: World) -> None:
    """The same key in two namespaces is two keys; neither list, status nor force reaches across."""
    names = ("east", "east:", "East", "")
    clients = {name: Client(world.another(name)) for name in names}
    key = world.fresh_key(":one")
    claims = {name: new_claim(key, ttl=9 * world.unit) for name in names}
    for name, client in clients.items():
        equal(await client.state(key), "free", what=f"a key in the namespace {name!r} that only others use")
        await client.granted(claims[name])
    for name, client in clients.items():
        equal([seen.key for seen in await client.page(key)], [key], what=f"the list in the namespace {name!r}")
        for other in names:
            if other != name:
                await client.lost(claims[other], reason="taken")
    expect(await clients["east"].force(key), "a forced release of a held key answers true")
    equal(await clients["east"].listed(""), [], what="the list after that, of everything")
    for name in names[1:]:
        await clients[name].holds(claims[name])
        await clients[name].freed(claims[name])


async def check_two_clients_see_one_store(world: World) -> None:
    """What one client is granted, every other one finds held; a token works through any of them."""
    one, other = Client(world.store), Client(world.another())
    claim = new_claim(world.fresh_key(), ttl=9 * world.unit)
    lease = await one.granted(claim)
    await other.refused(new_claim(claim.key, ttl=9 * world.unit))
    equal((await other.holds(claim)).fencing_token, lease.fencing_token, what="fencing token on the other client")
    await other.renewed(claim, ttl=9 * world.unit, number=1)
    equal((await one.holds(claim)).renewal, 1, what="renewals through the other client")
    await other.freed(Claim(claim.key, claim.token, claim.ttl))
    equal(await one.state(claim.key), "free", what="the key after a release through the other client")
    await one.granted(new_claim(claim.key, ttl=9 * world.unit))
