"""Records that stay for long: at rest as plain values, and looked at in turn. It knows no rule of a lease.

Python's collector stops looking at a plain tuple of plain values. A million records that it has to look at are a pause
of half a second, again and again while they grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from operator import attrgetter, length_hint
from sys import intern
from typing import Any, Generic, TypeVar

from leased.model import Terms

Settled = tuple[Any, ...]
"""A record at rest; its first value is the instant at which its key opens."""

_R = TypeVar("_R")


class Rest(Generic[_R]):
    """Lays records of one class (with slots, `free_at` and `terms` among them) to rest, and wakes them again."""

    def __init__(self, kind: type[_R], slots: tuple[str, ...]) -> None:
        self._kind = kind
        self._names = tuple(name for name in slots if name not in ("free_at", "terms"))
        terms = ("terms.metadata", "terms.max_hold", "terms.hold_at_least", "terms.lock_delay")
        self._values: Callable[[_R], Settled] = attrgetter("free_at", *self._names, *terms)
        self._held_by: Callable[[_R], str] = attrgetter("terms.held_by")

    def settled(self, record: _R) -> Settled:
        """The values of a record, and those of its terms. Thousands of leases are held by one process, and share its
        name."""
        return *self._values(record), intern(self._held_by(record))

    def awake(self, settled: Settled) -> _R:
        """The record of these values."""
        record: Any = self._kind.__new__(self._kind)
        metadata, max_hold, hold_at_least, lock_delay, held_by = settled[1 + len(self._names) :]
        record.terms = Terms(max_hold, hold_at_least, lock_delay, held_by, metadata)
        record.free_at = settled[0]
        deque(map(setattr, repeat(record), self._names, settled[1:]), maxlen=0)  # a page of a list wakes a thousand
        made: _R = record
        return made


class Round:
    """Goes through the keys of a mapping, some at a time, and begins anew behind the last. What came meanwhile has its
    turn in the next round; what is gone has none.
    """

    def __init__(self, records: Mapping[str, object]) -> None:
        self._records = records
        self._left: Iterator[str] = iter(())

    def some(self, count: int) -> Iterator[str]:
        """At most so many keys. Each may be removed when it comes."""
        if length_hint(self._left) > 2 * len(self._records) + count:  # most of those that were to come are gone
            self._left = iter(())
        for _ in range(min(count, len(self._records))):
            key = next(self._left, None)
            if key is None:
                self._left = iter(tuple(self._records))
                key = next(self._left, None)
            if key is not None and key in self._records:
                yield key
