"""The engine on a bench: a memory store with faults, one process, and time that only passes when it is run."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any

from leased.engine import acquire
from leased.env import Env
from leased.hold import Hold
from leased.keeper import Keeper
from leased.model import Claim, Contended, Held, Terms
from leased.observe import Event
from leased.queue import Lines
from leased.stores.memory import MemoryStore
from leased.timeline import Process, Task, Timeline
from tests.faces.faults import FaultyStore

_open_rigs: list[Rig] = []


def close_all() -> None:
    """Unwind whatever still waits in any rig; work that nobody asks for its result must not have failed unseen."""
    rigs = tuple(_open_rigs)
    _open_rigs.clear()
    for rig in rigs:
        rig.timeline.close()
    assert [task.error for rig in rigs for task in rig.timeline.failures if task not in rig.own] == []


class Rig:
    """One client process and a store on one axis of virtual time. `elsewhere` is what other processes may do."""

    def __init__(self, *, seed: int = 1, timeout: float = 5.0) -> None:
        _open_rigs.append(self)
        self.timeline = Timeline(random.Random(seed))
        self.process: Process = self.timeline.process("client")
        self.clock = self.process.clock
        self.memory = MemoryStore(self.timeline.process("server").clock)
        self.store = FaultyStore(self.memory, self.clock)
        self.events: list[Event] = []
        self.hooks: list[object] = []
        self.own: list[Task] = []
        numbers = itertools.count()
        self.env = Env(
            clock=self.clock,
            chance=random.Random(seed),
            mint=lambda: f"minted-{next(numbers):04}",
            lines=Lines(),
            timeout=timeout,
            observer=self.events.append,
            run_hook=self._run_hook,
        )
        self.keeper = Keeper(self.store, self.env)

    def start(self, work: Coroutine[Any, Any, Any]) -> Task:
        """Begin something; it goes on when time is run."""
        task = self.process.start(work)
        self.own.append(task)
        return task

    def run(self, work: Coroutine[Any, Any, Any], *, until: float = math.inf) -> Any:
        """What comes of this work, as time passes until nothing is due any more (or until then)."""
        task = self.start(work)
        self.timeline.run(until)
        assert task.done, "it did not end"
        if task.error is None:
            self.own.remove(task)  # which would keep its result alive
        return task.result()

    def pass_time(self, seconds: float) -> None:
        """Let so many seconds pass, with all that is due in them."""
        self.timeline.run(self.timeline.now + seconds)

    async def acquire(self, claim: Claim, **how: Any) -> Hold | Contended:
        """Ask, in the way the faces do."""
        return await acquire(self.store, self.env, claim, **{"wait": 0.0, **how})

    def granted(self, key: str = "k", **how: Any) -> Hold:
        """A hold on this key."""
        wait = how.pop("wait", 0.0)
        hold = self.run(self.acquire(claim_on(key, **how), wait=wait), until=self.timeline.now)
        assert isinstance(hold, Hold)
        return hold

    def occupied(self, key: str = "k", **how: Any) -> Claim:
        """A claim of another process, which holds the key."""
        claim = claim_on(key, **how)

        async def take() -> None:
            assert isinstance(await self.memory.acquire(claim, timeout=1.0), Held)

        self.run(take(), until=self.timeline.now)
        return claim

    def keep(self, hold: Hold, *, renewing: bool = True) -> None:
        """Let the keeper keep it, and run."""
        if self.keeper.add(hold, renewing=renewing):
            self.process.start(self.keeper.run())

    def held(self, key: str = "k") -> bool:
        """Whether the store has a live lease of this key, or keeps it closed."""
        return bool(self.run(self.memory.status(key, timeout=1.0), until=self.timeline.now).held)

    def asked(self, operation: str) -> list[float]:
        """When the store was asked for it, in seconds from the start."""
        return [call.at for call in self.store.calls if call.operation == operation]

    def told(self, name: str) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events if event.name == name]

    def _run_hook(self, hook: Callable[[], object]) -> None:
        self.hooks.append(hook())


_tokens = itertools.count()


def claim_on(key: str = "k", **how: Any) -> Claim:
    """A claim with a token of its own."""
    terms = {name: how.pop(name) for name in ("max_hold", "hold_at_least", "lock_delay") if name in how}
    token = how.pop("token", None) or f"token-{next(_tokens):06}"
    return Claim(key, token, how.pop("ttl", 30.0), terms=Terms(**terms), **how)
