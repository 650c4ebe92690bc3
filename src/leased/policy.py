"""Every limit and default with its reason, and the pure arithmetic of leases; no I/O, no clock and no chance."""

from __future__ import annotations

import math
from typing import Protocol

FOREVER: float = math.inf
"""The wait that never ends; it has to be written (`wait=leased.FOREVER`)."""

DEFAULT_TTL = 30.0
"""Seconds: long enough for a pause of the garbage collector or a slow disk, short enough that a crash hurts little."""

MAX_TTL = 90 * 86_400.0
"""Seconds: no lease may outlive what an operator still remembers having started."""

DEFAULT_MAX_HOLD = MAX_TTL
"""Seconds one acquisition may be renewed for, counted from its grant; also the ceiling of `max_hold`."""

CLOCK_MARGIN = 0.02
"""The share of a lease given up for clocks of different rates: covers 1 % on both sides."""

SLACK = 0.05
"""Seconds given up of every lease for steps of the store's clock, its granularity and timers that fire late."""

MAX_KEY_LENGTH = 255
"""Characters of a key; also of an owner."""

MAX_METADATA_SIZE = 1024
"""Bytes of the caller's metadata as JSON."""

OPERATION_TIMEOUT = 5.0
"""Seconds one call to a store may take (`connect(timeout=…)`)."""

SKEW_MARGIN = 1.0
"""Seconds by which clients' wall clocks may differ, for stores without a clock to ask (`connect(skew_margin=…)`)."""

MIN_CALL_TIMEOUT = 0.1
"""Seconds the last attempt of a wait may take beyond it: a round trip, so that a short wait can ask at all."""

CLEANUP_BUDGET = 1.0
"""Seconds spent on handing back what a caller no longer wants, whatever became of that caller."""

REPLAY_WINDOW = 60.0
"""Seconds an ended token is remembered where a late copy of its claim may arrive: longer than any time-out."""

FENCE_RETENTION = 86_400.0
"""Seconds a per-key record is kept after the key opened, for its fencing token (stores without one last number)."""

MAX_FENCING_TOKEN = 2**53 - 1
"""The largest fencing token: every JSON reader keeps it exactly."""

POLL_MIN = 0.05
"""Seconds of a waiter's first nap; doubles to `POLL_MAX`, with jitter."""

POLL_MAX = 1.0
"""Seconds of a waiter's longest nap: a lost notice or a moved clock costs at most this."""

RENEWAL_GRID = 0.05
"""Seconds: renewals due within one step of this leave together."""

RENEWAL_RETRY_MIN = 0.01
"""Seconds between two tries of a renewal that failed, at the least: a store that refuses at once is not hammered."""

RENEWAL_RETRY_MAX = 1.0
"""Seconds between two tries of a renewal that failed, at the most."""

MAX_LIST_PAGE = 1000
"""Keys that one page of `list` holds at the most."""


class Chance(Protocol):
    """A source of chance, such as `random.Random`."""

    def random(self) -> float:
        """A number from 0 up to, but not including, 1."""
        ...


def usable(left: float, *, margin: float = CLOCK_MARGIN) -> float:
    """How many of `left` seconds a holder may believe in, after the margins for clock rates and steps."""
    return left * (1.0 - margin) - SLACK


def valid_until(asked_at: float, *, waited: float, left: float, margin: float = CLOCK_MARGIN) -> float:
    """The local instant at which belief ends, counted from before the request: never after the store's expiry."""
    return asked_at + usable(waited + left, margin=margin)


def min_ttl(margin: float = CLOCK_MARGIN) -> float:
    """The shortest ttl, in seconds, that the margins do not halve: 0.105 at the defaults."""
    return math.ceil(SLACK / (0.5 - margin) * 1000.0 - 1e-9) / 1000.0


def pause(attempt: int, chance: Chance, *, retry_delay: float | None = None) -> float:
    """The nap in seconds after the given attempt (counted from 0): `POLL_MIN` doubling to `POLL_MAX`, or `retry_delay`.

    Jittered, but for the longest: the naps before it have spread the waiters, and one check a second is enough.
    """
    whole = min(POLL_MAX, POLL_MIN * 2.0 ** min(attempt, 10)) if retry_delay is None else min(POLL_MAX, retry_delay)
    return whole * (0.5 + 0.5 * chance.random()) if whole < POLL_MAX else POLL_MAX


def call_timeout(operation_timeout: float, *, wait: float, left: float) -> float:
    """Seconds one attempt of an acquire may take: half the budget for a single try (it may be repeated once), else
    what is left of the wait, but never less than a round trip."""
    if wait <= 0:
        return operation_timeout / 2
    return min(operation_timeout, max(left, MIN_CALL_TIMEOUT))


def lease_call_timeout(operation_timeout: float, *, ttl: float) -> float:
    """Seconds a call made for a lease may take: within a third of its ttl, so that it can be tried again in time."""
    return min(operation_timeout, ttl / 3.0)


def renew_at(asked_at: float, *, believed_until: float) -> float:
    """When to renew: after a third of the time that is left."""
    return asked_at + (believed_until - asked_at) / 3.0


def retry_renewal_at(now: float, *, believed_until: float, chance: Chance) -> float:
    """When to try again after a renewal without an answer: soon, jittered, and several times before belief ends."""
    nap = min(RENEWAL_RETRY_MAX, (believed_until - now) / 4.0) * (0.5 + 0.5 * chance.random())
    return now + max(nap, RENEWAL_RETRY_MIN)
