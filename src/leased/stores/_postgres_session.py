"""What the core asks of a connection, said in PostgreSQL's statements. It decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from leased.model import Claim, Held, Lease, Operation
from leased.store import Outcome
from leased.stores._postgres_failures import from_creating
from leased.stores._postgres_schema import ddl, table_names
from leased.stores._postgres_statements import Statements
from leased.stores._postgres_wire import Values, Wire
from leased.stores._sql_record import SECOND, Record, Seen, asked, digest_of, microseconds
from leased.stores._sql_rules import Effect
from leased.stores._sql_session import UNSETTLED, Call, Unsettled

EXPECTED = 600 * SECOND
"""How long releases of a key are told after somebody began to listen: longer, and a program that died would cost."""

_LONGEST_LOCK = 1.0
_MAKING = 0x1EA5ED
_TRUE, _FALSE = b"\1", b"\0"


class Tables:
    """The tables of one store and the namespace in them; the statements on them, by how far tests moved the clock."""

    def __init__(self, name: str, *, namespace: str) -> None:
        self.name = name
        self.namespace = namespace.encode()
        self._record, self._mark = table_names(name)
        self._at: dict[int, Statements] = {}

    def statements(self, ahead: int) -> Statements:
        """Those with a clock that is so many µs ahead."""
        found = self._at.get(ahead)
        if found is None:
            self._at.clear()
            found = self._at[ahead] = Statements(self._record, self._mark, ahead)
        return found

    def channel(self, key: str) -> str:
        """Where releases of a key are told: a hint, so a hash of it may do."""
        place = blake2b(f"{self.name}\0".encode() + self.namespace + b"\0" + key.encode(), digest_size=20)
        return f"leased_{place.hexdigest()}"


class PostgresSession:
    """A connection that speaks records: see `leased.stores._sql_session`."""

    def __init__(self, wire: Wire, tables: Tables, *, name: str) -> None:
        self._wire = wire
        self._tables = tables
        self._name = name

    def usable(self) -> bool:
        """See `Session`."""
        return self._wire.usable()

    def close(self) -> None:
        """See `Session`."""
        self._wire.close()

    async def grant(self, claim: Claim, *, call: Call) -> Held | None:
        """See `Session`."""
        new = asked(claim)
        values = (
            self._tables.namespace, claim.key.encode(), new.token, new.owner, new.held_by, new.metadata,
            _number(new.length), _number(new.closed), _number(new.max_hold), _number(new.ttl),
            _number(new.hold_at_least), _number(new.lock_delay), _flag(new.late), _longest_lock(call),
        )  # fmt: skip
        result = await self._wire.ask(self._tables.statements(call.ahead).grant, values, until=call.until)
        if not result.ntuples:
            return None
        left = _int(result, 0, 1) / SECOND
        return Held(Lease(claim.key, claim.token, _int(result, 0, 0), new.ttl / SECOND, claim.owner, left))

    async def extend(self, key: str, token: str, *, call: Call, ttl: float, number: int) -> Held | None:
        """See `Session`."""
        values = (*self._row(key), digest_of(token), _number(number), _number(microseconds(ttl)), _longest_lock(call))
        result = await self._wire.ask(self._tables.statements(call.ahead).extend, values, until=call.until)
        if not result.ntuples or _int(result, 0, 2) != number:
            return None
        owner = result.get_value(0, 4)
        text = None if owner is None else owner.decode(errors="replace")
        left, set_to = _int(result, 0, 1) / SECOND, _int(result, 0, 3) / SECOND
        return Held(Lease(key, token, _int(result, 0, 0), set_to, text, left, 0.0, number))

    async def free(self, key: str, token: str, *, call: Call) -> bool | None:
        """See `Session`."""
        values = (*self._row(key), digest_of(token), self._tables.channel(key).encode(), _longest_lock(call))
        result = await self._wire.ask(self._tables.statements(call.ahead).free, values, until=call.until)
        return True if result.ntuples and result.get_value(0, 0) == _TRUE else None

    async def look(self, key: str, token: str | None, *, call: Call) -> Seen:
        """See `Session`."""
        values = (*self._row(key), None if token is None else digest_of(token))
        return _seen(await self._wire.ask(self._tables.statements(call.ahead).look, values, until=call.until))

    async def lock(self, key: str, token: str | None, *, call: Call) -> Seen:
        """See `Session`."""
        say, row = self._tables.statements(call.ahead), self._row(key)
        stopped = f"{int(call.left() * 1000.0) + 1000}ms".encode()
        results = await self._wire.ask_all(
            [
                (say.begin, ()),
                (say.bounds, (_longest_lock(call), stopped)),
                (say.ensure, row),
                (say.lock, row),
                (say.look, (*row, None if token is None else digest_of(token))),
            ],
            until=call.until,
            writes=False,
        )
        return _seen(results[-1])

    async def finish(self, key: str, effect: Effect | None, *, call: Call) -> None:
        """See `Session`."""
        say, row = self._tables.statements(call.ahead), self._row(key)
        if effect is None:
            await self._wire.ask(say.roll_back, (), until=call.until)
            return
        sent: list[tuple[Any, Values]] = [(say.write, (*row, *_values(effect.record)))]
        for token, reason in effect.marks:
            sent.append((say.note, (self._tables.namespace, token, reason.encode())))
        if effect.marks:  # more than are added, so that they never pile up
            sent.append((say.sweep_marks, (_number(2 * len(effect.marks)),)))
        if effect.freed:
            sent.append((say.tell, (*row, self._tables.channel(key).encode())))
        sent.append((say.commit, ()))
        await self._wire.ask_all(sent, until=call.until, writes=True)

    async def batch(self, operations: Sequence[Operation], *, call: Call) -> list[Outcome | Unsettled]:
        """See `Session`."""
        return [UNSETTLED for _ in operations]

    async def page(self, prefix: str, *, call: Call, after: str, limit: int) -> tuple[list[tuple[str, Record]], int]:
        """See `Session`."""
        first = prefix.encode()
        values = (self._tables.namespace, first, first + b"\xff", after.encode(), _number(limit))
        result = await self._wire.ask(self._tables.statements(call.ahead).page, values, until=call.until)
        page = [
            (result.get_value(place, 0).decode(errors="replace"), _record(result, place))
            for place in range(result.ntuples)
        ]
        return page, _int(result, 0, 1) if page else 0

    async def expect(self, key: str, *, call: Call) -> None:
        """See `Session`."""
        values = (*self._row(key), _number(EXPECTED), _longest_lock(call))
        await self._wire.ask(self._tables.statements(call.ahead).expect, values, until=call.until)

    async def sweep(self, most: int, *, call: Call) -> None:
        """See `Session`."""
        say = self._tables.statements(call.ahead)
        for statement in (say.sweep, say.sweep_marks):
            await self._wire.ask(statement, (_number(most),), until=call.until)

    async def create(self, call: Call) -> None:
        """See `Session`."""
        # In turn: two who make the same tables at once can deadlock. It is a lock of this transaction, not the session.
        text = f"SELECT pg_advisory_xact_lock({_MAKING}); {ddl(self._tables.name)}"
        results = await self._wire.script(text.encode(), until=call.until)
        failed = next((result for result in results if self._wire.is_failure(result)), None)
        error = None if failed is None else from_creating(failed, name=self._name)
        if error is not None:
            raise error

    def _row(self, key: str) -> tuple[bytes, bytes]:
        return self._tables.namespace, key.encode()


def _longest_lock(call: Call) -> bytes:
    """How long the server may wait for a lock: it gives up before the caller does, who then knows that it has."""
    return f"{max(1, int(min(_LONGEST_LOCK, call.left() * 0.8) * 1000.0))}ms".encode()


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _flag(value: bool) -> bytes:  # noqa: FBT001 - a conversion
    return _TRUE if value else _FALSE


def _int(result: Any, row: int, column: int) -> int:
    value: bytes = result.get_value(row, column)
    return int.from_bytes(value, "big", signed=True)


def _seen(result: Any) -> Seen:
    mark = result.get_value(0, 1)
    record = None if result.get_value(0, 4) is None else _record(result, 0)
    return Seen(record, None if mark is None else mark.decode(), _int(result, 0, 0))


def _record(result: Any, row: int) -> Record:
    """The record in columns 2 to 17, where times count from the grant."""
    token, owner, held_by, metadata = (result.get_value(row, column) for column in range(2, 6))
    numbers = [_int(result, row, column) for column in range(6, 15)]
    fencing_token, renewal, granted, expires_in, free_in, max_hold, ttl, hold_at_least, lock_delay = numbers
    return Record(
        token=token,
        owner=owner,
        held_by=held_by,
        metadata=metadata,
        fencing_token=fencing_token,
        renewal=renewal,
        acquired_at=granted,
        expires_at=granted + expires_in,
        free_at=granted + free_in,
        deadline=granted + max_hold,
        ttl=ttl,
        hold_at_least=hold_at_least,
        lock_delay=lock_delay,
        late=result.get_value(row, 15) == _TRUE,
        forced=result.get_value(row, 16) == _TRUE,
        marked_until=_int(result, row, 17),
    )


def _values(record: Record) -> Values:
    """The record as the statement that writes it takes it."""
    granted = record.acquired_at
    numbers = (
        record.fencing_token, record.renewal, granted, record.expires_at - granted, record.free_at - granted,
        record.deadline - granted, record.ttl, record.hold_at_least, record.lock_delay,
    )  # fmt: skip
    return (
        record.token, record.owner, record.held_by, record.metadata, *map(_number, numbers), _flag(record.late),
        _flag(record.forced), _number(record.marked_until),
    )  # fmt: skip
