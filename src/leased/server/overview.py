"""What went on in each project during the last hour, in samples: numbers only, bounded, of this process."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Literal

from leased.wire import Body, instant

INTERVAL = 10.0
"""Seconds of a sample."""

MOST_SAMPLES = 360
"""Samples that are kept: an hour."""

MOST_PROJECTS = 100
"""Projects that are remembered; the one that did nothing for the longest time goes."""

Count = Literal["acquired", "contended", "rejected", "denied", "limited", "forced"]
"""What is counted: grants, claims refused because the key was held, requests that could not work, were not allowed,
or came too often, and holds ended by force."""

_COUNTS: tuple[Count, ...] = ("acquired", "contended", "rejected", "denied", "limited", "forced")
_SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
_STEPS = 1.0 / math.log(1.05)  # each step is 5 % longer than the one before


class Spread:
    """How long things took: not each, but how many of about each length."""

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        """One more."""
        step = 0 if seconds < 0.001 else 1 + int(math.log(seconds * 1000.0) * _STEPS)
        self._steps[step] = self._steps.get(step, 0) + 1

    def shown(self) -> Body | None:
        """What half of them, 95 and 99 of a hundred did not exceed, in milliseconds; `None` where there were none."""
        total = sum(self._steps.values())
        if not total:
            return None
        found: Body = {}
        seen, shares = 0, list(_SHARES)
        for step in sorted(self._steps):
            seen += self._steps[step]
            while shares and seen >= shares[0][1] * total:
                found[shares.pop(0)[0]] = 0 if step == 0 else round(math.exp(step / _STEPS))
        return found


class _Project:
    """What went on since the last sample, and the samples before."""

    __slots__ = ("counts", "holds", "samples", "waits")

    def __init__(self) -> None:
        self.samples: deque[Body] = deque(maxlen=MOST_SAMPLES)
        self.begin()

    def begin(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self.waits = Spread()
        self.holds = Spread()


class Overview:
    """All projects that did something lately. `waiting` says how many claims of each project wait."""

    def __init__(self, waiting: Callable[[], Mapping[str, int]]) -> None:
        self._waiting = waiting
        self._projects: OrderedDict[str, _Project] = OrderedDict()
        self._last: tuple[str, _Project] | None = None
        self.skips = False
        """Whether not all holds were looked at since the last sample, so that nobody knows how many there are."""

    def __len__(self) -> int:
        """How many projects are remembered."""
        return len(self._projects)

    def count(self, project: str, what: Count, *, number: int = 1) -> None:
        """Count so many more."""
        self._of(project).counts[what] += number

    def waited(self, project: str, seconds: float) -> None:
        """A claim has its key, after so many seconds."""
        self._of(project).waits.add(seconds)

    def ended(self, project: str, *, held: float) -> None:
        """A hold of so many seconds ended."""
        self._of(project).holds.add(held)

    def roll(self, at: float, *, held: Mapping[str, int]) -> None:
        """A sample is over, at this instant. `held`: how many keys of each project are held, as far as is known."""
        waiting = self._waiting()
        for name, one in self._projects.items():
            one.samples.append(
                {
                    "at": instant(at),
                    "held": None if self.skips else held.get(name, 0),
                    "waiting": waiting.get(name, 0),
                    **one.counts,
                    "waitMs": one.waits.shown(),
                    "holdMs": one.holds.shown(),
                }
            )
            one.begin()
        self.skips = False

    def samples(self, project: str) -> list[Body]:
        """Those of a project, the oldest first."""
        found = self._projects.get(project)
        return [] if found is None else list(found.samples)

    def _of(self, project: str) -> _Project:
        if self._last is not None and self._last[0] == project:
            return self._last[1]
        found = self._projects.get(project)
        if found is None:
            found = self._projects[project] = _Project()
            if len(self._projects) > MOST_PROJECTS:
                self._projects.popitem(last=False)
        else:
            self._projects.move_to_end(project)
        self._last = project, found
        return found
