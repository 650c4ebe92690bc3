"""An event loop on a virtual clock that counts its turns, so that a test can let something happen at any of them.

Whatever waits for time waits for none: when nothing is ready the clock jumps to what is next.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable

from leased.aio_clock import LoopClock

_IDLE_TURN = 0.001
"""Virtual seconds of a turn with nothing to do, while something is yet to happen."""


class _Jump(selectors.SelectSelector):
    """Instead of waiting for files, lets virtual time pass, and the planned happen."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.turn = 0
        self.planned: dict[int, list[Callable[[], object]]] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turn += 1
        happening = self.planned.pop(self.turn, ())
        if timeout is None:
            if not happening and not self.planned:
                raise RuntimeError("every task waits for another one: nothing will ever happen")
            timeout = _IDLE_TURN
        if not happening:
            self.now += min(timeout, _IDLE_TURN) if self.planned else max(timeout, 0.0)
        for happen in happening:
            happen()
        return []


class SteppedLoop(asyncio.SelectorEventLoop):
    """Runs what is ready in order, as every loop does. `at_turn` is how the world outside comes in, as by sockets."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Virtual seconds."""
        return self._jump.now

    @property
    def turn(self) -> int:
        """How many turns there have been."""
        return self._jump.turn

    def at_turn(self, turn: int, happen: Callable[[], object]) -> None:
        """Let this happen in a turn that is yet to come, before what is ready then."""
        self._jump.planned.setdefault(max(turn, self._jump.turn + 1), []).append(happen)


class SteppedClock(LoopClock):
    """The loop's clock as the clock of a service."""

    def __init__(self, loop: SteppedLoop) -> None:
        self.now = loop.time
        self.wall = lambda: 1.7e9 + loop.time()
