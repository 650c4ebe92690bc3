"""The wall clock of a client whose store has none to ask: how far it may be trusted. It reads no record."""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime
from functools import lru_cache

from leased.observe import report_store
from leased.store import Clock
from leased.stores._sql_record import SECOND
from leased.targets import Options


class ClientClock:
    """Times of records, in µs since the epoch, by this machine's wall clock.

    Two clients can overlap only if their clocks differ by more than the skew margin. So each compares its own with the
    server's, where answers tell that: off by more than half the margin, it says so, takes over nothing that lapsed, and
    counts from what is known of the server's time. With a margin of 0 every clock is believed.
    """

    def __init__(self, clock: Clock, options: Options, *, shown: str) -> None:
        """`clock` is that of the callers."""
        self.offset = 0.0
        """Seconds added to all times, always 0 except in tests."""
        self._clock = clock
        self._options = options
        self._shown = shown
        self._most = options.skew_margin / 2 if options.skew_margin > 0 else math.inf
        self._off = 0.0

    @property
    def off(self) -> bool:
        """Whether it was found too far from the server's to tell that a lease of somebody else is over."""
        return self._off != 0.0

    def micros(self) -> int:
        """Now; without what the wall clock is off for certain."""
        return round((self._clock.wall() + self._off + self.offset) * SECOND)

    def course(self) -> float:
        """The wall clock less the local one that nobody can set: it stays the same unless somebody sets the first."""
        return self._clock.wall() - self._clock.now()

    def stepped(self, since: float) -> bool:
        """Whether it was set by more than half the margin since the course was this one."""
        return abs(self.course() - since) > self._most

    def read(self, earliest: float, latest: float, *, asked_at: float) -> None:
        """Take note of an answer that came just now: the server's time, in seconds since the epoch, lay between these
        two when it handled what was asked at that local time."""
        answered = self._clock.wall()
        asked = answered - (self._clock.now() - asked_at)
        ahead, behind = earliest - answered, asked - latest  # of the server; what the exchange took proves nothing
        off = ahead if ahead > self._most else -behind if behind > self._most else 0.0
        if off and not self._off:
            data = {"off": round(off, 3), "allowed": self._most}
            report_store(self._options.observer, "clock_warning", store=self._shown, data=data)
        self._off = off


def read_date(wall: ClientClock, date: str, *, asked_at: float) -> None:
    """Take note of the `Date` of an answer of HTTP, which is cut to whole seconds; one that cannot be read is none."""
    earliest = _seconds(date)
    if earliest is not None:
        wall.read(earliest, earliest + 1.0, asked_at=asked_at)


@lru_cache(maxsize=16)  # many answers in a second have the same, and to read one takes longer than the rest
def _seconds(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None


def clocks_note(options: Options) -> str:
    """What an assurance says of clocks, where clients judge by their own when a lease is over."""
    if options.takeover == "observe":
        return (
            "a lease is over when another client has seen it unchanged for as long as it lasts: no clock has to agree"
        )
    return (
        f"a lease is over {options.skew_margin:g} s after its expiry by the clocks of clients: two whose clocks differ "
        "by more could overlap; each is compared with the servers' clocks"
    )
