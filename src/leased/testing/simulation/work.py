"""What the clients of a run do: acquire, hold, renew, hand over, force, cancel, all drawn from the seed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from leased.engine import acquire, lose, release, renew, restore
from leased.errors import AccessDenied, LeasedError, RateLimited, StoreUnavailable
from leased.hold import Hold
from leased.model import Claim, Contended, Released, Terms
from leased.policy import FOREVER
from leased.testing.simulation.beliefs import Belief
from leased.testing.simulation.client import Client
from leased.testing.simulation.faults import Faults
from leased.testing.simulation.waits import Acquisition
from leased.timeline import Cancelled

if TYPE_CHECKING:
    from leased.testing.simulation.world import World

_OWNERS = ("red", "blue")
_CALL = 1.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one worker goes about one lock."""

    claim: Claim
    wait: float
    brought: bool
    fixed: bool
    scoped: bool
    kept: bool
    renewing: bool
    held_for: float
    heedless: bool
    ending: str
    retry_delay: float | None
    cancel_after: float | None
    stop_after: float | None


def draw_recipe(chance: Random, faults: Faults, *, key: str, token: str) -> Recipe:
    """One lock, drawn."""
    ttl = 0.2 * 30.0 ** chance.random()
    wait = chance.choice((0.0, 0.0, chance.uniform(0.05, 3.0), chance.uniform(0.05, 3.0), 8.0, FOREVER))
    terms = Terms(
        max_hold=chance.uniform(0.5, 6.0) if chance.random() < 0.15 else 1000.0,
        hold_at_least=chance.uniform(0.0, 2.0) if chance.random() < 0.1 else 0.0,
        lock_delay=chance.uniform(0.0, 2.0) if chance.random() < 0.15 else 0.0,
    )
    owner = chance.choice(_OWNERS) if chance.random() < faults.owned else None
    kept = chance.random() < 0.7
    cancelled = wait == FOREVER or (faults.cancel > 0 and chance.random() < (1.0 if wait == 0 else 0.25))
    longest = chance.choice((0.002, 0.02, 0.3, min(wait, 5.0)))
    fixed = chance.random() < 0.1 and wait < ttl
    return Recipe(
        claim=Claim(key, token, ttl, owner=owner, terms=terms),
        wait=wait,
        brought=chance.random() < 0.1,
        fixed=fixed,
        scoped=chance.random() < 0.5,
        kept=kept,
        renewing=kept and not fixed and chance.random() < 0.8,
        held_for=chance.uniform(0.0, 2.0) * min(ttl, 2.0),
        heedless=chance.random() < 0.2,
        ending=chance.choice(("release",) * 7 + ("forget", "hand over", "release twice")),
        retry_delay=chance.uniform(0.4, 1.0) if chance.random() < 0.3 else None,
        cancel_after=chance.uniform(0.0, longest) if cancelled else None,
        stop_after=chance.uniform(0.0, 1.0) if chance.random() < 0.05 else None,
    )


class Worker:
    """One caller in one process, doing one thing after the other."""

    def __init__(self, world: World, client: Client, *, chance: Random) -> None:
        self.world = world
        self.client = client
        self.chance = chance

    async def run(self) -> None:
        """Take locks until the run is over."""
        world, chance = self.world, self.chance
        while world.timeline.now < world.faults.length:
            await self.client.clock.sleep(chance.expovariate(4.0))
            key = world.key(chance)
            if chance.random() < 0.08:
                await self._disturb(key)
            else:
                recipe = draw_recipe(chance, world.faults, key=key, token=self.client.mint())
                await self._lock(recipe)

    async def _lock(self, recipe: Recipe) -> None:
        hold = await self._acquire(recipe)
        if hold is None and recipe.brought:
            await self._recover(recipe)
        if hold is not None:
            await self._hold(recipe, hold)

    async def _acquire(self, recipe: Recipe, *, left_open: bool = False) -> Hold | None:
        """Acquire as the recipe says; what is broken by how it ends is seen by `Waits`."""
        client, world, task = self.client, self.world, self.world.timeline.current
        assert task is not None
        acquisition = world.waits.begin(client, recipe.claim, wait=recipe.wait, brought=recipe.brought)
        client.acquiring[task] = acquisition
        if recipe.cancel_after is not None:
            world.after(recipe.cancel_after, lambda: self._cancel(acquisition))
        if recipe.stop_after is not None:
            world.after(recipe.stop_after, lambda: _give_up(acquisition))
        outcome: Hold | Contended | None = None
        open_token = False
        try:
            outcome = await acquire(
                client.store,
                client.env,
                recipe.claim,
                wait=recipe.wait,
                brought=recipe.brought,
                fixed=recipe.fixed,
                scoped=recipe.scoped,
                retry_delay=recipe.retry_delay,
                cancelled=None if recipe.stop_after is None else lambda: acquisition.gave_up,
            )
        except StoreUnavailable:
            open_token = recipe.brought
        except AccessDenied:
            world.history.add(client.name, "denied", recipe.claim.key)
        except RateLimited:
            if recipe.wait > 0:
                world.history.break_off("R2", f"a wait for {recipe.claim.key!r} ended in a limit, not in its own time")
        except Cancelled:
            if not acquisition.cancelled:
                raise
        finally:
            client.acquiring.pop(task, None)
            hold = outcome if isinstance(outcome, Hold) else None
            if client.alive:
                world.waits.end(acquisition, hold=hold, left_open=open_token or left_open)
        self.unsure = open_token
        return hold

    unsure = False

    async def _recover(self, recipe: Recipe) -> None:
        """The caller brought the token and got no answer: ask again with it, or abandon it."""
        if not self.unsure:
            return
        client = self.client
        await client.clock.sleep(self.chance.uniform(0.0, 1.0))
        if self.chance.random() < 0.5:
            again = replace(recipe, cancel_after=None, stop_after=None)
            hold = await self._acquire(again)
            if hold is not None:
                await self._hold(recipe, hold)
        else:
            with suppress(LeasedError):
                await client.store.abandon(recipe.claim.key, recipe.claim.token, timeout=_CALL)

    async def _hold(self, recipe: Recipe, hold: Hold) -> None:
        """Hold for a while, renewing or not, and end as the recipe says."""
        client, world = self.client, self.world
        if recipe.scoped:
            client.block_began(hold)
        belief = world.beliefs.track(client, hold, kept=recipe.kept, renewing=recipe.renewing)
        if recipe.kept:
            client.keep(hold, renewing=recipe.renewing)
        try:
            await self._work(recipe, hold)
            await self._end(recipe, hold, belief)
        finally:
            if recipe.scoped:
                client.block_ended(hold)
                client.env.lines.block_ended(hold.key, hold.owner, hold=hold)
            if client.alive:
                world.beliefs.drop(belief)

    async def _work(self, recipe: Recipe, hold: Hold) -> None:
        client, chance = self.client, self.chance
        until = client.clock.now() + recipe.held_for
        while (left := until - client.clock.now()) > 0:
            if hold.lost_reason(client.clock.now()) is not None and not recipe.heedless:
                break
            await client.clock.sleep(min(left, chance.expovariate(5.0)))
            if chance.random() < 0.15 and not recipe.fixed:
                ttl = None if chance.random() < 0.4 else hold.ttl * chance.uniform(0.3, 1.5)
                work = self._renew(hold, max(ttl, 0.2) if ttl is not None else None)
                if chance.random() < 0.5:
                    client.process.start(work)
                else:
                    await work

    async def _renew(self, hold: Hold, ttl: float | None) -> None:
        with suppress(LeasedError):
            await renew(self.client.store, self.client.env, hold, ttl=ttl)

    async def _end(self, recipe: Recipe, hold: Hold, belief: Belief) -> None:
        client = self.client
        if recipe.kept:
            belief.kept = False
            client.keeper.discard(hold)
        if recipe.ending == "hand over" and hold.number == hold.applied:
            lose(client.env, hold, "handed_over")
            self.world.hand_over(recipe.claim, hold)
        elif recipe.ending == "forget":
            await client.clock.sleep(max(0.0, hold.remaining(client.clock.now())))
        else:
            await self._release(hold)
            if recipe.ending == "release twice" and hold.outcome is not None:
                again = await release(client.store, client.env, hold)
                if again.reason != "already_released":
                    self.world.history.break_off("SAFE11", f"a second release of {hold.token} answered {again}")

    async def _release(self, hold: Hold) -> None:
        client, world, task = self.client, self.world, self.world.timeline.current
        assert task is not None
        struck = False

        def cancel() -> None:
            nonlocal struck
            if releasing and not task.done:
                struck = True
                task.cancel()

        releasing = True
        if world.faults.cancel > 0 and self.chance.random() < 0.1:
            world.after(self.chance.expovariate(100.0), cancel)
        try:
            outcome = await release(client.store, client.env, hold)
            self._check_release(hold, outcome)
        except StoreUnavailable:
            pass
        except Cancelled:
            if not struck:
                raise
        finally:
            releasing = False

    def _check_release(self, hold: Hold, outcome: Released) -> None:
        """What a release answers is true: freed by it, or not."""
        judge, history = self.world.server.judge, self.world.history
        history.add(self.client.name, "released", hold.token, outcome.reason or "freed")
        if hold.token in judge.excused:
            return
        freed = hold.token in judge.freed
        if hold.token in self.client.heard.unsure or hold.token in self.client.link.doubled:
            return
        if outcome and not freed:
            history.break_off("SAFE11", f"the release of {hold.token} said that it freed {hold.key!r}, and did not")
        if not outcome and freed:
            history.break_off("SAFE11", f"the release of {hold.token} freed {hold.key!r}, and said {outcome.reason}")

    async def take_over(self, claim: Claim) -> None:
        """Restore a hold that another process handed over, and go on with it."""
        client = self.client
        with suppress(LeasedError):
            outcome = await restore(client.store, client.env, claim)
            if isinstance(outcome, Hold):
                recipe = draw_recipe(self.chance, self.world.faults, key=claim.key, token=claim.token)
                recipe = replace(recipe, claim=replace(recipe.claim, owner=claim.owner), scoped=False, ending="release")
                await self._hold(recipe, outcome)

    async def _disturb(self, key: str) -> None:
        """Look at a key, and perhaps end its lease by force, naming what was seen or not."""
        store = self.client.store
        with suppress(LeasedError):
            status = await store.status(key, timeout=_CALL)
            await self.client.clock.sleep(self.chance.expovariate(2.0))
            if status.held and self.chance.random() < 0.6:
                number = status.fencing_token if self.chance.random() < 0.8 else None
                await store.force_release(key, fencing_token=number, timeout=_CALL)
            elif self.chance.random() < 0.3:
                await store.list("", after="", limit=2, timeout=_CALL)

    def _cancel(self, acquisition: Acquisition) -> None:
        """Cancel the acquire, if it is still running, and perhaps once more while it cleans up."""
        for task, running in self.client.acquiring.items():
            if running is acquisition and not task.done:
                acquisition.cancelled = True
                self.world.history.add(self.client.name, "cancels", f"#{acquisition.number}")
                task.cancel()
                if self.chance.random() < 0.3:
                    self.world.after(self.chance.expovariate(100.0), lambda: self._cancel(acquisition))


def _give_up(acquisition: Acquisition) -> None:
    acquisition.gave_up = True
