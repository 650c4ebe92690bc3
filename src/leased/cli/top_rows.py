"""One key as it was seen again and again: how full its lease is, and whether it is being renewed. It asks nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from leased.model import Status

Condition: TypeAlias = Literal["renewing", "held", "at risk", "ended", "closed"]
"""What a row says of its key. `renewing`: a renewal was seen. `at risk`: one was, and the lease has run down to a third
since. `held`: none was seen yet. `ended`: its time has run out since the last look."""

_AT_RISK = 1 / 3
"""Share of a lease below which its renewals have failed for a third of it: a holder renews when a third has passed."""

_RENEWED = 0.25
"""Seconds by which a lease must have grown to count as renewed: less may be the way of an answer."""


@dataclass(frozen=True, slots=True)
class Row:
    """A key as it was last seen, at `at` on our clock. `full` is the most time left that was seen of this lease, in
    seconds, and `renewals` how many renewals were: at least so many, for several may lie between two looks."""

    seen: Status
    at: float
    full: float
    renewals: int = 0

    def left(self, now: float) -> float | None:
        """Seconds until the lease or the closed time is over; `None` if the store did not say."""
        left = _left_of(self.seen)
        return None if left is None else max(left - (now - self.at), 0.0)

    def share(self, now: float) -> float | None:
        """How much of the lease is left, from 0 to 1, measured by the fullest that it was seen."""
        left = self.left(now)
        return None if left is None or self.full <= 0 else min(left / self.full, 1.0)

    def condition(self, now: float) -> Condition:
        """What there is to say of the key in a word."""
        left, share = self.left(now), self.share(now)
        if left is not None and left <= 0:
            return "ended"
        if self.seen.state == "closed":
            return "closed"
        if self.renewals and share is not None:
            return "at risk" if share < _AT_RISK else "renewing"
        return "held"


def follow(before: Mapping[str, Row], found: Sequence[Status], *, at: float) -> dict[str, Row]:
    """The rows after a look that found these, by key, in their order. What was learned of a lease goes with it."""
    return {seen.key: _next(before.get(seen.key), seen, at=at) for seen in found}


def _next(before: Row | None, seen: Status, *, at: float) -> Row:
    left = _left_of(seen) or 0.0
    if before is None or (before.seen.fencing_token, before.seen.state) != (seen.fencing_token, seen.state):
        return Row(seen, at, left)
    renewed = seen.state == "held" and _has_grown(before, seen, at=at)
    return Row(seen, at, max(before.full, left), before.renewals + renewed)


def _has_grown(before: Row, seen: Status, *, at: float) -> bool:
    """By the store's clock where it tells: an answer that was long on its way tells of no more time for that."""
    if before.seen.expires_at is not None and seen.expires_at is not None:
        return seen.expires_at > before.seen.expires_at + _RENEWED
    expected = before.left(at)
    return expected is not None and (seen.expires_in or 0.0) > expected + _RENEWED


def _left_of(seen: Status) -> float | None:
    return seen.expires_in if seen.state == "held" else seen.free_in
