"""Waiters that come, go, come back and are cut at chosen instants: whatever the order, nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from leased.errors import LeasedError
from leased.model import Claim, Contended, Held
from leased.server.calls import Disconnected
from leased.server.service import Service
from leased.server.settings import Settings
from leased.stores.memory import MemoryStore

# INTERLEAVINGS=10000 in the environment runs that many; a failure names its seed.
SEEDS = int(os.environ.get("INTERLEAVINGS", "300"))
STEPS = 40
KEYS = ("a", "b")


class Hesitating:
    """A memory store that lets others go first, before it decides and before it answers, as chance has it."""

    def __init__(self, inner: MemoryStore, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance

    async def _pass(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        await self._pass()
        outcome = await self._inner.acquire(claim, timeout=timeout)
        await self._pass()
        return outcome

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        await self._pass()
        await self._inner.abandon(key, token, heard=heard, timeout=timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass(slots=True)
class Client:
    """A client that waits for a key under one token, by one request after the other."""

    claim: Claim
    task: asyncio.Task[Held | Contended]
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Play:
    """One service, and clients whose every move is drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        slice_, linger = self.chance.choice([(60.0, 2.0), (0.001, 60.0), (0.001, 0.0)])
        settings = Settings(store=f"memory:play-{seed}", max_wait_slice=slice_, wait_linger=linger)
        self.service = Service(settings)
        self.inner = self.service.store
        hesitating: Any = Hesitating(self.inner, self.chance)  # type: ignore[arg-type]
        self.service.waiting._store = self.service.waiting.copies._store = hesitating
        self.clients: list[Client] = []
        self.granted: dict[str, Claim] = {}
        self.numbers = 0

    async def run(self) -> None:
        for _ in range(STEPS):
            move = self.chance.choice([self.arrive, self.arrive, self.vanish, self.give_back, self.come_back])
            await move()
            for _ in range(self.chance.randrange(5)):
                await asyncio.sleep(0)
            self.collect()
        for client in self.clients:
            client.gone.set()
        await asyncio.gather(*(client.task for client in self.clients), return_exceptions=True)
        self.collect()
        for claim in list(self.granted.values()):
            await self.end(claim)
        await self.settle()

    def ask(self, claim: Claim) -> None:
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        wait = self.chance.choice([0.0005, 60.0])
        asking = self.service.waiting.acquire(claim, wait=wait, who="", receive=receive)
        self.clients.append(Client(claim, asyncio.get_running_loop().create_task(asking), gone))

    async def arrive(self) -> None:
        self.numbers += 1
        owner = self.chance.choice([None, None, "one"])
        self.ask(Claim(self.chance.choice(KEYS), f"{self.numbers:032d}", 60.0, owner=owner, late=True))

    async def vanish(self) -> None:
        if self.clients:
            self.chance.choice(self.clients).gone.set()

    async def come_back(self) -> None:
        """Somebody asks with a token that he or a copy of him has asked with before."""
        if self.clients:
            self.ask(self.chance.choice(self.clients).claim)

    async def give_back(self) -> None:
        if self.granted:
            await self.end(self.granted[self.chance.choice(list(self.granted))])

    async def end(self, claim: Claim) -> None:
        self.granted.pop(claim.token, None)
        await self.inner.release(claim.key, claim.token, timeout=1.0)
        self.service.env.lines.released(claim.key)

    def collect(self) -> None:
        """Who was granted a key has it until he gives it back; nobody else may believe that he has."""
        for client in [one for one in self.clients if one.task.done()]:
            self.clients.remove(client)
            error = client.task.exception()
            assert error is None or isinstance(error, Disconnected | LeasedError), error
            if error is None and isinstance(client.task.result(), Held):
                self.granted[client.claim.token] = client.claim

    async def settle(self) -> None:
        """All that was begun ends, and nothing is held, waited for or counted any more."""
        waiting = self.service.waiting
        async with asyncio.timeout(20.0):
            while len(waiting) or waiting._each or any([await self.held(key) for key in KEYS]):
                await asyncio.sleep(0)
                for wait in list(waiting._waits.values()):
                    if wait.linger is not None:  # nobody comes back: its moment passes
                        wait.linger.cancel()
                        waiting._give_up(wait)
        assert not any(self.service.env.lines.waiting(key) for key in KEYS)

    async def held(self, key: str) -> bool:
        return (await self.inner.status(key, timeout=1.0)).held


@pytest.mark.parametrize("part", range(6))
def test_nothing_is_left_whatever_the_order(part: int) -> None:
    """V3, over seeded interleavings: clients that wait, vanish, come back and are granted leave nothing held behind."""
    for seed in range(part, SEEDS, 6):
        try:
            asyncio.run(Play(seed).run())
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
