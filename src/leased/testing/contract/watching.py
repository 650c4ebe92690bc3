"""Checks of `watch` and `close`: who is told of a release, and what a closed store refuses. They know no store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any

from leased.errors import StoreNotUsable
from leased.model import Acquire, Claim, Contended
from leased.store import unwatched
from leased.testing.contract.client import TIMEOUT, Client, ContractBroken, equal, expect, new_claim
from leased.testing.worlds import NotRunHere, World


async def _watch(client: Client, key: str) -> tuple[threading.Event, Callable[[], None]]:
    bell = threading.Event()
    end = await client.watch(key, bell.set)
    if end is unwatched:
        raise NotRunHere("this store cannot push; waiters poll")
    return bell, end


async def check_a_bell_rings_for_every_release(world: World) -> None:
    """Release, abandon and forced release each ring the bell of whoever watches the key, also on another client."""
    client, watcher = Client(world.store), Client(world.another())
    for ending in ("release", "abandon", "force"):
        claim = new_claim(world.fresh_key(), ttl=9 * world.unit)
        await client.granted(claim)
        for on in (client, watcher):
            bell, end = await _watch(on, claim.key)
            match ending:
                case "release":
                    await client.freed(claim)
                case "abandon":
                    await client.abandon(claim)
                case _:
                    expect(await client.force(claim.key), "a forced release of a held key answers true")
            expect(await world.until(bell.is_set), f"the bell did not ring for {ending!r}")
            end()
            claim = new_claim(claim.key, ttl=9 * world.unit)
            await client.granted(claim)


async def check_every_watcher_is_told(world: World) -> None:
    """Several watches of one key, with one bell or with many, all ring; those of other keys that begin alike do not."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=9 * world.unit)
    await client.granted(claim)
    watches = [await _watch(client, claim.key) for _ in range(3)]
    others = [await _watch(client, key) for key in (claim.key + "0", claim.key[:-1], claim.key.upper() + "X")]
    await client.freed(claim)
    for bell, _ in watches:
        expect(await world.until(bell.is_set), "a watcher was not told of the release")
    expect(not any(bell.is_set() for bell, _ in others), "a bell rang for the release of another key")
    for _, end in watches + others:
        end()


async def check_an_ended_watch_is_silent(world: World) -> None:
    """After a watch was ended its bell does not ring, others of that key still do, and ending twice is harmless."""
    client = Client(world.store)
    claim = new_claim(world.fresh_key(), ttl=9 * world.unit)
    await client.granted(claim)
    ended, end = await _watch(client, claim.key)
    lasting, last_end = await _watch(client, claim.key)
    end()
    end()
    await client.freed(claim)
    expect(await world.until(lasting.is_set), "the end of one watch ended another")
    expect(not ended.is_set(), "a bell rang after its watch was ended")
    last_end()


async def check_a_release_after_watching_is_never_missed(world: World) -> None:
    """Who watches, asks again and then rests is always woken: a release is either seen by asking or rings the bell."""
    client = Client(world.store)
    key = world.fresh_key()
    holder = new_claim(key, ttl=9 * world.unit)
    await client.granted(holder)
    for _ in range(30):
        bell, end = await _watch(client, key)
        waiter = new_claim(key, ttl=9 * world.unit)
        if any(await world.face.together([_released(client, holder), _refused(client, waiter)])):
            expect(await world.until(bell.is_set), "a release between asking and resting was missed")
            await client.granted(waiter)
        end()
        holder = waiter


async def _released(client: Client, claim: Claim) -> bool:
    await client.freed(claim)
    return False


async def _refused(client: Client, claim: Claim) -> bool:
    return isinstance(await client.ask(claim), Contended)


async def check_a_closed_store_refuses(world: World) -> None:
    """After `close` every call raises `StoreNotUsable`, at once and for good; closing again is harmless."""
    if not world.closable:
        raise NotRunHere("this store is shared by all its users in the process and stays open")
    store = world.another()
    claim = new_claim(world.fresh_key(), ttl=9 * world.unit)
    await Client(store).granted(claim)
    await Client(store).freed(claim)
    await store.close()
    await store.close()
    calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "acquire": lambda: store.acquire(claim, timeout=TIMEOUT),
        "renew": lambda: store.renew(claim.key, claim.token, ttl=1.0, number=1, timeout=TIMEOUT),
        "release": lambda: store.release(claim.key, claim.token, timeout=TIMEOUT),
        "abandon": lambda: store.abandon(claim.key, claim.token, timeout=TIMEOUT),
        "look": lambda: store.look(claim.key, claim.token, timeout=TIMEOUT),
        "status": lambda: store.status(claim.key, timeout=TIMEOUT),
        "list": lambda: store.list("", after="", limit=1, timeout=TIMEOUT),
        "force_release": lambda: store.force_release(claim.key, timeout=TIMEOUT),
        "watch": lambda: store.watch(claim.key, lambda: None),
    }
    for name, call in calls.items():
        try:
            answer = await call()
        except StoreNotUsable as error:
            equal((error.applied, error.retryable), (False, False), what=f"`applied` and `retryable` of {name}")
        else:
            raise ContractBroken(f"{name} on a closed store answered {answer!r}")
    try:
        outcomes = await store.many([Acquire(claim)], timeout=TIMEOUT)
    except StoreNotUsable:
        return
    expect(isinstance(outcomes[0], StoreNotUsable), f"a batch on a closed store answered {outcomes!r}")
