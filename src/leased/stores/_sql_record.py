"""What a database keeps for one key, and what the contract reads from it. No statement is run here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple

from leased.model import Claim, Held, Lease, Status, Terms, read_metadata
from leased.policy import FENCE_RETENTION, REPLAY_WINDOW

SECOND = 1_000_000
"""The unit of all times in the tables: µs; of a server's clock since the epoch."""

REPLAY = math.ceil(REPLAY_WINDOW * SECOND)
"""How long an ended token is remembered."""

RETENTION = math.ceil(FENCE_RETENTION * SECOND)
"""How long the record of an open key is kept, for its fencing token."""


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return sha256(token.encode()).digest()


def microseconds(seconds: float) -> int:
    """A duration, never shortened."""
    return math.ceil(seconds * SECOND)


class Record(NamedTuple):
    """A row, as the contract speaks of it. `token` is a SHA-256, or `None` once the lease was released or forced.

    `marked_until` is when the last mark of a token that claimed this key ends: until then a grant has to look for one.
    `renewal` below 0: not renewed yet, and how often claims were told that it is held.
    """

    token: bytes | None
    owner: bytes | None
    held_by: bytes
    metadata: bytes
    fencing_token: int
    renewal: int
    acquired_at: int
    expires_at: int
    free_at: int
    deadline: int
    ttl: int
    hold_at_least: int
    lock_delay: int
    late: bool
    forced: bool
    marked_until: int

    def held(self, now: int) -> bool:
        """Whether it is a lease that goes on."""
        return self.token is not None and now < self.expires_at

    def closed(self, now: int) -> bool:
        """Whether it is no lease, and the key has still to open.

        One that was ended stays closed for no longer than its terms can ask for: what lies further ahead was written
        before the server's clock was set back.
        """
        if self.held(now) or now >= self.free_at:
            return False
        return self.token is not None or self.free_at - now <= max(self.hold_at_least, self.lock_delay)

    def has(self, token: bytes) -> bool:
        """Whether its last lease was this token's, and did not end by release or force."""
        return self.token is not None and compare_digest(self.token, token)

    def ended(self, free_at: int) -> Record:
        """The same once its lease was ended; the key is closed until `free_at`."""
        # Without names, for every release makes one, and `_replace` would take the time of a statement of SQLite.
        return Record(
            None, *self[1:8], free_at, *self[9:13], False, False, self.marked_until  # noqa: FBT003
        )  # fmt: skip

    def told_again(self, *, late: bool) -> Record:
        """The same once a claim was told again that it is held."""
        return self._replace(renewal=self.renewal - (self.renewal < 0), late=self.late or late)

    def answer(self, key: str, token: str, *, now: int) -> Held:
        """That this token holds the key."""
        owner = None if self.owner is None else self.owner.decode(errors="replace")
        left = (self.expires_at - now) / SECOND
        return Held(Lease(key, token, self.fencing_token, self.ttl / SECOND, owner, left, 0.0, max(self.renewal, 0)))

    def status(self, key: str, *, now: int, zero: int = 0) -> Status:
        """What anyone may see of the key; the clock of the record began `zero` after the epoch."""
        held = self.held(now)
        if not held and not self.closed(now):
            return Status(key)
        free_in, free_at = (self.free_at - now) / SECOND, (self.free_at + zero) / SECOND
        if not held:
            return Status(key, "closed", free_in=free_in, free_at=free_at, fencing_token=self.fencing_token)
        return Status(
            key=key,
            state="held",
            owner=None if self.owner is None else self.owner.decode(errors="replace"),
            held_by=self.held_by.decode(errors="replace"),
            expires_in=(self.expires_at - now) / SECOND,
            expires_at=(self.expires_at + zero) / SECOND,
            free_in=free_in,
            free_at=free_at,
            fencing_token=self.fencing_token,
            acquired_at=(self.acquired_at + zero) / SECOND,
            metadata=read_metadata(self.metadata.decode(errors="replace")),
        )


NEVER_GRANTED = Record(
    token=None, owner=None, held_by=b"", metadata=b"{}", fencing_token=0, renewal=0, acquired_at=0, expires_at=0,
    free_at=0, deadline=0, ttl=0, hold_at_least=0, lock_delay=0, late=False, forced=False, marked_until=0,
)  # fmt: skip
"""What stands for a key that nobody had, while one of its tokens is marked or somebody watches it."""


@dataclass(slots=True)
class Seen:
    """What was read at one instant: the record of a key (`None`: there is none), why the token that asks has ended
    (`None`: it is not marked), and the server's clock, read after any wait for a lock. The rest is as a server has it:
    its clock counts from the epoch, and each key has fencing tokens of its own."""

    record: Record | None
    mark: str | None
    now: int
    zero: int = 0
    last: int | None = None

    def ended(self, token: bytes) -> str | None:
        """Why the token that asks, this one, has ended."""
        return self.mark


class Asked(NamedTuple):
    """What a claim would write, in the units of the tables; the lengths in µs."""

    token: bytes
    owner: bytes | None
    held_by: bytes
    metadata: bytes
    length: int
    """From the grant to the expiry: the ttl, cut at `max_hold`."""
    closed: int
    """From the grant to the instant at which the key opens."""
    max_hold: int
    ttl: int
    hold_at_least: int
    lock_delay: int
    late: bool


def asked(claim: Claim) -> Asked:
    """A claim as it would be written."""
    owner = None if claim.owner is None else claim.owner.encode()
    return Asked(digest_of(claim.token), owner, *written_terms(claim.ttl, claim.terms), claim.late)


@lru_cache(maxsize=256)  # most claims of a program have the terms of few recipes
def written_terms(seconds: float, terms: Terms) -> tuple[bytes, bytes, int, int, int, int, int, int]:
    """What a claim for so many seconds writes of its terms: the fields of `Asked` from `held_by` to `lock_delay`."""
    ttl, max_hold = microseconds(seconds), microseconds(terms.max_hold)
    hold_at_least, lock_delay = microseconds(terms.hold_at_least), microseconds(terms.lock_delay)
    length = min(ttl, max_hold)
    closed = max(length + lock_delay, hold_at_least)
    held_by = terms.held_by.encode(errors="replace")
    return held_by, terms.metadata.encode(), length, closed, max_hold, ttl, hold_at_least, lock_delay
