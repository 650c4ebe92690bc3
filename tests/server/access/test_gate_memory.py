"""What the gate remembers: no longer than it is true, and nothing from before a change; each project for itself."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leased.errors import AccessDenied, StoreUnavailable, Unauthenticated
from leased.server.credentials import RuleSet
from leased.server.gate_memory import REMEMBERED_FOR
from leased.server.key_sets import KeySet
from leased.server.keys import ApiKey
from leased.server.principals import Principal
from leased.server.tokens import LEEWAY, Tokens
from tests.server.access.gates import World
from tests.server.access.test_limits import Watch
from tests.server.access.test_tokens import ISSUER, Source, public, signed

ADA = Principal("p", "member", "ada")


class Slow:
    """A look-up whose answer was found but comes only when it is let go."""

    def __init__(self, work: Callable[[str], Awaitable[Any]]) -> None:
        self._work = work
        self.found = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, name: str) -> Any:
        answer = await self._work(name)
        self.found.set()
        await self.go.wait()
        return answer


def revoke(world: World, key: ApiKey) -> None:
    """As a request to this service does it."""
    world.registry.kept[key.id] = world.registry.kept[world.key(revoked_at=1.0).id]
    world.gate.forget("p")


async def test_a_lookup_from_before_a_revocation_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """V5: who is told that a key is revoked can rely on it, also where it was being looked up just then."""
    world = World()
    key = world.key()
    slow = Slow(world.registry.credential)
    with monkeypatch.context() as patched:
        patched.setattr(world.registry, "credential", slow)
        early = asyncio.create_task(world.who(key))
        await slow.found.wait()
        revoke(world, key)
        slow.go.set()
        await early
    world.registry.broken = True
    with pytest.raises(StoreUnavailable):
        await world.who(key)
    world.registry.broken = False
    with pytest.raises(Unauthenticated):
        await world.who(key)


async def test_rules_from_before_a_change_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A2: the same for a rule set that was installed meanwhile."""
    world = World()
    slow = Slow(world.registry.rule_set)
    with monkeypatch.context() as patched:
        patched.setattr(world.registry, "rule_set", slow)
        early = asyncio.create_task(world.gate.admit(ADA, "acquire", key="k"))
        await slow.found.wait()
        world.registry.rule_sets["p"] = RuleSet("p", "closing", "false")
        world.gate.forget("p")
        slow.go.set()
        await early
    with pytest.raises(AccessDenied):
        await world.gate.admit(ADA, "acquire", key="k")


async def test_many_who_ask_at_once_are_one_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """V5: when it is time to look again, a thousand requests ask the registry once; whoever leaves takes nobody along,
    and whoever comes after a change asks anew."""
    world = World()
    key = world.key()
    world.registry.rule_sets["p"] = RuleSet("p", "open", "true")
    credential, rules = Slow(world.registry.credential), Slow(world.registry.rule_set)
    with monkeypatch.context() as patched:
        patched.setattr(world.registry, "credential", credential)
        patched.setattr(world.registry, "rule_set", rules)
        before = world.registry.asked
        asking: list[asyncio.Task[Any]] = [asyncio.create_task(world.who(key)) for _ in range(500)]
        asking += [asyncio.create_task(world.gate.admit(ADA, "acquire", key="k")) for _ in range(500)]
        await credential.found.wait()
        await rules.found.wait()
        assert world.registry.asked == before + 2
        asking.pop(0).cancel()  # the one that asked first
        asking.pop(499).cancel()
        revoke(world, key)
        late = asyncio.create_task(world.who(key))
        credential.go.set()
        rules.go.set()
        await asyncio.gather(*asking)
        with pytest.raises(Unauthenticated):
            await late
    assert world.registry.asked == before + 3


async def test_each_who_waits_for_a_look_up_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """V5: by an error of his own; and the next one asks again."""
    world = World()
    key = world.key()
    world.registry.broken = True
    before = world.registry.asked
    found = await asyncio.gather(*(world.who(key) for _ in range(5)), return_exceptions=True)
    assert world.registry.asked == before + 1
    assert {type(error) for error in found} == {StoreUnavailable}
    assert len({id(error) for error in found}) == 5
    world.registry.broken = False
    assert (await world.who(key)).id == "ada"


async def test_an_expired_key_is_not_known_any_more() -> None:
    """V5: neither for the seconds between two looks, nor for the grace of a silent registry."""
    world = World()
    key, other = world.key(expires_at=1001.0), world.key(expires_at=1000.0 + REMEMBERED_FOR + 1.0)
    await world.who(key)
    await world.who(other)
    world.watch.time = 1001.0
    with pytest.raises(Unauthenticated, match="has expired"):
        await world.who(key)
    world.registry.broken = True
    world.watch.time = 1000.0 + REMEMBERED_FOR
    assert await world.who(other) == Principal("p", "member", "ada", credential=other.id)
    world.watch.time += 1.0
    with pytest.raises(StoreUnavailable):
        await world.who(other)


async def test_a_token_is_not_known_a_moment_past_its_end() -> None:
    """V5, C171: neither for the seconds between two looks, nor while its keys cannot be fetched."""
    watch = Watch()
    world = World(tokens=Tokens(ISSUER, KeySet(Source(public("rsa")), now=watch), wall=watch))
    token = f"Bearer {signed(exp=1000)}"
    for instant in (1000.0, 1000.0 + LEEWAY - 0.001):
        world.watch.time = watch.time = instant
        assert (await world.who(token)).id == "ada"
    world.watch.time = watch.time = 1000.0 + LEEWAY
    with pytest.raises(Unauthenticated, match="has expired"):
        await world.who(token)


async def test_a_change_in_one_project_touches_no_other() -> None:
    """A4, S2: who changes his own keys can neither slow down others nor end their grace."""
    world = World()
    mine, other = world.key(), world.key(project="q")
    world.registry.rule_sets["q"] = RuleSet("q", "own", "true", "true")
    await world.who(mine)
    known = await world.who(other)
    await world.gate.admit(known, "renew", key="k")
    world.registry.broken = True
    world.gate.forget("p")
    with pytest.raises(StoreUnavailable):
        await world.who(mine)
    assert await world.who(other) == known
    await world.gate.admit(known, "renew", key="k")
