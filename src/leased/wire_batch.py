"""What the lock service and its clients say of several things at once: batches of operations, pages of keys.

As `leased.wire`, it reads no bytes and opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leased.errors import LeasedError
from leased.model import Operation, Status
from leased.store import Outcome
from leased.wire import (
    Body,
    Unreadable,
    name_of,
    read_outcome,
    read_status,
    write_operation,
    write_outcome,
    write_status,
)
from leased.wire_errors import read_error, write_error

MOST_OPERATIONS = 512
"""Operations in one batch, at the most; its body has a limit of its own."""


def write_batch(operations: Sequence[Operation]) -> Body:
    """The body of a request for several operations, each with its name."""
    return {"operations": [write_member(operation) for operation in operations]}


def write_member(operation: Operation) -> Body:
    """One operation as a member of a batch."""
    return {"operation": name_of(operation), **write_operation(operation)}


def write_outcomes(operations: Sequence[Operation], outcomes: Sequence[Outcome], *, wall: float) -> Body:
    """What the service answers to a batch: an outcome, or the error in its place, for each operation in their order."""
    return {
        "outcomes": [
            write_error(outcome, request_id=None)
            if isinstance(outcome, LeasedError)
            else write_outcome(operation, outcome, wall=wall)
            for operation, outcome in zip(operations, outcomes, strict=True)
        ]
    }


def read_outcomes(
    operations: Sequence[Operation], body: Body, *, read: Callable[[Operation, Body], Outcome] = read_outcome
) -> list[Outcome]:
    """The same, read back; `Unreadable` unless there is one for each operation. `read` reads one of them."""
    found = _objects(body, "outcomes")
    if len(found) != len(operations):
        raise Unreadable(f"{len(operations)} outcomes are expected, not {len(found)}")
    return [
        read_error(outcome, status=200) if "code" in outcome else read(operation, outcome)
        for operation, outcome in zip(operations, found, strict=True)
    ]


def write_page(statuses: Sequence[Status]) -> Body:
    """A page of held and closed keys; the next one is asked for with the last key as `after`."""
    return {"locks": [write_status(status) for status in statuses]}


def read_page(body: Body) -> list[Status]:
    """The same, read back; `Unreadable` for what it cannot have meant."""
    return [read_status(status) for status in _objects(body, "locks")]


def _objects(body: Body, name: str) -> list[dict[str, Any]]:
    found = body.get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise Unreadable(f"{name} is a list of objects")
    return found
