"""The statements of the PostgreSQL store, and the tables they speak of. Values are always bound, never written in."""

# ruff: noqa: S608 - what is written into a text is the name of a table or column

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from leased.stores._sql_record import REPLAY, RETENTION, SECOND

BYTES, NUMBER, FLAG, TEXT = 17, 20, 16, 25
"""Types of parameters, by their numbers in every PostgreSQL."""

COLUMNS = (
    "namespace", "key", "token", "owner", "held_by", "metadata", "fencing_token", "renewal", "acquired_at",
    "expires_in", "free_in", "max_hold", "ttl", "hold_at_least", "lock_delay", "late", "forced", "marked_until",
    "watched_until",
)  # fmt: skip
SEEN = COLUMNS[2:18]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement with the types of its parameters; `name` is what the server may keep it under."""

    text: bytes
    types: tuple[int, ...]
    writes: bool
    name: bytes
    binary: tuple[int, ...]  # that its parameters are sent so, each of them


def statement(text: str, *types: int, writes: bool = True) -> Statement:
    """The statement of this text."""
    encoded = " ".join(text.split()).encode()
    # Named by all of its text: two programs that meet on one connection can only mean the same by the same name.
    return Statement(encoded, types, writes, b"leased_" + sha256(encoded).hexdigest()[:40].encode(), (1,) * len(types))


@dataclass(frozen=True)
class Statements:
    """All statements on the tables `record` and `mark`, quoted names, with a clock that is `ahead` µs of the server's.

    A time that decides is read after every wait: the conditions and values of ON CONFLICT DO UPDATE are evaluated on
    the locked row, those of a plain UPDATE before it waits. That is why also a renewal is written as an insert (of the
    row that is there) that conflicts, and why a release looks at the clock once more when it is done.

    `bounded`: `grant_first`, `grant`, `extend`, `free` and `expect` have one more parameter, the last: how long they
    wait for a lock. Without it they wait for as long as the settings of the session say.
    """

    record: str
    mark: str
    ahead: int = 0
    bounded: bool = True

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

    @cached_property
    def _channels(self) -> str:
        return f"leased_{sha256(self.record.encode()).hexdigest()[:8]}_"

    def channel(self, namespace: bytes, key: bytes) -> str:
        """Where releases of a key are told: a hint, so a hash of it may do."""
        return self._channels + sha256(namespace + b"\0" + key).hexdigest()[:40]

    def over(self, row: str, *, now: str) -> str:
        """Whether nobody needs a record any more, not even for its fencing token."""
        return (
            f"{row}.acquired_at + {row}.free_in + {RETENTION} <= {now} AND {row}.marked_until <= {now}"
            f" AND {row}.watched_until <= {now}"
        )

    def _bound(self, place: int, joined: str) -> str:
        """Bounds the waits of a statement by parameter `place`. It is evaluated before any row is locked."""
        return f"{joined} set_config('lock_timeout', ${place}, true)" if self.bounded else ""

    @cached_property
    def granted(self) -> str:
        """What a grant writes over the row before it. Only one reading of the clock: lengths count from that."""
        return f"""
            token = excluded.token, owner = excluded.owner, held_by = excluded.held_by, metadata = excluded.metadata,
            fencing_token = greatest(r.fencing_token + 1, {self.now}), renewal = -1, acquired_at = {self.now},
            expires_in = excluded.expires_in, free_in = excluded.free_in, max_hold = excluded.max_hold,
            ttl = excluded.ttl, hold_at_least = excluded.hold_at_least, lock_delay = excluded.lock_delay,
            late = excluded.late, forced = false
        """

    @cached_property
    def _claimed(self) -> str:
        """Inserts the row of a claim."""
        return f"""
            INSERT INTO {self.record} AS r ({", ".join(COLUMNS)})
            SELECT $1, $2, $3, $4, $5, $6, {self.now}, -1, {self.now}, $7, $8, $9, $10, $11, $12, $13, false, 0, 0
            {self._bound(14, "FROM")}
        """

    def _claiming(self, text: str) -> Statement:
        return statement(text, *(BYTES,) * 6, *(NUMBER,) * 6, FLAG, *self._with_bound)

    @property
    def _with_bound(self) -> tuple[int, ...]:
        return (TEXT,) if self.bounded else ()

    @cached_property
    def grant_first(self) -> Statement:
        """Grant a key that has no row: the fencing token is the instant. One that has a row is left alone."""
        return self._claiming(f"{self._claimed} ON CONFLICT (namespace, key) DO NOTHING RETURNING r.fencing_token")

    @cached_property
    def grant(self) -> Statement:
        """Grant an open key that nothing has to be looked up for, with a row or without.

        Of one that is seen to be taken the row is not even locked: that would be a commit to wait for, and a queue of
        all who ask.
        """
        return self._claiming(
            f"""
            {self._claimed}
            WHERE NOT EXISTS (
                SELECT FROM {self.record} WHERE namespace = $1 AND key = $2 AND acquired_at + free_in > {self.then}
            )
            ON CONFLICT (namespace, key) DO UPDATE SET {self.granted}
            WHERE r.acquired_at + r.free_in <= {self.now} AND r.marked_until <= {self.now}
                AND NOT r.late AND r.token IS DISTINCT FROM excluded.token
            RETURNING r.fencing_token, r.acquired_at + r.expires_in, {self.now}
            """
        )

    @cached_property
    def extend(self) -> Statement:
        """Renew a lease that goes on. Both times come from one reading of the clock."""
        columns = ", ".join(f"s.{column}" for column in COLUMNS)
        return statement(
            f"""
            INSERT INTO {self.record} AS r ({", ".join(COLUMNS)})
            SELECT {columns} FROM {self.record} AS s {self._bound(6, "CROSS JOIN")}
            WHERE s.namespace = $1 AND s.key = $2 AND s.token = $3
            ON CONFLICT (namespace, key) DO UPDATE SET renewal = $4, ttl = $5, (expires_in, free_in) = (
                SELECT e.expires_in, greatest(e.expires_in + r.lock_delay, r.hold_at_least)
                FROM (SELECT least({self.now} - r.acquired_at + $5, r.max_hold) AS expires_in OFFSET 0) AS e
            )
            WHERE r.token = $3 AND greatest(r.renewal, 0) < $4 AND {self.now} < r.acquired_at + r.expires_in
            RETURNING r.fencing_token, r.acquired_at + r.expires_in, {self.now}, r.renewal, r.ttl, r.owner
            """,
            *(BYTES,) * 3,
            *(NUMBER,) * 2,
            *self._with_bound,
        )

    @cached_property
    def free(self) -> Statement:
        """Release a lease that goes on and whose token need not be marked, and tell channel $4 if somebody listens.

        If the lease ended while this waited for its row, the statement fails, and so undoes itself: see `TOO_LATE`.
        """
        return statement(
            f"""
            UPDATE {self.record} AS r
            SET token = NULL, free_in = greatest({self.now} - r.acquired_at, r.hold_at_least)
            {self._bound(5, "FROM")}
            WHERE r.namespace = $1 AND r.key = $2 AND r.token = $3 AND NOT r.late
                AND {self.now} < r.acquired_at + r.expires_in
            RETURNING CASE WHEN {self.now} >= r.acquired_at + r.expires_in
                THEN ('leased: this release waited until its lease had ended, ' || r.expires_in)::int::text
                WHEN r.watched_until > {self.now} THEN pg_notify($4, '')::text END
            """,
            *(BYTES,) * 3,
            TEXT,
            *self._with_bound,
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
            VALUES ($1, $2, NULL, NULL, '', '{{}}', 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false, 0, 0)
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
            UPDATE {self.record} SET ({", ".join(columns)}) = ({values})
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
            SELECT $1, $2, NULL, NULL, '', '{{}}', 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false, 0, {self.now} + $3
            {self._bound(4, "FROM")}
            ON CONFLICT (namespace, key) DO UPDATE SET watched_until = excluded.watched_until
            WHERE r.watched_until < excluded.watched_until - $3 / 2
            """,
            *(BYTES,) * 2,
            NUMBER,
            *self._with_bound,
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
        """Delete what is over of the next $3 records after $1 and $2, by namespace and key; the last of those records,
        if there are so many. It goes by key because an index by time would cost every grant."""
        return statement(
            f"""
            WITH page AS MATERIALIZED (
                SELECT r.namespace, r.key, {self.over("r", now=self.then)} AS is_over FROM {self.record} AS r
                WHERE (r.namespace, r.key) > ($1, $2) ORDER BY r.namespace, r.key LIMIT $3
            ),
            gone AS (
                DELETE FROM {self.record} AS r WHERE r.ctid = ANY (ARRAY(
                    SELECT s.ctid FROM page AS p CROSS JOIN LATERAL (
                        SELECT s.ctid FROM {self.record} AS s WHERE s.namespace = p.namespace AND s.key = p.key
                            AND {self.over("s", now=self.now)} FOR UPDATE SKIP LOCKED
                    ) AS s
                    WHERE p.is_over
                )) AND {self.over("r", now=self.now)}
            )
            SELECT namespace, key FROM page OFFSET $3 - 1
            """,
            *(BYTES,) * 2,
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
