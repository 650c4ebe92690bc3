"""The tables of the SQLite store, and what a row says as a record of the contract. No statement is run here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leased.stores._sql_record import REPLAY, Record

# Times are µs since the start of boot number `boot`; `wall` added to them gives µs since the epoch. `token` is a
# SHA-256, or NULL once the lease was released or forced. `sweep_at` is when to look whether the row can go.
_RECORDS = """CREATE TABLE record (
    namespace TEXT NOT NULL, key TEXT NOT NULL, token BLOB, owner TEXT, held_by TEXT NOT NULL, metadata TEXT NOT NULL,
    boot INTEGER NOT NULL, wall INTEGER NOT NULL, fencing_token INTEGER NOT NULL, renewal INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, free_at INTEGER NOT NULL, deadline INTEGER NOT NULL,
    ttl INTEGER NOT NULL, hold_at_least INTEGER NOT NULL, lock_delay INTEGER NOT NULL, late INTEGER NOT NULL,
    forced INTEGER NOT NULL, sweep_at INTEGER NOT NULL, PRIMARY KEY (namespace, key)
) WITHOUT ROWID"""
# Rising ids are in the order of `until`: the oldest are the first to go.
_MARKS = """CREATE TABLE mark (
    id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, token BLOB NOT NULL, reason TEXT NOT NULL,
    boot INTEGER NOT NULL, until INTEGER NOT NULL, UNIQUE (namespace, token)
)"""
# One row: the last fencing token of all, and the boot that `record.boot` and `mark.boot` count.
_STORE = "CREATE TABLE store (boot_id TEXT NOT NULL, boot INTEGER NOT NULL, fencing_token INTEGER NOT NULL)"
SCHEMA = (_STORE, _RECORDS, "CREATE INDEX record_sweep ON record (boot, sweep_at)", _MARKS)
SCHEMA_VERSION = 1

NUMBERS = (
    "fencing_token, renewal, acquired_at, expires_at, free_at, deadline, ttl, hold_at_least, lock_delay, late, forced"
)
"""What a record has after its texts, in the order of `Record`, but for `marked_until`: marks are always looked for."""

# Text is read as bytes, so that a record with text that is none can still be seen and removed.
COLUMNS = f"token, CAST(owner AS BLOB), CAST(held_by AS BLOB), CAST(metadata AS BLOB), {NUMBERS}, 0, boot, wall"
"""What `record_in` reads."""


def record_in(columns: Sequence[Any], *, boot: int, wall: int) -> Record | None:
    """The record in `COLUMNS`, on the clock of boot number `boot`, whose zero is `wall` µs after the epoch.

    `None` if a value is not of the kind that belongs there.
    """
    token = columns[0]
    if token is not None and not (isinstance(token, bytes) and len(token) == 32):
        return None
    if set(map(type, columns[4:])) != {int}:
        return None
    record = Record._make(columns[:16])
    return record if columns[16] == boot else _since_reboot(record, columns[17] - wall)


def over_at(record: Record) -> int:
    """When the record says nothing that anybody needs to know."""
    return record.free_at if record.token is None else max(record.free_at, record.expires_at + REPLAY)


def _since_reboot(record: Record, later: int) -> Record:
    """A record of an earlier boot, whose clock began `later` µs after that of the running one.

    A lease of an earlier boot ended when this one began, at the latest.
    """
    acquired_at = record.acquired_at + later
    expires_at = min(record.expires_at + later, 0)
    if record.token is not None:
        free_at = max(expires_at + record.lock_delay, acquired_at + record.hold_at_least)
    else:
        free_at = min(record.free_at + later, max(record.hold_at_least, record.lock_delay))
    return record._replace(
        acquired_at=acquired_at, expires_at=expires_at, free_at=free_at, deadline=record.deadline + later
    )
