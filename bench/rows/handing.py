"""Two processes that hand a lock from one to the other, and how long that takes."""

from __future__ import annotations

import time

from bench.contender import Worker
from bench.measure import MILLI, Role


class Pair:
    """The two sides of one contender. Times are in milliseconds."""

    def __init__(self, name: str, role: Role, giver: Worker, taker: Worker) -> None:
        self.name = name
        self.role: Role = role
        self.noticed: list[float] = []
        self.held: list[float] = []
        self._giver = giver
        self._taker = taker

    def hand_off(self, patience: float) -> None:
        """Once: the taker waits so many seconds, then the giver releases."""
        self._giver.ask(action="hold")
        self._taker.send(action="take")
        time.sleep(patience)
        given = self._giver.ask(action="give").told
        taken = self._taker.receive().told
        self.held.append((taken["held"] - given["began"]) * MILLI)
        if "committed" in given:
            committed = given["committed"]
            noticed = min((at for at in taken["noticed"] if at >= committed), default=committed)
            self.noticed.append((noticed - committed) * MILLI)
