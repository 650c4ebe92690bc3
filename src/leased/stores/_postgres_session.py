"""What the core asks of a connection, said in PostgreSQL's statements. It decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leased.clocks import now
from leased.errors import StoreUnavailable
from leased.model import Claim, Held, Lease, Operation
from leased.store import Outcome
from leased.stores._postgres_batch import Batch, ForMany
from leased.stores._postgres_failures import Locked, from_creating
from leased.stores._postgres_rows import FALSE, TRUE, Row, binary_terms, number_in, values_of, whole
from leased.stores._postgres_schema import ddl, table_names
from leased.stores._postgres_statements import TEXT, Statements, statement
from leased.stores._postgres_wire import Values, Wire
from leased.stores._sql_memory import Memory
from leased.stores._sql_record import SECOND, Record, Seen, digest_of, microseconds
from leased.stores._sql_rules import Effect
from leased.stores._sql_session import Call, RolledBack, Unsettled
from leased.stores._standing import ServerClock

EXPECTED = 3_600 * SECOND
"""How long releases of a key are told after somebody began to listen: longer, and a program that died would cost."""

_LONGEST_LOCK = 0.75  # less than what the clean-up budget leaves of itself: a release needs no bound of its own
_SHARE = 0.8
_MAKING = 0x1EA5ED
_FOR_EVER = "set_config('lock_timeout', '0', true)"
_TOLD_EVERY = 0.1

# The server keeps the plans of prepared statements. One that was made while the tables were small would go through all
# of them later on; these settings leave only ways that look up keys.
SETTINGS = statement(
    """
    SELECT set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
        set_config('enable_mergejoin', 'off', false), set_config('lock_timeout', $1, false)
    """,
    TEXT,
    writes=False,
)
"""What every connection begins with, unless there is a pooler in between."""


class Tables:
    """The tables of one store and the namespace in them; the statements on them, by how far tests moved the clock."""

    def __init__(self, name: str, *, namespace: str) -> None:
        self.name = name
        self.namespace = namespace.encode()
        self._record, self._mark = table_names(name)
        self._at: dict[tuple[int, bool], ForMany] = {}

    def statements(self, ahead: int, *, bounded: bool = True) -> Statements:
        """Those with a clock that is so many µs ahead."""
        found = self._at.get((ahead, bounded))
        return found.say if found is not None else self.for_many(ahead, bounded=bounded).say

    def for_many(self, ahead: int, *, bounded: bool = True) -> ForMany:
        """Those for many keys."""
        found = self._at.get((ahead, bounded))
        if found is None:
            if len(self._at) > 1:
                self._at.clear()
            found = self._at[ahead, bounded] = ForMany(Statements(self._record, self._mark, ahead, bounded))
        return found

    def channel(self, key: str) -> str:
        """Where releases of a key are told."""
        return self.statements(0).channel(self.namespace, key.encode())


class PostgresSession:
    """A connection that speaks records: see `leased.stores._sql_session`."""

    def __init__(self, wire: Wire, tables: Tables, *, name: str, clock: ServerClock, memory: Memory) -> None:
        self._wire = wire
        self._clock = clock
        self._compare_at = 0.0
        self._tables = tables
        self._name = name
        self._memory = memory
        self._longest_lock = 0.0  # how long the server waits for a lock where a statement does not say it

    async def begin(self, until: float) -> None:
        """Settings of our own session, where it is that: behind a pooler they would be those of somebody else."""
        if self._wire.prepares:
            await self._wire.ask(SETTINGS, (b"%dms" % int(_LONGEST_LOCK * 1000.0),), until=until)
            self._longest_lock = _LONGEST_LOCK

    def idle(self) -> bool:
        """See `Session`."""
        return self._wire.idle()

    def usable(self) -> bool:
        """See `Session`."""
        return self._wire.usable()

    def close(self) -> None:
        """See `Session`."""
        self._wire.close()

    async def grant(self, claim: Claim, *, call: Call) -> Held | None:
        """See `Session`."""
        asked_at = now()
        bound = self._bound(call, asked_at)
        say = self._tables.statements(call.ahead, bounded=bool(bound))
        new = binary_terms(claim.ttl, claim.terms)
        owner = None if claim.owner is None else claim.owner.encode()
        row = self._tables.namespace, claim.key.encode(), digest_of(claim.token), owner
        values = (*row, *new.values, TRUE if claim.late else FALSE, *bound)
        if self._memory.is_new(claim.key):
            result = await self._wire.ask(say.grant_first, values, until=call.until)
            if result.ntuples:
                number = self._told(number_in(result.get_value(0, 0)), call, asked_at=asked_at)
                # Of which nothing is taken for the way: who asked counts it from before he did.
                return Held(Lease(claim.key, claim.token, number, new.ttl, claim.owner, new.length))
            asked_at = now()
        result = await self._wire.ask(say.grant, values, until=call.until)
        if not result.ntuples:
            return None
        answer = Row(result)
        left = (answer.number(1) - self._told(answer.number(2), call, asked_at=asked_at)) / SECOND
        return Held(Lease(claim.key, claim.token, answer.number(0), new.ttl, claim.owner, left))

    async def extend(self, key: str, token: str, *, call: Call, ttl: float, number: int) -> Held | None:
        """See `Session`."""
        asked_at = now()
        bound = self._bound(call, asked_at)
        say = self._tables.statements(call.ahead, bounded=bool(bound))
        values = (*self._row(key), digest_of(token), whole(number), whole(microseconds(ttl)), *bound)
        result = await self._wire.ask(say.extend, values, until=call.until)
        row = Row(result)
        if not result.ntuples or row.number(3) != number:
            return None
        left = (row.number(1) - self._told(row.number(2), call, asked_at=asked_at)) / SECOND
        return Held(Lease(key, token, row.number(0), row.number(4) / SECOND, row.text(5), left, 0.0, number))

    async def free(self, key: str, token: str, *, call: Call) -> bool | None:
        """See `Session`."""
        tables, name = self._tables, key.encode()
        bound = self._bound(call, now())
        say = tables.statements(call.ahead, bounded=bool(bound))
        values = (tables.namespace, name, digest_of(token), say.channel(tables.namespace, name).encode(), *bound)
        result = await self._wire.ask(say.free, values, until=call.until)
        return True if result.ntuples else None

    async def look(self, key: str, token: str | None, *, call: Call) -> Seen:
        """See `Session`."""
        values = (*self._row(key), None if token is None else digest_of(token))
        return Row(await self._wire.ask(self._tables.statements(call.ahead).look, values, until=call.until)).seen()

    async def lock(self, key: str, token: str | None, *, call: Call) -> Seen:
        """See `Session`."""
        say, row = self._tables.statements(call.ahead), self._row(key)
        stopped = f"{int(call.left() * 1000.0) + 1000}ms".encode()
        results = await self._wire.ask_all(
            [
                (say.begin, ()),
                (say.bounds, (_longest_lock(call.patience()), stopped)),
                (say.ensure, row),
                (say.lock, row),
                (say.look, (*row, None if token is None else digest_of(token))),
            ],
            until=call.until,
            writes=False,
        )
        if not results[3].ntuples:  # it was swept in between: nothing is locked
            await self._wire.ask(say.roll_back, (), until=call.until)
            raise self._vanished(applied=False)
        return Row(results[-1]).seen()

    async def finish(self, key: str, effect: Effect | None, *, call: Call) -> None:
        """See `Session`."""
        say, row = self._tables.statements(call.ahead), self._row(key)
        if effect is None:
            await self._wire.ask(say.roll_back, (), until=call.until)
            return
        sent: list[tuple[Any, Values]] = [(say.write, (*row, *values_of(effect.record)))]
        for token, reason in effect.marks:
            sent.append((say.note, (self._tables.namespace, token, reason.encode())))
        if effect.marks:  # more than are added, so that they never pile up
            sent.append((say.sweep_marks, (whole(2 * len(effect.marks)),)))
        if effect.freed:
            sent.append((say.tell, row))
        sent.append((say.commit, ()))
        written, *_ = await self._wire.ask_all(sent, until=call.until, writes=True)
        if written.command_tuples != 1:  # a trigger or a rule of somebody else: nothing was granted by that
            raise self._vanished(applied=None)

    async def batch(self, operations: Sequence[Operation], *, call: Call) -> list[Outcome | Unsettled]:
        """See `Session`."""
        say, namespace = self._tables.for_many(call.ahead), self._tables.namespace
        batch = Batch(operations, is_new=self._memory.is_new)
        sent = batch.writes(say, namespace)
        first = True
        while sent:
            asked_at = now()
            try:
                results = await self._wire.ask_all(sent, until=call.until, writes=True)
            except Locked:  # somebody else is writing a key for the first time: each by itself, then
                return batch.outcomes
            except (StoreUnavailable, RolledBack):
                if first:
                    raise
                return batch.outcomes  # what was settled is; the others are asked once more with the same tokens
            told = batch.read_writes(results)
            if told is not None:
                self._told(told, call, asked_at=asked_at)
            first, sent = False, batch.second_tries(say, namespace)
        look = batch.looks(say, namespace)
        if look is not None:
            try:
                batch.read_looks(await self._wire.ask(*look, until=call.until))
            except (StoreUnavailable, RolledBack):
                return batch.outcomes  # what was settled is; the others get an error of their own
        return batch.outcomes

    async def page(self, prefix: str, *, call: Call, after: str, limit: int) -> tuple[list[tuple[str, Record]], int]:
        """See `Session`."""
        first = prefix.encode()
        values = (self._tables.namespace, first, first + b"\xff", after.encode(), whole(limit))
        result = await self._wire.ask(self._tables.statements(call.ahead).page, values, until=call.until)
        rows = [Row(result, place) for place in range(result.ntuples)]
        page = [(row.text(0) or "", row.record()) for row in rows]
        return page, rows[0].number(1) if rows else 0

    async def expect(self, key: str, *, call: Call) -> None:
        """See `Session`."""
        bound = self._bound(call, now())
        say = self._tables.statements(call.ahead, bounded=bool(bound))
        await self._wire.ask(say.expect, (*self._row(key), whole(EXPECTED), *bound), until=call.until)

    async def sweep(self, most: int, *, call: Call) -> None:
        """See `Session`."""
        say, count = self._tables.statements(call.ahead), whole(most)
        sent = [(say.sweep, (*self._memory.after, count)), (say.sweep_marks, (count,))]
        last, _ = await self._wire.ask_all(sent, until=call.until, writes=True)
        self._memory.after = (last.get_value(0, 0), last.get_value(0, 1)) if last.ntuples else (b"", b"")

    async def create(self, call: Call) -> None:
        """See `Session`."""
        # In turn: two who make the same tables at once can deadlock. It is a lock of this transaction, not the session.
        text = f"SELECT {_FOR_EVER}; SELECT pg_advisory_xact_lock({_MAKING}); {ddl(self._tables.name)}"
        results = await self._wire.script(text.encode(), until=call.until)
        failed = next((result for result in results if self._wire.is_failure(result)), None)
        error = None if failed is None else from_creating(failed, name=self._name)
        if error is not None:
            raise error

    def _vanished(self, *, applied: bool | None) -> RolledBack:
        return RolledBack(StoreUnavailable(f"a row of {self._name} vanished again and again", applied=applied))

    def _told(self, instant: int, call: Call, *, asked_at: float) -> int:
        """The server's clock as an answer told it, compared now and then with our own."""
        if asked_at >= self._compare_at:
            self._compare_at = asked_at + _TOLD_EVERY
            self._clock.read((instant - call.ahead) / SECOND, asked_at=asked_at)
        return instant

    def _bound(self, call: Call, at: float) -> tuple[bytes, ...]:
        """How long a statement may wait for a lock, as its last value; none where the session says so already."""
        patience = min(call.until, call.patient_until) - at
        return () if 0.0 < self._longest_lock <= patience * _SHARE else (_longest_lock(patience),)

    def _row(self, key: str) -> tuple[bytes, bytes]:
        return self._tables.namespace, key.encode()


def _longest_lock(patience: float) -> bytes:
    """How long the server may wait for a lock: it gives up before the caller does, who then knows that it has."""
    return b"%dms" % max(1, int(min(patience * _SHARE, _LONGEST_LOCK) * 1000.0))
