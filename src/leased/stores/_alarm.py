"""The end of an exchange in an event loop: one timer for all exchanges of a connection. It ends nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leased.clocks import now
from leased.stores._loops import running_loop


class Alarm:
    """Rings when an exchange is not over at its instant, of one exchange after the other, in the loop it was made in.

    The timer stays when an exchange ends in time, and serves the next: asking the loop anew for each would cost more.
    """

    __slots__ = ("_loop", "_ring", "_rings_at", "_timer", "_until")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._loop = running_loop()
        self._ring = ring
        self._timer: Any = None
        self._rings_at = 0.0
        self._until: float | None = None

    def set(self, until: float) -> None:
        """An exchange goes on until then at the most, on the clock of `leased.clocks`."""
        self._until = until
        if self._timer is None or until < self._rings_at:
            self._start(until)

    def rest(self) -> None:
        """It is over in time."""
        self._until = None

    def close(self) -> None:
        """There will be no more; also after the loop has ended."""
        self._until = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = until
        self._timer = self._loop.call_later(max(0.0, until - now()), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._until is None:
            return
        if now() < self._until:  # it was set for an exchange before this one
            self._start(self._until)
        else:
            self._until = None
            self._ring()
