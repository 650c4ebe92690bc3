"""The wall clock of one server, moved by a test while the server runs. Its monotonic clock is never touched."""

from __future__ import annotations

import time

from tests.servers.found import faketime_library
from tests.servers.process import Place, ServerFailed


class MovingClock:
    """Give it to one `start(clock=…)`, then move it. Valkey, PostgreSQL and MariaDB follow it; Redis would hang."""

    def __init__(self) -> None:
        """A clock that shows the right time until it is moved."""
        self._library = faketime_library()
        self._offset = 0.0
        self._rate = 1.0
        self._started = time.time()
        self._place: Place | None = None

    def step(self, seconds: float) -> None:
        """Set it forward, or backward with a negative number, at once."""
        self._offset += seconds
        self._write()

    def run_at(self, rate: float) -> None:
        """Let it run this many times as fast from now on; 1.0 keeps what has been gained until now.

        The moment it changes, it is off by about a twentieth of a second for each 1.0 that the rate is more or less.
        """
        gained = self._gained()
        self._rate = rate
        self._offset += gained - self._gained()
        self._write()

    def right(self) -> None:
        """Let it show the right time again."""
        self._offset, self._rate = 0.0, 1.0
        self._write()

    def environment(self, place: Place) -> dict[str, str]:
        """What a program that is started now must find in its environment to follow this clock."""
        if self._place not in (None, place):
            raise ServerFailed("a clock belongs to one server; take another for the second")
        self._offset += self._gained()
        self._started = time.time()
        self._place = place
        self._write()
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(place.directory / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def _gained(self) -> float:
        # The library counts the rate from the start of the program.
        return (self._rate - 1.0) * (time.time() - self._started)

    def _write(self) -> None:
        if self._place is None:
            return
        fresh = self._place.directory / "clock.new"
        fresh.write_text(f"{self._offset:+.6f} x{self._rate}\n")
        fresh.chmod(0o644)
        fresh.rename(self._place.directory / "clock")  # the server never reads half of it
