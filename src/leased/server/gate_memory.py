"""What the gate looked up a moment ago: credentials and rule sets, for as long as that is true. It looks up nothing."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from leased.errors import StoreNotUsable, StoreUnavailable

REMEMBERED_FOR = 2.0
"""Seconds that a credential or rule set is used without asking the registry: as long can a revoked one still work where
another process revoked it."""

GRACE = 60.0
"""Seconds that they are used while the registry does not answer. Whoever is not remembered is let in by nobody then."""

MAX_REMEMBERED = 10_000
"""Credentials, and rule sets, that are remembered at once."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Known(Generic[_T]):
    """Something that was looked up: when, for which project, and until which instant of the wall clock it is true."""

    value: _T
    at: float
    project: str
    until: float


class Together(Generic[_T]):
    """Look-ups that are on their way, by name: whoever wants the same meanwhile waits for the same answer, or a
    thousand requests with one credential would each ask the registry when it is time to do so again."""

    def __init__(self) -> None:
        self._running: dict[Any, asyncio.Task[_T]] = {}

    async def get(self, name: Any, look_up: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """What it gives, or raises. Once begun it goes on, whatever becomes of those who wait for it."""
        running = self._running.get(name)
        if running is None:
            running = self._running[name] = asyncio.get_running_loop().create_task(look_up())
            running.add_done_callback(partial(self._over, name))
        return await asyncio.shield(running)

    def _over(self, name: Any, task: asyncio.Task[_T]) -> None:
        del self._running[name]
        if not task.cancelled():
            task.exception()  # told to those who still wait; asyncio would complain where nobody does


class Memory(Generic[_T]):
    """What was looked up a moment ago, by name; the oldest makes room."""

    def __init__(self, *, now: Callable[[], float], wall: Callable[[], float], grace: float) -> None:
        self._now = now
        self._wall = wall
        self._grace = grace
        self._known: OrderedDict[Any, _Known[_T]] = OrderedDict()
        self.generation = 0
        """Rises whenever something is forgotten."""

    def get(self, name: Any) -> _T | None:
        """What is remembered, if it was looked up a moment ago."""
        return self._within(name, REMEMBERED_FOR)

    def get_old(self, name: Any, problem: StoreUnavailable) -> _T:
        """What was known before the registry ceased to answer, or raise that problem."""
        found = None if isinstance(problem, StoreNotUsable) else self._within(name, self._grace)
        if found is None:
            raise problem
        return found

    def put(self, name: Any, value: _T, *, project: str, generation: int, until: float = math.inf) -> None:
        """Remember it, unless something was forgotten since that generation: it may be what was true before."""
        if generation != self.generation:
            return
        self._known[name] = _Known(value, self._now(), project, until)
        self._known.move_to_end(name)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, project: str) -> None:
        """Look up anew what is of this project."""
        self.generation += 1
        for name in [name for name, one in self._known.items() if one.project == project]:
            del self._known[name]

    def doubt(self, project: str) -> None:
        """Look it up anew; where there is no answer it still is what was known before."""
        self.generation += 1
        for name, one in self._known.items():
            if one.project == project:
                self._known[name] = replace(one, at=min(one.at, self._now() - REMEMBERED_FOR))

    def _within(self, name: Any, seconds: float) -> _T | None:
        found = self._known.get(name)
        if found is None or self._now() >= found.at + seconds:
            return None
        return None if found.until < math.inf and self._wall() >= found.until else found.value
