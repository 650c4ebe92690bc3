"""What a database must offer to be a store: one connection that speaks records; the dialects are written to this."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from leased.clocks import now
from leased.errors import StoreUnavailable
from leased.model import Abandon, Acquire, Claim, Held, Look, Operation, Release, Renew
from leased.store import Outcome
from leased.stores import _sql_rules as rules
from leased.stores._sql_record import Record, Seen
from leased.stores._sql_rules import Effect


class Unsettled:
    """Stands for an operation that a statement could not settle: it has to be looked at."""


UNSETTLED = Unsettled()


class RolledBack(Exception):
    """The server undid what was asked because of others (a deadlock, a conflict): asking again can succeed."""

    def __init__(self, error: StoreUnavailable) -> None:
        """`error` is what the caller gets when there is no time left to ask again."""
        super().__init__(error.message)
        self.error = error


class NoTables(Exception):
    """The tables are not there (yet); nothing was changed."""


class Call(NamedTuple):
    """What bounds one call, and the µs to be added to the server's clock: 0 except in tests.

    `patient_until` bounds what it waits for locks of others: a call that others wait for has less patience than time.
    """

    until: float
    ahead: int = 0
    patient_until: float = math.inf

    def left(self) -> float:
        """Seconds that remain, at least 0."""
        return max(0.0, self.until - now())

    def patience(self) -> float:
        """Seconds that remain for waiting for others, at least 0."""
        return max(0.0, min(self.until, self.patient_until) - now())


def key_of(operation: Operation) -> str:
    """The key that an operation is about."""
    return operation.claim.key if isinstance(operation, Acquire) else operation.key


def token_of(operation: Operation) -> str:
    """The token that asks."""
    return operation.claim.token if isinstance(operation, Acquire) else operation.token


def settled(operation: Operation, seen: rules.View) -> tuple[Outcome, Effect | None]:
    """What the rules say of one operation, and what is to be written for it."""
    match operation:
        case Acquire(claim):
            return rules.acquire(seen, claim=claim)
        case Renew(key, token, ttl, number):
            return rules.renew(seen, key=key, token=token, ttl=ttl, number=number)
        case Release(_, token, late):
            return rules.release(seen, token=token, late=late)
        case Abandon(_, token, heard):
            return None, rules.abandon(seen, token=token, heard=heard)
        case Look(key, token):
            return rules.look(seen, key=key, token=token), None


class Session(Protocol):
    """One connection, used by one call at a time.

    Every method ends within its call's time. It raises `StoreUnavailable` (with what is known of the effect),
    `StoreNotUsable`, `RolledBack` or `NoTables`, and after an error `usable` says whether to go on with it. All times
    are read on the server after any wait for a lock.

    `grant`, `extend` and `free` are the usual cases in one statement; where one does not apply they change nothing and
    answer `None`. Between `lock` and `finish` a transaction is open: nobody else changes that key.
    """

    def usable(self) -> bool:
        """See `leased.stores._pool`. False also within a transaction or after a call that was cut off."""
        ...

    def idle(self) -> bool:
        """Whether it may be given back: as `usable`, but what the other side has done meanwhile is not looked at."""
        ...

    def close(self) -> None:
        """See `leased.stores._pool`."""
        ...

    async def grant(self, claim: Claim, *, call: Call) -> Held | None:
        """Grant the key if it is open and nothing has to be marked or looked up for that."""
        ...

    async def extend(self, key: str, token: str, *, call: Call, ttl: float, number: int) -> Held | None:
        """Renew if the token holds the key and the number is above the record's."""
        ...

    async def free(self, key: str, token: str, *, call: Call) -> bool | None:
        """Release if the token holds the key and need not be marked; tell those who watch."""
        ...

    async def look(self, key: str, token: str | None, *, call: Call) -> Seen:
        """What there is of a key, and of a token. It changes and locks nothing."""
        ...

    async def lock(self, key: str, token: str | None, *, call: Call) -> Seen:
        """Begin a transaction, lock the key, and look. A key without a record gets an empty one, which stays if the
        transaction is committed; a row that vanishes meanwhile is `RolledBack`."""
        ...

    async def finish(self, key: str, effect: Effect | None, *, call: Call) -> None:
        """Write the effect, tell those who watch if the key was freed, and commit; `None` rolls back."""
        ...

    async def batch(self, operations: Sequence[Operation], *, call: Call) -> list[Outcome | Unsettled]:
        """Settle what statements for all of them can settle, in one or two round trips; each key is there once.

        Rows that somebody else has locked are left unsettled. Only for one that somebody is just writing for the first
        time it may wait, as briefly as the database can. An error is raised: then nothing is known of any of them but
        what the error says.
        """
        ...

    async def page(self, prefix: str, *, call: Call, after: str, limit: int) -> tuple[list[tuple[str, Record]], int]:
        """At most `limit` records that are not open, by key in byte order, and the server's clock."""
        ...

    async def expect(self, key: str, *, call: Call) -> None:
        """See that releases of the key are told, for some time from now."""
        ...

    async def sweep(self, most: int, *, call: Call) -> None:
        """Delete at most so many records, and marks, that are over; passes by what others have locked."""
        ...

    async def create(self, call: Call) -> None:
        """Make the tables; quietly if somebody else is quicker. `StoreNotUsable` without the right to."""
        ...
