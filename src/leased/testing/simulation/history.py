"""What happened in a run, in order, and the first broken promise; it judges nothing itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from leased.timeline import Timeline

_DULL = re.compile(
    r"request_id=None, |held_by=(''|None),? ?|metadata=('{}'|{}),? ?|waiters=None|waited=0.0, |expires_at=[\w.]+, "
    r"|free_at=[\w.]+, |acquired_at=[\w.]+, |late=False|hold_at_least=0.0, |lock_delay=0.0, |max_hold=1000.0, "
)


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that did not hold, when (virtual seconds), and what was seen."""

    promise: str
    at: float
    seen: str

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.promise} broken at {self.at:.4f} s: {self.seen}"


class History:
    """Events of one run; the first violation stops the timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.events: list[tuple[float, str, str, tuple[object, ...]]] = []
        self.violation: Violation | None = None
        self._timeline = timeline

    def add(self, who: str, what: str, *facts: object) -> None:
        """Note an event; facts must have a `repr` that depends on nothing but the seed."""
        self.events.append((self._timeline.now, who, what, facts))

    def break_off(self, promise: str, seen: str) -> None:
        """Note that a promise is broken; the run ends with this step."""
        if self.violation is None:
            self.violation = Violation(promise, self._timeline.now, seen)
            self._timeline.stopped = True

    def lines(self) -> Iterator[str]:
        """The history as text, and the violation at its end."""
        for at, who, what, facts in self.events:
            yield f"{at:10.4f}  {who:<8} {what:<12} {' '.join(map(_shown, facts))}".rstrip()
        if self.violation is not None:
            yield str(self.violation)

    def digest(self) -> str:
        """A hash of all events: equal for two runs exactly if they went the same way."""
        whole = blake2b(digest_size=16)
        for line in self.lines():
            whole.update(line.encode())
        return whole.hexdigest()


def _shown(fact: object) -> str:
    """A fact as text, with the token that its `repr` rightly hides: here it is only a name."""
    text = _DULL.sub("", str(fact))
    for thing in (fact, getattr(fact, "claim", None), getattr(fact, "lease", None)):
        token = getattr(thing, "token", None)
        if token is not None:
            text += f"[{token}]"
    return text
