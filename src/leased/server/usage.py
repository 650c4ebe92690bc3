"""What projects and their members have used of their budgets: in this process, or shared by all. It refuses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from leased.errors import LeasedError, StoreUnavailable
from leased.server.limits import Budget, Meter

FLUSHED_EVERY = 0.5
"""Seconds after which uses that are never refused are counted for all."""

MAX_OWED = 10_000
"""Projects with such uses that are remembered until then."""

_MICROSECONDS = 1_000_000
_log = logging.getLogger("leased.server.usage")


@dataclass(frozen=True, slots=True)
class Use:
    """So much of the budget of a name, as every replica reckons it: in whole microseconds.

    `cost`: by how much later the budget is full again. `span`: how far off that may be at the most.
    """

    name: str
    cost: int
    span: int


def use_of(name: str, budget: Budget, *, count: int) -> Use:
    """So many uses of a budget."""
    step = math.ceil(budget.seconds * _MICROSECONDS / budget.uses)
    return Use(name, step * count, step * budget.at_once)


class Shelf(Protocol):
    """Where budgets are kept that several processes share: per name the instant at which it is full again.

    Instants are of the shelf's own clock, so that those of the replicas need not agree. What is full takes no room: the
    rows are as many as were used lately, and budgets bound those.
    """

    async def take(self, uses: Sequence[Use]) -> Sequence[int]:
        """Use all of them, or none, in one step; per use the microseconds that it comes too early, else 0."""
        ...

    async def spend(self, uses: Sequence[Use]) -> None:
        """Use them, or what is left of each: for what is counted and never refused."""
        ...


class Usage(Protocol):
    """Budgets of projects (requests) and of their members (attempts)."""

    async def take(self, project: str, member: str | None, *, count: int = 1) -> tuple[float, float]:
        """Use both, or neither: the seconds after which each would do; infinite for more than ever comes at once.

        Without a member only the project's is used. Raises `StoreUnavailable` where nobody knows what is left.
        """
        ...

    def take_alone(self, project: str, *, count: int = 1) -> float:
        """Use the project's, without asking others: for what must go on while nobody answers."""
        ...

    def spend(self, project: str, *, count: int = 1) -> None:
        """Use the project's, or what is left of it."""
        ...

    def left(self, project: str) -> int | None:
        """What is left of the project's, where that is known without asking others."""
        ...

    async def close(self) -> None:
        """Count what is not counted yet."""
        ...


class OwnUsage:
    """See `Usage`: that of this process alone."""

    def __init__(self, *, requests: Budget, attempts: Budget, now: Callable[[], float]) -> None:
        self._requests = Meter(requests, now=now)
        self._attempts = Meter(attempts, now=now)

    async def take(self, project: str, member: str | None, *, count: int = 1) -> tuple[float, float]:
        """See `Usage`."""
        late = self._requests.take(project, count)
        if late > 0 or member is None:
            return late, 0.0
        late = self._attempts.take(f"{project}:{member}", count)
        if late > 0:
            self._requests.give_back(project, count)
        return 0.0, late

    def take_alone(self, project: str, *, count: int = 1) -> float:
        """See `Usage`."""
        return self._requests.take(project, count)

    def spend(self, project: str, *, count: int = 1) -> None:
        """See `Usage`."""
        self._requests.spend(project, count)

    def left(self, project: str) -> int | None:
        """See `Usage`."""
        return self._requests.left(project)

    async def close(self) -> None:
        """See `Usage`: there is nothing to do."""


class SharedUsage:
    """See `Usage`: that of all processes with the same shelf together."""

    def __init__(self, shelf: Shelf, *, requests: Budget, attempts: Budget, now: Callable[[], float]) -> None:
        self._shelf = shelf
        self._requests = requests
        self._attempts = attempts
        self._alone = Meter(requests, now=now)
        self._owed: dict[str, int] = {}
        self._flusher: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def take(self, project: str, member: str | None, *, count: int = 1) -> tuple[float, float]:
        """See `Usage`."""
        wanted = [(f"requests:{project}", self._requests)]
        if member is not None:
            wanted.append((f"attempts:{project}:{member}", self._attempts))
        if any(count > budget.at_once for _, budget in wanted):
            late = [math.inf if count > budget.at_once else 0.0 for _, budget in wanted]
        else:
            found = await self._shelf.take([use_of(name, budget, count=count) for name, budget in wanted])
            late = [early / _MICROSECONDS for early in found]
        return late[0], late[1] if member is not None else 0.0

    def take_alone(self, project: str, *, count: int = 1) -> float:
        """See `Usage`: no replica lets more pass than the budget, and all together not more than that many times it."""
        return self._alone.take(project, count)

    def spend(self, project: str, *, count: int = 1) -> None:
        """See `Usage`: it is counted within a second; who only gives back what he holds need not wait for that."""
        if project not in self._owed and len(self._owed) >= MAX_OWED:
            return
        self._owed[project] = self._owed.get(project, 0) + count
        if self._flusher is None:
            self._flusher = asyncio.get_running_loop().create_task(self._flush_later())

    def left(self, project: str) -> int | None:
        """See `Usage`: only the shelf knows."""
        return None

    async def close(self) -> None:
        """See `Usage`."""
        self._closing.set()
        if self._flusher is not None:
            await self._flusher

    async def _flush_later(self) -> None:
        """Count what is owed until nothing is; then end, so that an idle service does nothing."""
        try:
            while self._owed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), FLUSHED_EVERY)
                owed, self._owed = self._owed, {}
                uses = [use_of(f"requests:{name}", self._requests, count=count) for name, count in owed.items()]
                await self._flush(uses)
        finally:
            self._flusher = None

    async def _flush(self, uses: Sequence[Use]) -> None:
        try:
            await self._shelf.spend(uses)
        except StoreUnavailable as error:
            _log.warning("uses of %d projects were not counted: %s", len(uses), error.message)
        except LeasedError as error:
            _log.error("uses of %d projects cannot be counted: %s", len(uses), error.message)
