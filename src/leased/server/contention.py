"""How contended each key was during the last hour, minute by minute: numbers only, bounded, of this process."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from leased.wire import Body, instant

STEP = 60.0
"""Seconds of a sample."""

MOST_STEPS = 60
"""Samples that are kept of each key: an hour."""

MOST_KEYS = 1_000
"""Keys that are remembered; the one that nobody wanted for the longest time goes."""


@dataclass(slots=True)
class _Step:
    contended: int = 0
    waiting: int = 0


class Contention:
    """Of all keys, by the name under which they are stored. `waiting` says how many claims wait for each, `since` is
    when this began, in seconds since the epoch."""

    def __init__(self, waiting: Callable[[], Counter[str]], *, since: float) -> None:
        self._waiting = waiting
        self._first = int(since // STEP)
        self._keys: OrderedDict[str, dict[int, _Step]] = OrderedDict()

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._keys)

    def count(self, vain: Counter[str], *, at: float) -> None:
        """These keys were asked for in vain so often."""
        for key, number in vain.items():
            self._step(key, at).contended += number

    def look(self, at: float) -> None:
        """See who waits at this instant; of many keys at those for which the most wait."""
        for key, number in self._waiting().most_common(MOST_KEYS):
            step = self._step(key, at)
            step.waiting = max(step.waiting, number)

    def samples(self, key: str, *, at: float) -> list[Body]:
        """Those of a key up to this instant, the oldest first: also the minutes in which nobody wanted it."""
        last, known = int(at // STEP), self._keys.get(key, {})
        found = range(max(last - MOST_STEPS + 1, min(self._first, last)), last + 1)
        return [
            {"at": instant(step * STEP), "contended": one.contended, "waiting": one.waiting}
            for step, one in ((step, known.get(step, _Step())) for step in found)
        ]

    def _step(self, key: str, at: float) -> _Step:
        place, steps = int(at // STEP), self._keys.get(key)
        if steps is None:
            steps = self._keys[key] = {}
            if len(self._keys) > MOST_KEYS:
                self._keys.popitem(last=False)
        else:
            self._keys.move_to_end(key)
        found = steps.get(place)
        if found is None:
            for old in [old for old in steps if not place - MOST_STEPS < old < place]:  # or the clock was set back
                del steps[old]
            found = steps[place] = _Step()
        return found
