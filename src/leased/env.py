"""What the engine takes from outside besides the store. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from leased.hold import Hook
from leased.observe import LOGGED, EventName, Observer, report
from leased.policy import CLOCK_MARGIN, OPERATION_TIMEOUT, Chance
from leased.queue import Lines
from leased.store import Clock


@dataclass(slots=True)
class Env:
    """Everything engine and keeper take from outside besides the store: time, chance, the local line, settings."""

    clock: Clock
    chance: Chance
    mint: Callable[[], str]
    lines: Lines
    timeout: float = OPERATION_TIMEOUT
    margin: float = CLOCK_MARGIN
    observer: Observer | None = None
    run_hook: Callable[[Hook], None] | None = None
    closed: bool = False

    def tell(
        self, name: EventName, key: str, *, lock: str | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        """Report an event."""
        if self.observer is None and name not in LOGGED:
            return
        report(self.observer, name, key, lock=lock, data=data)
