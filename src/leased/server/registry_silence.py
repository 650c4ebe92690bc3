"""Remembers that a registry gave no answer, so that not every caller waits for the same silence. It asks nobody."""

from __future__ import annotations

from time import monotonic

from leased.errors import StoreNotUsable, StoreUnavailable

KEPT_FOR = 1.0
"""Seconds that callers are told of a silence without asking again."""


class Silence:
    """One for each registry. Each call says when it begins, how it ended, and in any case that it is over."""

    def __init__(self) -> None:
        self._heard_at = float("-inf")
        self._until = float("-inf")
        self._silent = False
        self._looks: float | None = None  # when the call began that looks whether the silence is over
        self._message = ""

    def begin(self) -> float:
        """When the call begins, or raise `StoreUnavailable` where another one has just found nobody there.

        After a silence one call is let through; the others are told of it until that is over, however long it takes.
        """
        now = monotonic()
        if self._silent:
            if now < self._until or self._looks is not None:
                raise StoreUnavailable(self._message, applied=False)
            self._looks = now
        return now

    def over(self, began: float) -> None:
        """The call that began then is over, whether it ended or was cut off: another one may look now."""
        if self._looks == began:
            self._looks = None

    def ended(self) -> None:
        """There was an answer, whichever."""
        self._heard_at = monotonic()
        self._silent = False

    def failed(self, problem: StoreUnavailable, *, began: float) -> StoreUnavailable:
        """There was none: the problem itself. One slow call among others that are answered is no silence."""
        if isinstance(problem, StoreNotUsable):
            self.ended()
        elif self._heard_at < began:
            self._silent = True
            self._until = monotonic() + KEPT_FOR
            self._message = problem.message
        return problem
