"""One row of the SQLite store: its columns, and what the contract reads from it. No statement is run here."""

from __future__ import annotations

import math
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple

from leased.policy import REPLAY_WINDOW

SECOND = 1_000_000
"""The unit of all times in the file: µs."""

REPLAY = math.ceil(REPLAY_WINDOW * SECOND)
"""How long an ended token is remembered."""

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
    "boot, wall, fencing_token, renewal, acquired_at, expires_at, free_at, deadline, ttl, hold_at_least, lock_delay,"
    " late, forced"
)
# Text is read as bytes, so that a record with text that is none can still be seen and removed.
COLUMNS = f"token, CAST(owner AS BLOB), CAST(held_by AS BLOB), CAST(metadata AS BLOB), {NUMBERS}"


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return sha256(token.encode()).digest()


def microseconds(seconds: float) -> int:
    """A duration, never shortened."""
    return math.ceil(seconds * SECOND)


class Record(NamedTuple):
    """A row, as the contract speaks of it; times in µs of its boot."""

    token: bytes | None
    owner: bytes | None
    held_by: bytes
    metadata: bytes
    boot: int
    wall: int
    fencing_token: int
    renewal: int
    acquired_at: int
    expires_at: int
    free_at: int
    deadline: int
    ttl: int
    hold_at_least: int
    lock_delay: int
    late: int
    forced: int

    def held(self, now: int) -> bool:
        """Whether it is a lease that goes on."""
        return self.token is not None and now < self.expires_at

    def has(self, token: bytes) -> bool:
        """Whether its last lease was this token's, and did not end by release or force."""
        return self.token is not None and compare_digest(self.token, token)

    def over_at(self) -> int:
        """When it says nothing that anybody needs to know."""
        return self.free_at if self.token is None else max(self.free_at, self.expires_at + REPLAY)

    def readable(self) -> bool:
        """Whether every value is of the kind that belongs there."""
        values: tuple[object, ...] = self
        token = values[0]
        token_fits = token is None or (isinstance(token, bytes) and len(token) == 32)
        return token_fits and set(map(type, values[4:])) == {int}

    def since_reboot(self, wall: int) -> Record:
        """The same on the clock of the running boot, whose zero is `wall` µs after the epoch.

        A lease of an earlier boot ended when this one began, at the latest.
        """
        later = self.wall - wall
        acquired_at = self.acquired_at + later
        expires_at = min(self.expires_at + later, 0)
        free_at = self.free_at + later
        if self.token is not None:
            free_at = max(expires_at + self.lock_delay, acquired_at + self.hold_at_least)
        return self._replace(
            wall=wall,
            acquired_at=acquired_at,
            expires_at=expires_at,
            free_at=free_at,
            deadline=self.deadline + later,
        )
