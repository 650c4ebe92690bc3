"""How much of something each name may use: budgets that refill steadily, in bounded memory; it knows no request.

The arithmetic is the generic cell rate algorithm: per name one number, the instant at which its budget is full again.
Within any span of `t` seconds no name gets more than `burst + rate * t`. Times count to the microsecond.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from leased.errors import InvalidRequest

_NANOSECONDS = 1_000_000_000
_MICROSECOND = 1_000
_LOOKED_AT = 16  # names at each use, at the most
_STAY = 2  # of them need not be full: so at least two thirds of what is kept are in use
_OTHERS = ""
"""Stands for every name that there was no room for."""


@dataclass(frozen=True, slots=True)
class Budget:
    """So many uses in so many seconds; `burst` of them (default: all) may come at once."""

    uses: int
    seconds: float
    burst: int = 0

    def __post_init__(self) -> None:
        """Refuse what could let nobody pass, or everybody."""
        if self.uses < 1 or not 0 < self.seconds < math.inf or self.burst < 0:
            raise InvalidRequest(
                f"a budget of {self.uses} in {self.seconds} s, {self.burst} at once, lets nothing pass",
                hint="use whole numbers from 1, and a time in seconds; 0 at once means all of them",
            )

    @property
    def at_once(self) -> int:
        """How many may come at once."""
        return self.burst or self.uses

    def __str__(self) -> str:
        """Such as `600 in 60 s`."""
        return f"{self.uses} in {self.seconds:g} s"


class Meter:
    """Budgets of one kind, one per name. `now` gives seconds on a clock that never goes back.

    A name whose budget is full is forgotten, and each use looks at a fixed number of names. Where `most_names` are
    remembered, those who come then share one budget: none of them gets more than its own would be, and nobody who was
    there before gets less.
    """

    def __init__(self, budget: Budget, *, now: Callable[[], float], most_names: int = 100_000) -> None:
        self.budget = budget
        self._now = now
        self._most_names = most_names
        self._few = min(_LOOKED_AT, most_names // 2)  # so many may stay, full or not
        self._step = math.ceil(budget.seconds * _NANOSECONDS / budget.uses)
        self._span = self._step * budget.at_once
        self._full_at: OrderedDict[str, int] = OrderedDict()  # a dict would not give its oldest in constant time

    def __len__(self) -> int:
        """How many names it remembers."""
        return len(self._full_at)

    def take(self, name: str, count: int = 1) -> float:
        """Use the budget `count` times and return 0, or use nothing and return the seconds after which it would work.

        Infinite where that is more than can come at once.
        """
        now = self._instant()
        name = self._known(name, now=now)
        full_at = max(self._level(name), now) + count * self._step
        late = full_at - now - self._span
        if late > _MICROSECOND:
            return math.inf if count > self.budget.at_once else late // _MICROSECOND / 1_000_000
        self._keep(name, full_at, now=now)
        return 0.0

    def spend(self, name: str, count: int = 1) -> None:
        """Use the budget `count` times, or what is left of it: for what is counted and never refused."""
        now = self._instant()
        name = self._known(name, now=now)
        self._keep(name, min(max(self._level(name), now) + count * self._step, now + self._span), now=now)

    def left(self, name: str) -> int:
        """How many uses would pass now."""
        now = self._instant()
        return (self._span - max(self._level(name) - now, 0)) // self._step

    def give_back(self, name: str, count: int = 1) -> None:
        """Undo a `take` of just now."""
        name = name if name in self._full_at else _OTHERS
        if name in self._full_at:
            self._full_at[name] -= count * self._step

    def _instant(self) -> int:
        return round(self._now() * _NANOSECONDS)

    def _known(self, name: str, *, now: int) -> str:
        """The name itself, if there is room for it, or room can be made."""
        if name in self._full_at:
            return name
        if len(self._full_at) >= self._most_names:
            self._clean(now)
        return name if len(self._full_at) < self._most_names else _OTHERS

    def _level(self, name: str) -> int:
        """When the budget is full again. Who is new may have used the shared one, and starts where that stands."""
        return self._full_at.get(name) or self._full_at.get(_OTHERS, 0)

    def _keep(self, name: str, full_at: int, *, now: int) -> None:
        """Remember a name, and forget some that are full: they need no memory."""
        self._full_at[name] = full_at
        self._full_at.move_to_end(name)
        if len(self._full_at) > self._few:
            self._clean(now)

    def _clean(self, now: int) -> None:
        """Look at those that were looked at longest ago: who is full goes, who is not is looked at again after all
        others, so that one who stays long keeps nobody else here."""
        stay = 0
        for _ in range(_LOOKED_AT):
            name, full_at = self._full_at.popitem(last=False)
            if full_at > now:
                self._full_at[name] = full_at
                stay += 1
            if stay == _STAY or len(self._full_at) <= self._few:
                break
