"""Values and rows in PostgreSQL's binary form, to and from what the core speaks of."""

from __future__ import annotations

from typing import Any

from leased.stores._sql_record import Record, Seen

TRUE, FALSE = b"\1", b"\0"


def whole(value: int) -> bytes:
    """A whole number of 8 bytes."""
    return value.to_bytes(8, "big", signed=True)


def flag(*, value: bool) -> bytes:
    """Yes or no."""
    return TRUE if value else FALSE


def number_at(result: Any, row: int, column: int) -> int:
    """The whole number in a row."""
    value: bytes = result.get_value(row, column)
    return int.from_bytes(value, "big", signed=True)


def seen_at(result: Any, row: int) -> Seen:
    """What a look saw: the time, the mark, and a record or nulls."""
    mark = result.get_value(row, 1)
    record = None if result.get_value(row, 4) is None else record_at(result, row)
    return Seen(record, None if mark is None else mark.decode(), number_at(result, row, 0))


def record_at(result: Any, row: int) -> Record:
    """The record in columns 2 to 17, where times count from the grant."""
    token, owner, held_by, metadata = (result.get_value(row, column) for column in range(2, 6))
    numbers = [number_at(result, row, column) for column in range(6, 15)]
    fencing_token, renewal, granted, expires_in, free_in, max_hold, ttl, hold_at_least, lock_delay = numbers
    return Record(
        token=token,
        owner=owner,
        held_by=held_by,
        metadata=metadata,
        fencing_token=fencing_token,
        renewal=renewal,
        acquired_at=granted,
        expires_at=granted + expires_in,
        free_at=granted + free_in,
        deadline=granted + max_hold,
        ttl=ttl,
        hold_at_least=hold_at_least,
        lock_delay=lock_delay,
        late=result.get_value(row, 15) == TRUE,
        forced=result.get_value(row, 16) == TRUE,
        marked_until=number_at(result, row, 17),
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
