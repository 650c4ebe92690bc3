"""The statements of the PostgreSQL store, and the tables they speak of. Values are always bound, never written in."""

# ruff: noqa: S608 - what is written into a text is the name of a table or column

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from leased.stores._sql_record import REPLAY, RETENTION, SECOND

BYTES, NUMBER, FLAG, TEXT = 17, 20, 16, 25
"""Types of parameters, by their numbers in every PostgreSQL."""

DAY = 86_400 * SECOND
COLUMNS = (
    "namespace", "key", "token", "owner", "held_by", "metadata", "fencing_token", "renewal", "acquired_at",
    "expires_in", "free_in", "max_hold", "ttl", "hold_at_least", "lock_delay", "late", "forced", "marked_until",
    "watched_until", "swept_from",
)  # fmt: skip
SEEN = COLUMNS[2:18]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement with the types of its parameters; `name` is what the server may keep it under."""

    text: bytes
    types: tuple[int, ...]
    writes: bool
    name: bytes


def statement(text: str, *types: int, writes: bool = True) -> Statement:
    encoded = " ".join(text.split()).encode()
    # Named by all of its text: two programs that meet on one connection can only mean the same by the same name.
    return Statement(encoded, types, writes, b"leased_" + sha256(encoded).hexdigest()[:40].encode())


@dataclass(frozen=True)
class Statements:
    """All statements on the tables `record` and `mark`, quoted names, with a clock that is `ahead` µs of the server's.

    A time that decides is read after every wait: the conditions and values of ON CONFLICT DO UPDATE are evaluated on
    the locked row, those of a plain UPDATE before it waits. That is why also a renewal and a release are written as an
    insert (of the row that is there) that conflicts. `lock_timeout` set for the transaction ends a wait at the server.
    """

    record: str
    mark: str
    ahead: int = 0

    @property
    def now(self) -> str:
        """The clock as it is read: later than any wait before it."""
        return self._micros("clock_timestamp()")

    @property
    def then(self) -> str:
        """The clock before the snapshot of a statement that waits for nothing: what it sees was so then or later.

        Unlike `now` it stays the same in one statement, so that an index can be searched by it.
        """
        return self._micros("statement_timestamp()")

    def _micros(self, clock: str) -> str:
        ahead = f" + {self.ahead}" if self.ahead else ""
        # Not extract(): its exact arithmetic costs more, and a double tells every µs until the year 2255.
        return f"((date_part('epoch', {clock}) * {SECOND})::bigint{ahead})"

    @property
    def told(self) -> str:
        """Tells the channel of a row's key: see `channel`, which makes the same of it."""
        key = "r.namespace || decode('00', 'hex') || r.key"
        return f"pg_notify('{self._channels}' || left(encode(sha256({key}), 'hex'), 40), '')::text"

    @property
    def _channels(self) -> str:
        return f"leased_{sha256(self.record.encode()).hexdigest()[:8]}_"

    def channel(self, namespace: bytes, key: bytes) -> str:
        """Where releases of a key are told: a hint, so a hash of it may do."""
        return self._channels + sha256(namespace + b"\0" + key).hexdigest()[:40]

    def day(self, free_at: str) -> str:
        """The first day on which the row of a key that opens then may be swept."""
        return f"(({free_at} + {RETENTION}) / {DAY} + 1)"

    @cached_property
    def granted(self) -> str:
        """What a grant writes over the row before it. Only one reading of the clock: lengths count from that."""
        return f"""
            token = excluded.token, owner = excluded.owner, held_by = excluded.held_by, metadata = excluded.metadata,
            fencing_token = greatest(r.fencing_token + 1, {self.now}), renewal = 0, acquired_at = {self.now},
            expires_in = excluded.expires_in, free_in = excluded.free_in, max_hold = excluded.max_hold,
            ttl = excluded.ttl, hold_at_least = excluded.hold_at_least, lock_delay = excluded.lock_delay,
            late = excluded.late, forced = false, swept_from = {self.day(f"{self.now} + excluded.free_in")}
        """

    @cached_property
    def grant(self) -> Statement:
        """Grant an open key that nothing has to be looked up for.

        Of one that is seen to be taken the row is not even locked: that would be a commit to wait for, and a queue of
        all who ask.
        """
        return statement(
            f"""
            INSERT INTO {self.record} AS r ({", ".join(COLUMNS)})
            SELECT $1, $2, $3, $4, $5, $6, {self.now}, 0, {self.now}, $7, $8, $9, $10, $11, $12, $13, false, 0, 0,
                {self.day(f"{self.now} + $8")}
            FROM set_config('lock_timeout', $14, true)
            WHERE NOT EXISTS (
                SELECT FROM {self.record} WHERE namespace = $1 AND key = $2 AND acquired_at + free_in > {self.then}
            )
            ON CONFLICT (namespace, key) DO UPDATE SET {self.granted}
            WHERE r.acquired_at + r.free_in <= {self.now} AND r.marked_until <= {self.now}
                AND NOT r.late AND r.token IS DISTINCT FROM excluded.token
            RETURNING r.fencing_token, r.acquired_at + r.expires_in, {self.now}
            """,
            *(BYTES,) * 6,
            *(NUMBER,) * 6,
            FLAG,
            TEXT,
        )

    def _conflicting(self, asking: int) -> str:
        """The insert of the row that is there; parameter `asking` is the longest wait for its lock."""
        columns = ", ".join(f"s.{column}" for column in COLUMNS)
        return f"""
            INSERT INTO {self.record} AS r ({", ".join(COLUMNS)})
            SELECT {columns} FROM set_config('lock_timeout', ${asking}, true), {self.record} AS s
            WHERE s.namespace = $1 AND s.key = $2 AND s.token = $3
            ON CONFLICT (namespace, key) DO UPDATE
        """

    @cached_property
    def extend(self) -> Statement:
        """Renew a lease that goes on. Both times come from one reading of the clock."""
        return statement(
            f"""
            {self._conflicting(6)} SET renewal = $4, ttl = $5, (expires_in, free_in, swept_from) = (
                SELECT e.expires_in, greatest(e.expires_in + r.lock_delay, r.hold_at_least),
                    {self.day("r.acquired_at + greatest(e.expires_in + r.lock_delay, r.hold_at_least)")}
                FROM (SELECT least({self.now} - r.acquired_at + $5, r.max_hold) AS expires_in OFFSET 0) AS e
            )
            WHERE r.token = $3 AND r.renewal < $4 AND {self.now} < r.acquired_at + r.expires_in
            RETURNING r.fencing_token, r.acquired_at + r.expires_in, {self.now}, r.renewal, r.ttl, r.owner
            """,
            *(BYTES,) * 3,
            *(NUMBER,) * 2,
            TEXT,
        )

    @cached_property
    def free(self) -> Statement:
        """Release a lease that goes on and whose token need not be marked, and tell whoever listens.

        Its row is kept as if the lease had lasted to its end: nothing more is to be computed or indexed.
        """
        return statement(
            f"""
            {self._conflicting(4)} SET token = NULL, free_in = greatest({self.now} - r.acquired_at, r.hold_at_least)
            WHERE r.token = $3 AND NOT r.late AND {self.now} < r.acquired_at + r.expires_in
            RETURNING r.token IS NULL, CASE WHEN r.watched_until > {self.now} THEN {self.told} END
            """,
            *(BYTES,) * 3,
            TEXT,
        )

    @cached_property
    def look(self) -> Statement:
        """The record of a key, if there is one, the mark of a token, and the time."""
        columns = ", ".join(f"r.{column}" for column in SEEN)
        return statement(
            f"""
            SELECT {self.then}, (
                SELECT reason FROM {self.mark} WHERE namespace = $1 AND token = $3 AND until > {self.then}
            ), {columns}
            FROM (SELECT) AS one LEFT JOIN {self.record} AS r ON r.namespace = $1 AND r.key = $2
            """,
            *(BYTES,) * 3,
            writes=False,
        )

    @cached_property
    def begin(self) -> Statement:
        """Open a transaction in which every statement sees what others have committed before it."""
        return statement("BEGIN ISOLATION LEVEL READ COMMITTED", writes=False)

    @cached_property
    def bounds(self) -> Statement:
        """End waits for locks, and the transaction of a program that has stopped, in so many ms."""
        return statement(
            """
            SELECT set_config('lock_timeout', $1, true),
                set_config('idle_in_transaction_session_timeout', $2, true)
            """,
            TEXT,
            TEXT,
            writes=False,
        )

    @cached_property
    def ensure(self) -> Statement:
        """See that there is a row to lock."""
        return statement(
            f"""
            INSERT INTO {self.record} ({", ".join(COLUMNS)})
            VALUES ($1, $2, NULL, NULL, '', '{{}}', 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false, 0, 0,
                {self.day(self.now)})
            ON CONFLICT (namespace, key) DO NOTHING
            """,
            *(BYTES,) * 2,
            writes=False,
        )

    @cached_property
    def lock(self) -> Statement:
        """Lock the row."""
        text = f"SELECT FROM {self.record} WHERE namespace = $1 AND key = $2 FOR UPDATE"
        return statement(text, *(BYTES,) * 2, writes=False)

    @cached_property
    def write(self) -> Statement:
        """Write all that was decided into the locked row."""
        columns = COLUMNS[2:18]
        values = ", ".join(f"${place}" for place in range(3, 19))
        return statement(
            f"""
            UPDATE {self.record} SET ({", ".join(columns)}, swept_from) = ({values}, {self.day("$9 + $11")})
            WHERE namespace = $1 AND key = $2
            """,
            *(BYTES,) * 6,
            *(NUMBER,) * 9,
            *(FLAG,) * 2,
            NUMBER,
        )

    @cached_property
    def note(self) -> Statement:
        """Mark a token, from now; the first reason stands."""
        return statement(
            f"""
            INSERT INTO {self.mark} AS m (namespace, token, reason, until) VALUES ($1, $2, $3, {self.now} + {REPLAY})
            ON CONFLICT (namespace, token) DO UPDATE SET until = excluded.until,
                reason = CASE WHEN m.until > {self.now} THEN m.reason ELSE excluded.reason END
            """,
            BYTES,
            BYTES,
            TEXT,
        )

    @cached_property
    def tell(self) -> Statement:
        """Tell whoever listens that the key was freed."""
        return statement(
            f"""
            SELECT {self.told} FROM {self.record} AS r
            WHERE r.namespace = $1 AND r.key = $2 AND r.watched_until > {self.now}
            """,
            *(BYTES,) * 2,
            writes=False,
        )

    @cached_property
    def expect(self) -> Statement:
        """Somebody listens for releases of the key from now on, for $3 µs."""
        return statement(
            f"""
            INSERT INTO {self.record} AS r ({", ".join(COLUMNS)})
            SELECT $1, $2, NULL, NULL, '', '{{}}', 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false, 0, {self.now} + $3,
                {self.day(self.now)}
            FROM set_config('lock_timeout', $4, true)
            ON CONFLICT (namespace, key) DO UPDATE SET watched_until = excluded.watched_until
            WHERE r.watched_until < excluded.watched_until - $3 / 2
            """,
            *(BYTES,) * 2,
            NUMBER,
            TEXT,
        )

    @cached_property
    def commit(self) -> Statement:
        """End the transaction."""
        return statement("COMMIT")

    @cached_property
    def roll_back(self) -> Statement:
        """Undo the transaction."""
        return statement("ROLLBACK", writes=False)

    @cached_property
    def page(self) -> Statement:
        """Records that are not open, from $2 up to $3 and after $4."""
        columns = ", ".join(SEEN)
        return statement(
            f"""
            SELECT key, {self.then}, {columns} FROM {self.record}
            WHERE namespace = $1 AND key >= $2 AND key < $3 AND key > $4 AND acquired_at + free_in > {self.then}
            ORDER BY key LIMIT $5
            """,
            *(BYTES,) * 4,
            NUMBER,
            writes=False,
        )

    @cached_property
    def sweep(self) -> Statement:
        """Delete records that are over."""
        return statement(
            f"""
            DELETE FROM {self.record} WHERE (namespace, key) IN (
                SELECT namespace, key FROM {self.record} WHERE swept_from <= {self.then} / {DAY}
                ORDER BY swept_from LIMIT $1 FOR UPDATE SKIP LOCKED
            ) AND acquired_at + free_in + {RETENTION} <= {self.now}
            AND marked_until <= {self.now}
            """,
            NUMBER,
        )

    @cached_property
    def sweep_marks(self) -> Statement:
        """Delete marks whose time is over."""
        return statement(
            f"""
            DELETE FROM {self.mark} WHERE (namespace, token) IN (
                SELECT namespace, token FROM {self.mark} WHERE until <= {self.then}
                ORDER BY until LIMIT $1 FOR UPDATE SKIP LOCKED
            )
            """,
            NUMBER,
        )
