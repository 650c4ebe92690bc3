"""Statements for many keys at once, and what they answer. Rows that others have locked are left out, not waited for."""

# ruff: noqa: S608 - what is written into a text is the name of a table or column

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from leased.model import Acquire, Claim, Held, Lease, Look, Operation, Release, Released, Renew
from leased.store import Outcome
from leased.stores._postgres_rows import FALSE, NULL, TRUE, Row, array, binary_terms, item, whole
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
from leased.stores._sql_record import SECOND, digest_of, microseconds
from leased.stores._sql_session import UNSETTLED, Unsettled, key_of, settled, token_of

_MANY_BYTES, _MANY_NUMBERS, _MANY_FLAGS = 1001, 1016, 1000
_CLAIM_TYPES = (BYTES, *(_MANY_BYTES,) * 5, *(_MANY_NUMBERS,) * 6, _MANY_FLAGS, TEXT)
_CLAIM_COLUMNS = "key, token, owner, held_by, metadata, length, closed, max_hold, ttl, hold_at_least, lock_delay, late"
_CLAIMS = f"unnest({', '.join(f'${place}' for place in range(2, 14))}) AS a({_CLAIM_COLUMNS})"
_KINDS = (*(BYTES,) * 5, *(NUMBER,) * 6, FLAG)
_LATE, _NOT_LATE = item(TRUE), item(FALSE)
_NO_WAIT = b"100ms"
"""How long for a key that somebody is just writing for the first time: the rest of one commit."""


@dataclass(frozen=True)
class ForMany:
    """The statements of `Statements`, each for arrays of keys in place of one, in the order of the keys' bytes.

    What was locked is written by its place in the table, which saves another search for its key. A row that somebody
    has changed between the beginning of the statement and its lock has moved, and is left.
    """

    say: Statements

    def _claimed(self, source: str) -> str:
        """Inserts rows for what `source` says of the claims."""
        return f"""
            INSERT INTO {self.say.record} AS r ({", ".join(COLUMNS)})
            SELECT $1, a.key, a.token, a.owner, a.held_by, a.metadata, {self.say.now}, -1, {self.say.now}, a.length,
                a.closed, a.max_hold, a.ttl, a.hold_at_least, a.lock_delay, a.late, false, 0, 0
            FROM set_config('lock_timeout', $14, true), {source}
        """

    @cached_property
    def grant_first(self) -> Statement:
        """Grant those that have no row. $1 is the namespace, $14 the longest wait."""
        return statement(
            f"{self._claimed(_CLAIMS)} ON CONFLICT (namespace, key) DO NOTHING RETURNING r.key, r.fencing_token",
            *_CLAIM_TYPES,
        )

    @cached_property
    def grant(self) -> Statement:
        """Grant those that are open and need no look, with the same parameters."""
        record, now = self.say.record, self.say.now
        of_key = "r.namespace = $1 AND r.key = a.key"
        is_open = (
            f"r.acquired_at + r.free_in <= {now} AND r.marked_until <= {now} AND NOT r.late"
            " AND r.token IS DISTINCT FROM"
        )
        return statement(
            f"""
            WITH a AS MATERIALIZED (SELECT * FROM {_CLAIMS}),
            there AS MATERIALIZED (
                SELECT a.key, a.token FROM a CROSS JOIN LATERAL (SELECT FROM {record} AS r WHERE {of_key} OFFSET 0) AS r
            ),
            mine AS MATERIALIZED (
                SELECT a.key FROM there AS a CROSS JOIN LATERAL (
                    SELECT FROM {record} AS r WHERE {of_key} AND {is_open} a.token FOR UPDATE SKIP LOCKED
                ) AS r
            )
            {self._claimed("a")}
            WHERE a.key IN (SELECT key FROM mine) OR a.key NOT IN (SELECT key FROM there)
            ORDER BY a.key
            ON CONFLICT (namespace, key) DO UPDATE SET {self.say.granted}
            WHERE {is_open} excluded.token
            RETURNING r.key, r.fencing_token, r.acquired_at + r.expires_in, {now}
            """,
            *_CLAIM_TYPES,
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
                        AND greatest(r.renewal, 0) < a.number AND {now} < r.acquired_at + r.expires_in
                    FOR UPDATE SKIP LOCKED
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

    def __init__(self, operations: Sequence[Operation], *, is_new: Callable[[str], bool]) -> None:
        """`is_new`: whether a key that is claimed may have no row yet."""
        self.outcomes: list[Outcome | Unsettled] = [UNSETTLED] * len(operations)
        self._operations = operations
        self._first: dict[bytes, int] = {}
        self._claims: dict[bytes, int] = {}
        self._renewals: dict[bytes, int] = {}
        self._releases: dict[bytes, int] = {}
        for place, operation in enumerate(operations):
            match operation:
                case Acquire(claim):
                    (self._first if is_new(claim.key) else self._claims)[claim.key.encode()] = place
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
            keys = array([item(key) for key, _ in releases], kind=BYTES)
            tokens = array([item(digest_of(release.token)) for _, release in releases], kind=BYTES)
            sent.append((say.free, (namespace, keys, tokens)))
        if self._renewals:
            renewals: Any = self._in_order(self._renewals)
            keys = array([item(key) for key, _ in renewals], kind=BYTES)
            tokens = array([item(digest_of(renewal.token)) for _, renewal in renewals], kind=BYTES)
            numbers = array([item(whole(renewal.number)) for _, renewal in renewals], kind=NUMBER)
            lengths = array([item(whole(microseconds(renewal.ttl))) for _, renewal in renewals], kind=NUMBER)
            sent.append((say.extend, (namespace, keys, tokens, numbers, lengths)))
        if self._claims:
            sent.append((say.grant, self._claiming(self._claims, namespace)))
        if self._first:
            sent.append((say.grant_first, self._claiming(self._first, namespace)))
        return sent

    def read_writes(self, results: Sequence[Any]) -> int | None:
        """Take note of what those statements settled, and tell the server's clock if one of them told it."""
        answers, instant = iter(results), None
        if self._releases:
            for row in _rows(next(answers)):
                self.outcomes[self._releases[row.value(0) or b""]] = Released()
        if self._renewals:
            for row in _rows(next(answers)):
                place, instant = self._renewals[row.value(0) or b""], row.number(3)
                asked_for: Any = self._operations[place]
                lease = asked_for.key, asked_for.token, row.number(1), microseconds(asked_for.ttl) / SECOND, row.text(4)
                self.outcomes[place] = Held(Lease(*lease, (row.number(2) - instant) / SECOND, 0.0, asked_for.number))
        if self._claims:
            for row in _rows(next(answers)):
                instant = row.number(3)
                self._granted(self._claims[row.value(0) or b""], row.number(1), left=(row.number(2) - instant) / SECOND)
        if self._first:
            for row in _rows(next(answers)):
                instant = row.number(1)
                self._granted(self._first[row.value(0) or b""], instant)
        return instant

    def second_tries(self, say: ForMany, namespace: bytes) -> list[tuple[Statement, Sequence[bytes]]]:
        """The claims that took their keys for new ones, to be read by `read_writes` as well."""
        left = {key: place for key, place in self._first.items() if isinstance(self.outcomes[place], Unsettled)}
        self._claims, self._first, self._renewals, self._releases = left, {}, {}, {}
        return self.writes(say, namespace)

    def _granted(self, place: int, number: int, *, left: float | None = None) -> None:
        acquire: Any = self._operations[place]
        claim: Claim = acquire.claim
        new = binary_terms(claim.ttl, claim.terms)
        left = new.length if left is None else left
        self.outcomes[place] = Held(Lease(claim.key, claim.token, number, new.ttl, claim.owner, left))

    def _claiming(self, places: dict[bytes, int], namespace: bytes) -> Sequence[bytes]:
        rows = []
        for key, operation in self._in_order(places):
            acquire: Any = operation
            claim: Claim = acquire.claim
            owner = NULL if claim.owner is None else item(claim.owner.encode())
            terms = binary_terms(claim.ttl, claim.terms).items
            rows.append((item(key), item(digest_of(claim.token)), owner, *terms, _LATE if claim.late else _NOT_LATE))
        columns = zip(*rows, strict=True)
        arrays = [array(column, kind=kind) for column, kind in zip(columns, _KINDS, strict=True)]
        return (namespace, *arrays, _NO_WAIT)

    def looks(self, say: ForMany, namespace: bytes) -> tuple[Statement, Sequence[bytes]] | None:
        """What shows why the others were not settled, or `None` if all are."""
        asked_for = [
            (key_of(operation).encode(), digest_of(token_of(operation)))
            for operation, outcome in zip(self._operations, self.outcomes, strict=True)
            if isinstance(outcome, Unsettled) and isinstance(operation, (Acquire, Renew, Release, Look))
        ]
        if not asked_for:
            return None
        keys, tokens = (array([item(value) for value in values], kind=BYTES) for values in zip(*asked_for, strict=True))
        return say.look, (namespace, keys, tokens)

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


def _rows(result: Any) -> Iterable[Row]:
    return (Row(result, place) for place in range(result.ntuples))
