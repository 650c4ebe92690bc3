"""One broken promise, with what was recorded of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """At this time of the lines' clock a promise was broken; `text` says by whom and how."""

    promise: str
    at: float
    text: str

    def __str__(self) -> str:
        """On one line."""
        return f"{self.at:.3f} {self.promise}: {self.text}"
