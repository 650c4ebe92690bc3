"""Remembers that a registry gave no answer, so that not every caller waits for the same silence. It asks nobody."""

from __future__ import annotations

from time import monotonic

from leased.errors import StoreUnavailable

KEPT_FOR = 1.0
"""Seconds that callers are told of a silence without asking again."""


class Silence:
    """One for each registry. Each call says when it begins and how it ended."""

    def __init__(self) -> None:
        self._heard_at = float("-inf")
        self._until = float("-inf")
        self._message = ""

    def begin(self) -> float:
        """When the call begins, or raise `StoreUnavailable` where another one has just found nobody there."""
        now = monotonic()
        if now < self._until:
            raise StoreUnavailable(self._message, applied=False)
        return now

    def ended(self) -> None:
        """There was an answer, whichever."""
        self._heard_at = monotonic()
        self._until = float("-inf")

    def failed(self, problem: StoreUnavailable, *, began: float) -> StoreUnavailable:
        """There was none: the problem itself. One slow call among others that are answered is no silence."""
        if self._heard_at < began:
            self._until = monotonic() + KEPT_FOR
            self._message = problem.message
        return problem
