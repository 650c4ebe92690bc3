"""How much to measure, where, and with which peers; a scale makes everything smaller for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random


@dataclass(frozen=True, slots=True)
class Plan:
    """What all rows share. `scale` 1 is a whole measurement. `peers` is the Python that has the peers, if any."""

    directory: Path
    scale: float = 1.0
    peers: str | None = None
    chance: Random = field(default_factory=Random)

    def count(self, whole: int) -> int:
        """So many operations in a whole measurement."""
        return max(1, round(whole * self.scale))

    def rounds(self, whole: int) -> int:
        """So many rounds in a whole measurement."""
        return max(1, round(whole * self.scale))

    def seconds(self, whole: float) -> float:
        """So many seconds in a whole measurement."""
        return max(0.2, whole * self.scale)
