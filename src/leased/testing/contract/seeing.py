"""Checks of `status`, `list` and `assurance`: what anyone may see, and never a secret. They know no store."""

from __future__ import annotations

import json
import time

from leased.model import Terms, exclusivity_rank
from leased.testing.contract.client import Client, equal, expect, moves_time, new_claim
from leased.testing.worlds import World


async def check_status_shows_a_free_key(world: World) -> None:
    """A key that nobody used, and one that was released, is `free` and has nothing else to show."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit, owner="run")
    for _ in range(2):
        seen = await client.status(claim.key)
        shown = (seen.key, seen.state, seen.held, seen.owner, seen.held_by, seen.fencing_token, dict(seen.metadata))
        equal(shown, (claim.key, "free", False, None, None, None, {}), what="status of a free key")
        equal((seen.expires_in, seen.expires_at, seen.free_in, seen.free_at), (None,) * 4, what="times of a free key")
        await client.granted(claim)
        await client.freed(claim)


@moves_time
async def check_status_shows_the_holder(world: World) -> None:
    """The status of a held key names owner, holder and fencing token, and tells how long the lease still runs."""
    client = Client(world.store)
    terms = Terms(held_by="report@host-3:4711", lock_delay=2 * world.unit)
    claim = new_claim(world.fresh_key(), ttl=4 * world.unit, owner="night", terms=terms)
    lease = await client.granted(claim)
    await world.advance(world.unit)
    seen = await client.status(claim.key)
    shown = (seen.key, seen.state, seen.held, seen.owner, seen.held_by, seen.fencing_token)
    wanted = (claim.key, "held", True, "night", "report@host-3:4711", lease.fencing_token)
    equal(shown, wanted, what="status of a held key")
    left, free_in = seen.expires_in, seen.free_in
    expect(left is not None and 2 * world.unit < left <= 3 * world.unit + 1.0, f"it expires in {left} s")
    expect(free_in is not None and 4 * world.unit < free_in <= 5 * world.unit + 1.0, f"it is free in {free_in} s")
    times = (seen.acquired_at, seen.expires_at, seen.free_at)
    expect(None not in times and list(times) == sorted(times, key=float), f"times out of order: {times}")  # type: ignore[arg-type]


async def check_times_for_display_are_those_of_a_wall_clock(world: World) -> None:
    """`acquired_at` and `expires_at` are seconds since the epoch, near enough for people."""
    client = Client(world.store)
    wall = world.clock.wall() if world.clock else time.time()
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit)
    await client.granted(claim)
    seen = await client.status(claim.key)
    for shown in (seen.acquired_at, seen.expires_at):
        expect(shown is not None and abs(shown - wall) < 300, f"{shown} is shown at {wall} s since the epoch")


@moves_time
async def check_status_is_free_exactly_when_a_claim_would_win(world: World) -> None:
    """`held` is false exactly when the next claim is granted, also after an expiry that nobody noticed."""
    client = Client(world.store)
    terms = Terms(hold_at_least=3 * world.unit, lock_delay=world.unit)
    claim = new_claim(world.fresh_key(), ttl=world.unit, terms=terms)
    await client.granted(claim)
    for _ in range(2):
        expect((await client.status(claim.key)).held, "shown as free while a claim would be refused")
        await client.refused(new_claim(claim.key, ttl=world.unit))
        await world.advance(world.unit)
    await world.advance(world.unit)
    expect(not (await client.status(claim.key)).held, "shown as taken while a claim would be granted")
    await client.granted(new_claim(claim.key, ttl=world.unit))


async def check_no_token_is_ever_shown(world: World) -> None:
    """Neither a refusal, nor status, nor the list holds a token, or enough of one to guess the rest."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=3 * world.unit, owner="run")
    await client.granted(claim)
    refusal = await client.refused(new_claim(claim.key, ttl=3 * world.unit))
    shown = f"{refusal} {await client.status(claim.key)} {await client.page(claim.key)}"
    expect(claim.token[:12] not in shown, "a token can be read in what anyone may see")


async def check_metadata_comes_back(world: World) -> None:
    """Metadata is shown as it was given: any JSON object, in any script, up to its limit."""
    client = Client(world.store)
    samples: list[dict[str, object]] = [
        {},
        {"host": "a\"b'c\\d", "pid": 4711, "nested": {"list": [1, 2.5, None, True, {"x": []}]}},
        {"schrift": "äöü ß — 漢字 🔒 \u202e", "line\nbreak": "\t\u0000"},
        {"large": "x" * 990},
        {"%s": "{0}", "$1": "';--", "null": None},
    ]
    for sample in samples:
        claim = new_claim(world.fresh_key(), ttl=3 * world.unit, terms=Terms(metadata=json.dumps(sample)))
        await client.granted(claim)
        equal(dict((await client.status(claim.key)).metadata), sample, what="metadata")


async def check_the_list_is_complete_and_in_order(world: World) -> None:
    """Pages of any size, put together, give each held key with the prefix once, in the order of its UTF-8 bytes."""
    client = Client(world.store)
    prefix = world.fresh_key("/")
    endings = [
        "",
        "b",
        "a",
        "B",
        "a/1",
        "a/10",
        "a/2",
        "ä",
        "z",
        "~",
        "\U0001f512",
        "\uffee",
        "漢",
        "a b",
        "%",
        "_",
        "*",
    ]
    for ending in endings:
        await client.granted(new_claim(prefix + ending, ttl=9 * world.unit))
    released = new_claim(prefix + "gone", ttl=9 * world.unit)
    await client.granted(released)
    await client.freed(released)
    wanted = sorted((prefix + ending for ending in endings), key=str.encode)
    for limit in (1, 2, 3, len(wanted), len(wanted) + 1, 1000):
        equal(await client.listed(prefix, limit=limit), wanted, what=f"the list in pages of {limit}")
    equal(await client.page(wanted[-1] + "0"), [], what="the list of a prefix that no key has")
    inner = [key for key in wanted if key.startswith(prefix + "a")]
    equal(await client.listed(prefix + "a"), inner, what="the list of a longer prefix")


async def check_a_prefix_is_text_not_a_pattern(world: World) -> None:
    """A prefix means exactly its characters: what looks like a wild card, an escape or another case finds nothing."""
    client = Client(world.store)
    start = world.fresh_key(":")
    await client.granted(new_claim(start + "abc", ttl=9 * world.unit))
    for prefix in ("%", "_bc", "*", "[a]bc", "?bc", "A", "\\a", "ab%", "abc ", "abcd", ".", "a*"):
        equal(await client.listed(start + prefix), [], what=f"the list of the prefix {prefix!r}")
        await client.granted(new_claim(start + prefix + "!", ttl=9 * world.unit))
        equal(await client.listed(start + prefix), [start + prefix + "!"], what=f"the list of {prefix!r}, once used")


@moves_time
async def check_the_list_shows_what_status_shows(world: World) -> None:
    """The list has held and closed keys, each with its status, and none that is free: released, lapsed or forced."""
    client = Client(world.store)
    prefix = world.fresh_key("/")
    closed = new_claim(prefix + "closed", ttl=world.unit, terms=Terms(lock_delay=9 * world.unit))
    held, lapsed, forced = (new_claim(prefix + name, ttl=ttl) for name, ttl in _leases(world.unit))
    for claim in (closed, held, lapsed, forced):
        await client.granted(claim)
    await client.force(forced.key)
    await world.advance(world.unit)
    page = await client.page(prefix)
    equal([(seen.key, seen.state) for seen in page], [(closed.key, "closed"), (held.key, "held")], what="the list")
    for seen in page:
        status = await client.status(seen.key)
        equal(seen.fencing_token, status.fencing_token, what="fencing token in the list")
        equal((seen.owner, seen.held_by), (status.owner, status.held_by), what="holder in the list")
        expect(seen.free_in is not None and seen.free_in > 0, "how long the key is taken")


def _leases(unit: float) -> tuple[tuple[str, float], ...]:
    return (("held", 9 * unit), ("lapsed", unit), ("forced", 9 * unit))


async def check_the_assurance_is_in_known_words(world: World) -> None:
    """What the store says of itself uses the ranked words and leaves no field empty."""
    assurance = world.store.assurance()
    expect(exclusivity_rank(assurance.exclusive) >= 0, f"{assurance.exclusive!r} is no word for exclusivity")
    expect(assurance.durable and assurance.takeover and assurance.fence, f"an empty field in {assurance}")
    expect(0 <= assurance.clock_margin < 0.5, f"clock margin {assurance.clock_margin}")
