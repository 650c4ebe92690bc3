"""Values and rows in PostgreSQL's binary form, to and from what the core speaks of."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from leased.model import Terms
from leased.stores._sql_record import SECOND, Record, Seen, written_terms

TRUE, FALSE, NULL = b"\1", b"\0", b"\xff\xff\xff\xff"


def whole(value: int) -> bytes:
    """A whole number of 8 bytes."""
    return value.to_bytes(8, "big", signed=True)


def number_in(value: bytes) -> int:
    """The whole number that these 8 bytes are."""
    return int.from_bytes(value, "big", signed=True)


def flag(*, value: bool) -> bytes:
    """Yes or no."""
    return TRUE if value else FALSE


class Written(NamedTuple):
    """What a claim writes of its terms, from `held_by` to `lock_delay`, and in seconds its ttl and its length."""

    values: tuple[bytes, ...]
    items: tuple[bytes, ...]
    ttl: float
    length: float


@lru_cache(maxsize=256)  # as `written_terms`
def binary_terms(seconds: float, terms: Terms) -> Written:
    """The terms of a claim for so many seconds."""
    held_by, metadata, *numbers = written_terms(seconds, terms)
    length, _, _, ttl, *_ = numbers
    values = (held_by, metadata, *map(whole, numbers))
    return Written(values, tuple(map(item, values)), ttl / SECOND, length / SECOND)


def item(value: bytes | None) -> bytes:
    """A value as an item of an array."""
    return NULL if value is None else len(value).to_bytes(4, "big") + value


def array(items: Sequence[bytes], *, kind: int) -> bytes:
    """An array of items of the type with this number."""
    # Dimensions, whether there are nulls, type, length, first index, items.
    return struct.pack(">iiIii", 1, int(NULL in items), kind, len(items), 1) + b"".join(items)


class Row(NamedTuple):
    """One row of a result."""

    result: Any
    place: int = 0

    def value(self, column: int) -> bytes | None:
        """The bytes there; `None` for a null."""
        value: bytes | None = self.result.get_value(self.place, column)
        return value

    def number(self, column: int) -> int:
        """The whole number there."""
        return number_in(self.result.get_value(self.place, column))

    def text(self, column: int) -> str | None:
        """The text there; `None` for a null."""
        value = self.value(column)
        return None if value is None else value.decode(errors="replace")

    def seen(self) -> Seen:
        """What a look saw: the time, the mark, and a record or nulls."""
        record = None if self.value(4) is None else self.record()
        return Seen(record, self.text(1), self.number(0))

    def record(self) -> Record:
        """The record in columns 2 to 17, where times count from the grant."""
        numbers = [self.number(column) for column in range(6, 15)]
        fencing_token, renewal, granted, expires_in, free_in, max_hold, ttl, hold_at_least, lock_delay = numbers
        return Record(
            token=self.value(2),
            owner=self.value(3),
            held_by=self.value(4) or b"",
            metadata=self.value(5) or b"",
            fencing_token=fencing_token,
            renewal=renewal,
            acquired_at=granted,
            expires_at=granted + expires_in,
            free_at=granted + free_in,
            deadline=granted + max_hold,
            ttl=ttl,
            hold_at_least=hold_at_least,
            lock_delay=lock_delay,
            late=self.value(15) == TRUE,
            forced=self.value(16) == TRUE,
            marked_until=self.number(17),
        )


def values_of(record: Record) -> tuple[bytes | None, ...]:
    """The record as the statement that writes it takes it."""
    granted = record.acquired_at
    numbers = (
        record.fencing_token, record.renewal, granted, record.expires_at - granted, record.free_at - granted,
        record.deadline - granted, record.ttl, record.hold_at_least, record.lock_delay,
    )  # fmt: skip
    return (
        record.token, record.owner, record.held_by, record.metadata, *map(whole, numbers), flag(value=record.late),
        flag(value=record.forced), whole(record.marked_until),
    )  # fmt: skip
