"""What a client sees of a key where only clients have clocks: when a lease counts as over. It writes nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from leased.model import Held, Lease, Lost
from leased.store import Clock
from leased.stores._cas_clock import ClientClock
from leased.stores._cas_record import Kept, Mark
from leased.stores._cas_shelf import Version
from leased.stores._sql_record import SECOND, Record, microseconds
from leased.targets import Options

_MOST = 4096
_MOST_OWN = 10_000


@dataclass(slots=True)
class Sight:
    """What the rules decide on; see `leased.stores._sql_rules`."""

    record: Record | None
    marks: Mapping[bytes, Mark]
    now: int
    zero: int = 0
    last: int | None = None

    def ended(self, token: bytes) -> str | None:
        """Why a token has ended."""
        mark = self.marks.get(token)
        return None if mark is None or mark.until <= self.now else mark.reason


class Own(NamedTuple):
    """A lease as this process last wrote it: the course of the wall clock, and on the local clock when it ends."""

    course: float
    until: float


def with_left(answer: Held, left: float) -> Held:
    """The same answer with so much time left."""
    lease = answer.lease
    # Not by `dataclasses.replace`, which takes ten times as long: every grant and renewal comes by here.
    return Held(
        Lease(
            lease.key,
            lease.token,
            lease.fencing_token,
            lease.ttl,
            lease.owner,
            left,
            lease.waited,
            lease.renewal,
        )
    )


class Watcher:
    """Judges time for one store: by the wall clock with a margin, or by watching a record for a whole lease.

    | `takeover` | a lease of somebody else is over | one's own is over |
    | --- | --- | --- |
    | `margin` | at its expiry by the wall clock; the key opens the skew margin later | at its expiry, or when the wall clock was set by half the margin since it was last written |
    | `observe` | when the same record was seen for a whole lease of local time | when that has passed since it was written |
    """  # noqa: E501

    def __init__(self, clock: Clock, wall: ClientClock, *, options: Options) -> None:
        """`clock` is that of the callers."""
        self._clock = clock
        self._wall = wall
        self._observing = options.takeover == "observe"
        self._margin = microseconds(options.skew_margin)
        self._rate = 1 - options.clock_margin
        self._mutex = threading.Lock()
        self._seen: OrderedDict[str, tuple[Version, float]] = OrderedDict()
        self._own: dict[bytes, Own] = {}
        self._most_own = _MOST_OWN

    def sight(self, key: str, kept: Kept, *, version: Version | None, token: bytes | None) -> Sight:
        """What the rules may decide on, for this token; the record was read before this call."""
        record, now = kept.record, self._wall.micros()
        if record is None or record.token is None:
            return Sight(record, kept.marks, now)
        mine = token is not None and record.has(token)
        if self._observing:
            over = self._over(record, key=key, version=version, mine=mine)
            now = max(now, record.expires_at, record.free_at) if over else min(now, record.expires_at - 1)
        elif not mine:
            record = record._replace(free_at=record.free_at + self._margin)
            if self._wall.off:
                now = min(now, record.expires_at - 1)
        return Sight(record, kept.marks, now)

    def lease_of(self, seconds: float) -> Own:
        """A lease of so many seconds that begins now."""
        return Own(self._wall.course(), self._clock.now() + seconds)

    def wrote(self, token: bytes, own: Own) -> None:
        """This process has written that lease for the token."""
        with self._mutex:
            self._own[token] = own
            if len(self._own) > self._most_own:
                local = self._clock.now()
                self._own = {token: own for token, own in self._own.items() if own.until > local}
                self._most_own = _MOST_OWN + 2 * len(self._own)

    def forget(self, token: bytes) -> None:
        """The lease is over."""
        with self._mutex:
            self._own.pop(token, None)

    def doubted(self, token: bytes) -> bool:
        """Whether the wall clock was set since the lease was last written, so that nobody knows when it ends."""
        own = self._own.get(token)
        return own is not None and not self._observing and self._wall.stepped(own.course)

    def believed(self, answer: Held, *, token: bytes, asked_at: float) -> Held | Lost:
        """The answer with no more time left than this process knows of, whatever the wall clock says.

        Time left is counted from `asked_at` on, as callers do: what the exchange took must not be taken off twice.
        """
        own, left = self._own.get(token), answer.lease.left
        if own is not None:
            left = min(left, own.until - asked_at) if own.until > self._clock.now() else 0.0
        elif self._observing:  # written elsewhere: by the two wall clocks, which may differ by the margin
            left -= self._margin / SECOND
        return with_left(answer, left) if left > 0 else Lost("expired")

    def _over(self, record: Record, *, key: str, version: Version | None, mine: bool) -> bool:
        local = self._clock.now()
        own = self._own.get(record.token) if record.token is not None else None
        if mine and own is not None:
            return local >= own.until
        since = self._first_seen(key, version, local=local)
        span = record.ttl if mine else max(record.ttl + record.lock_delay, record.hold_at_least)
        return local - since >= span / SECOND / self._rate

    def _first_seen(self, key: str, version: Version | None, *, local: float) -> float:
        """Since when this process has seen just this version, on the local clock."""
        with self._mutex:
            seen = self._seen.pop(key, None)
            if seen is None or seen[0] != version:
                seen = (version or 0, local)
            self._seen[key] = seen
            if len(self._seen) > _MOST:
                self._seen.popitem(last=False)
            return seen[1]
