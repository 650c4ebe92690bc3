"""Statements for many keys at once, and what they answer. Rows that others have locked are left out, not waited for."""

# ruff: noqa: S608 - what is written into a text is the name of a table or column

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from leased.model import Acquire, Claim, Held, Lease, Look, Operation, Release, Released, Renew
from leased.store import Outcome
from leased.stores._postgres_rows import Row, flag
from leased.stores._postgres_statements import (
    BYTES,
    COLUMNS,
    FLAG,
    NUMBER,
    SEEN,
    TEXT,
    Statement,
    Statements,
    statement,
)
from leased.stores._sql_record import SECOND, asked, digest_of, microseconds
from leased.stores._sql_session import UNSETTLED, Unsettled, key_of, settled, token_of

_MANY_BYTES, _MANY_NUMBERS, _MANY_FLAGS = 1001, 1016, 1000
_NO_WAIT = b"100ms"
"""How long for a key that somebody is just writing for the first time: the rest of one commit."""


@dataclass(frozen=True)
class ForMany:
    """The statements of `Statements`, each for arrays of keys in place of one, in the order of the keys' bytes.

    What was locked is written by its place in the table, which saves another search for its key. A row that somebody
    has changed between the beginning of the statement and its lock has moved, and is left.
    """

    say: Statements

    @cached_property
    def grant(self) -> Statement:
        """Grant those that are open and need no look. $1 is the namespace, $15 the longest wait."""
        record, now = self.say.record, self.say.now
        names = "key, token, owner, held_by, metadata, length, closed, max_hold, ttl, hold_at_least, lock_delay, late"
        arrays = ", ".join(f"${place}" for place in range(2, 14))
        of_key = "r.namespace = $1 AND r.key = a.key"
        is_open = (
            f"r.acquired_at + r.free_in <= {now} AND r.marked_until <= {now} AND NOT r.late"
            " AND r.token IS DISTINCT FROM"
        )
        return statement(
            f"""
            WITH a AS MATERIALIZED (SELECT * FROM unnest({arrays}) AS a({names})),
            there AS MATERIALIZED (
                SELECT a.key, a.token FROM a CROSS JOIN LATERAL (SELECT FROM {record} AS r WHERE {of_key} OFFSET 0) AS r
            ),
            mine AS MATERIALIZED (
                SELECT a.key FROM there AS a CROSS JOIN LATERAL (
                    SELECT FROM {record} AS r WHERE {of_key} AND {is_open} a.token FOR UPDATE SKIP LOCKED
                ) AS r
            )
            INSERT INTO {record} AS r ({", ".join(COLUMNS)})
            SELECT $1, a.key, a.token, a.owner, a.held_by, a.metadata, {now}, 0, {now}, a.length, a.closed, a.max_hold,
                a.ttl, a.hold_at_least, a.lock_delay, a.late, false, 0, 0
            FROM set_config('lock_timeout', $14, true), a
            WHERE a.key IN (SELECT key FROM mine) OR a.key NOT IN (SELECT key FROM there)
            ORDER BY a.key
            ON CONFLICT (namespace, key) DO UPDATE SET {self.say.granted}
            WHERE {is_open} excluded.token
            RETURNING r.key, r.fencing_token, r.acquired_at + r.expires_in, {now}
            """,
            BYTES,
            *(_MANY_BYTES,) * 5,
            *(_MANY_NUMBERS,) * 6,
            _MANY_FLAGS,
            TEXT,
        )

    @cached_property
    def extend(self) -> Statement:
        """Renew the leases that go on."""
        record, now = self.say.record, self.say.now
        return statement(
            f"""
            WITH mine AS MATERIALIZED (
                SELECT r.ctid AS place, a.number, a.ttl
                FROM unnest($2, $3, $4, $5) AS a(key, token, number, ttl) CROSS JOIN LATERAL (
                    SELECT r.ctid FROM {record} AS r WHERE r.namespace = $1 AND r.key = a.key AND r.token = a.token
                        AND r.renewal < a.number AND {now} < r.acquired_at + r.expires_in FOR UPDATE SKIP LOCKED
                ) AS r
            )
            UPDATE {record} AS r SET renewal = m.number, ttl = m.ttl, (expires_in, free_in) = (
                SELECT e.expires_in, greatest(e.expires_in + r.lock_delay, r.hold_at_least)
                FROM (SELECT least({now} - r.acquired_at + m.ttl, r.max_hold) AS expires_in OFFSET 0) AS e
            )
            FROM mine AS m WHERE r.ctid = m.place
            RETURNING r.key, r.fencing_token, r.acquired_at + r.expires_in, {now}, r.owner
            """,
            BYTES,
            *(_MANY_BYTES,) * 2,
            *(_MANY_NUMBERS,) * 2,
        )

    @cached_property
    def free(self) -> Statement:
        """Release the leases that go on and whose tokens need no mark, and tell whoever listens."""
        record, now = self.say.record, self.say.now
        return statement(
            f"""
            WITH mine AS MATERIALIZED (
                SELECT r.ctid AS place FROM unnest($2, $3) AS a(key, token) CROSS JOIN LATERAL (
                    SELECT r.ctid FROM {record} AS r WHERE r.namespace = $1 AND r.key = a.key AND r.token = a.token
                        AND NOT r.late AND {now} < r.acquired_at + r.expires_in FOR UPDATE SKIP LOCKED
                ) AS r
            )
            UPDATE {record} AS r SET token = NULL, free_in = greatest({now} - r.acquired_at, r.hold_at_least)
            FROM mine AS m WHERE r.ctid = m.place
            RETURNING r.key, CASE WHEN r.watched_until > {now} THEN {self.say.told} END
            """,
            BYTES,
            *(_MANY_BYTES,) * 2,
        )

    @cached_property
    def look(self) -> Statement:
        """The records of keys, the marks of tokens, and the time."""
        columns = ", ".join(f"r.{column}" for column in SEEN)
        return statement(
            f"""
            SELECT {self.say.then}, (
                SELECT reason FROM {self.say.mark} WHERE namespace = $1 AND token = a.token AND until > {self.say.then}
            ), {columns}, a.key
            FROM unnest($2, $3) AS a(key, token)
            LEFT JOIN LATERAL (SELECT * FROM {self.say.record} WHERE namespace = $1 AND key = a.key OFFSET 0) AS r
                ON true
            """,
            BYTES,
            *(_MANY_BYTES,) * 2,
            writes=False,
        )


class Batch:
    """Operations on different keys: what to send for them, and their outcomes from what comes back."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.outcomes: list[Outcome | Unsettled] = [UNSETTLED] * len(operations)
        self._operations = operations
        self._claims: dict[bytes, int] = {}
        self._renewals: dict[bytes, int] = {}
        self._releases: dict[bytes, int] = {}
        for place, operation in enumerate(operations):
            match operation:
                case Acquire(claim):
                    self._claims[claim.key.encode()] = place
                case Renew(key):
                    self._renewals[key.encode()] = place
                case Release(key, _, late) if not late:
                    self._releases[key.encode()] = place
                case _:
                    pass  # a look waits for the second statement, an abandon for its turn

    def writes(self, say: ForMany, namespace: bytes) -> list[tuple[Statement, Sequence[bytes]]]:
        """What settles the usual cases, to be sent as one transaction."""
        sent: list[tuple[Statement, Sequence[bytes]]] = []
        if self._releases:
            releases: Any = self._in_order(self._releases)
            tokens = [digest_of(release.token) for _, release in releases]
            keys = _many_bytes(key for key, _ in releases)
            sent.append((say.free, (namespace, keys, _many_bytes(tokens))))
        if self._renewals:
            renewals: Any = self._in_order(self._renewals)
            keys = _many_bytes(key for key, _ in renewals)
            tokens = [digest_of(renewal.token) for _, renewal in renewals]
            numbers = _many_numbers([renewal.number for _, renewal in renewals])
            lengths = _many_numbers([microseconds(renewal.ttl) for _, renewal in renewals])
            sent.append((say.extend, (namespace, keys, _many_bytes(tokens), numbers, lengths)))
        if self._claims:
            claims: Any = self._in_order(self._claims)
            columns = list(zip(*(asked(acquire.claim) for _, acquire in claims), strict=True))
            texts = (_many_bytes(key for key, _ in claims), *map(_many_bytes, columns[:4]))
            numbers_of = map(_many_numbers, columns[4:10])
            sent.append((say.grant, (namespace, *texts, *numbers_of, _many_flags(columns[10]), _NO_WAIT)))
        return sent

    def read_writes(self, results: Sequence[Any]) -> int | None:
        """Take note of what those statements settled, and tell the server's clock if one of them told it."""
        answers = iter(results)
        if self._releases:
            for row in _rows(next(answers)):
                self.outcomes[self._releases[row.value(0) or b""]] = Released()
        if self._renewals:
            for row in _rows(next(answers)):
                place = self._renewals[row.value(0) or b""]
                asked_for: Any = self._operations[place]
                ttl = microseconds(asked_for.ttl) / SECOND
                lease = (asked_for.key, asked_for.token, row.number(1), ttl, row.text(4), _left(row))
                self.outcomes[place] = Held(Lease(*lease, 0.0, asked_for.number))
        if self._claims:
            for row in _rows(next(answers)):
                place = self._claims[row.value(0) or b""]
                acquire: Any = self._operations[place]
                claim: Claim = acquire.claim
                ttl = microseconds(claim.ttl) / SECOND
                self.outcomes[place] = Held(Lease(claim.key, claim.token, row.number(1), ttl, claim.owner, _left(row)))
        told = (result for result in results if result.ntuples and result.nfields > 3)
        return next((Row(result).number(3) for result in told), None)

    def looks(self, say: ForMany, namespace: bytes) -> tuple[Statement, Sequence[bytes]] | None:
        """What shows why the others were not settled, or `None` if all are."""
        asked_for = [
            (key_of(operation).encode(), digest_of(token_of(operation)))
            for operation, outcome in zip(self._operations, self.outcomes, strict=True)
            if isinstance(outcome, Unsettled) and isinstance(operation, (Acquire, Renew, Release, Look))
        ]
        if not asked_for:
            return None
        keys, tokens = zip(*asked_for, strict=True)
        return say.look, (namespace, _many_bytes(keys), _many_bytes(tokens))

    def read_looks(self, result: Any) -> None:
        """Settle those by whom nothing is to be written."""
        places = {key_of(operation).encode(): place for place, operation in enumerate(self._operations)}
        for row in _rows(result):
            place = places[row.value(len(SEEN) + 2) or b""]
            outcome, effect = settled(self._operations[place], row.seen())
            if effect is None:
                self.outcomes[place] = outcome

    def _in_order(self, places: dict[bytes, int]) -> list[tuple[bytes, Operation]]:
        """By the bytes of their keys: whoever writes several rows writes them in this order."""
        return [(key, self._operations[places[key]]) for key in sorted(places)]


def _left(row: Row) -> float:
    return (row.number(2) - row.number(3)) / SECOND


def _rows(result: Any) -> Iterable[Row]:
    return (Row(result, place) for place in range(result.ntuples))


# Arrays as PostgreSQL takes them in binary: dimensions, whether there are nulls, type, length, first index, items.


def _many_bytes(values: Iterable[bytes | None]) -> bytes:
    items = list(values)
    parts = [b"\xff\xff\xff\xff" if item is None else len(item).to_bytes(4, "big") + item for item in items]
    return struct.pack(">iiIii", 1, int(None in items), BYTES, len(items), 1) + b"".join(parts)


def _many_numbers(values: Sequence[int]) -> bytes:
    items = chain.from_iterable((8, value) for value in values)
    return struct.pack(f">iiIii{'iq' * len(values)}", 1, 0, NUMBER, len(values), 1, *items)


def _many_flags(values: Sequence[bool]) -> bytes:
    items = b"".join(b"\0\0\0\1" + flag(value=value) for value in values)
    return struct.pack(">iiIii", 1, 0, FLAG, len(values), 1) + items
