"""The gate while its registry is silent: the known go on for a while, the others are told to come again."""

from collections.abc import Sequence

import pytest

from leased.errors import RateLimited, StoreUnavailable, Unauthenticated
from leased.server.credentials import RuleSet
from leased.server.gate import Budgets
from leased.server.gate_memory import GRACE, REMEMBERED_FOR
from leased.server.limits import Budget
from leased.server.principals import Principal
from leased.server.rights import NEVER_REFUSED
from leased.server.usage import Use
from tests.server.access.gates import World


class Shelf:
    """See `Shelf`; it lets all pass, until it is broken."""

    def __init__(self) -> None:
        self.broken = False
        self.spent: list[Use] = []

    async def take(self, uses: Sequence[Use]) -> Sequence[int]:
        if self.broken:
            raise StoreUnavailable("no answer", applied=False)
        return [0] * len(uses)

    async def spend(self, uses: Sequence[Use]) -> None:
        if self.broken:
            raise StoreUnavailable("no answer", applied=False)
        self.spent += uses


async def test_who_is_known_is_let_in_for_the_grace_and_no_longer() -> None:
    """V5, S2: counted from when the registry last said yes, however often he comes meanwhile."""
    world = World()
    key, other = world.key(), world.key("member", "bob")
    principal = await world.who(key)
    world.registry.broken = True
    world.watch.time += REMEMBERED_FOR
    for _ in range(3):
        assert await world.who(key) == principal
        world.watch.time += (GRACE - REMEMBERED_FOR - 1.0) / 3
    with pytest.raises(StoreUnavailable):
        await world.who(other)
    assert await world.who(key) == principal
    world.watch.time += 1.0
    with pytest.raises(StoreUnavailable):
        await world.who(key)


async def test_a_revoked_key_is_refused_as_soon_as_the_registry_answers() -> None:
    """V5: grace is for silence alone, and 0 is none."""
    world = World(grace=0.0)
    key = world.key()
    await world.who(key)
    world.watch.time += REMEMBERED_FOR
    world.registry.broken = True
    with pytest.raises(StoreUnavailable):
        await world.who(key)
    world.registry.broken = False
    del world.registry.kept[key.id]
    with pytest.raises(Unauthenticated):
        await world.who(key)


async def test_rules_stay_in_force() -> None:
    """A2: without an answer the rules that were known decide; for another project nobody knows them."""
    world = World()
    world.registry.rule_sets["p"] = RuleSet("p", "own", "false", "true")
    ada = await world.who(world.key())
    await world.gate.admit(ada, "renew", key="k")
    world.registry.broken = True
    world.watch.time += REMEMBERED_FOR
    await world.gate.admit(ada, "renew", key="k")
    with pytest.raises(StoreUnavailable):
        await world.gate.admit(Principal("q", "member", "ada"), "renew", key="k")
    world.watch.time += GRACE
    with pytest.raises(StoreUnavailable):
        await world.gate.admit(ada, "renew", key="k")


async def test_without_a_count_only_renewals_pass_and_not_without_end() -> None:
    """R1, LIVE9: a holder keeps his lease within the budget of one process; what gives back is never refused."""
    shelf = Shelf()
    budget = Budget(5, 60.0)
    world = World(shelf=shelf, budgets=Budgets(requests=budget))
    ada = await world.who(world.key())
    for _ in range(20):
        await world.gate.admit(ada, "status", key="k")
    shelf.broken = True
    for action in ("acquire", "status", "list", "capabilities"):
        with pytest.raises(StoreUnavailable):
            await world.gate.admit(ada, action, key="k")
    for _ in range(5):
        await world.gate.admit(ada, "renew", key="k")
    with pytest.raises(RateLimited):
        await world.gate.admit(ada, "renew", key="k")
    for action in NEVER_REFUSED:
        await world.gate.admit(ada, action, key="k")
    await world.gate.close()
    assert shelf.spent == []


async def test_what_gives_back_is_counted_later() -> None:
    """R1: releases ask nobody; they are counted together, at the end at the latest."""
    shelf = Shelf()
    world = World(shelf=shelf, budgets=Budgets(requests=Budget(60, 60.0)))
    ada = await world.who(world.key())
    for _ in range(3):
        await world.gate.admit(ada, "release", key="k", count=2)
    assert shelf.spent == []
    await world.gate.close()
    assert shelf.spent == [Use("requests:p", 6_000_000, 60_000_000)]
