"""MySQL and MariaDB as a database of records: which statements do what the SQL store asks for. It decides nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from leased.clocks import now
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Acquire, Claim, Held, Lease, Operation
from leased.store import Outcome
from leased.stores._mysql_failures import DUPLICATE, LOCKED, NO_TABLE, Trouble, failure
from leased.stores._mysql_packets import Answer
from leased.stores._mysql_statements import Statements
from leased.stores._sql_memory import Memory
from leased.stores._sql_record import (
    NEVER_GRANTED,
    REPLAY,
    SECOND,
    Record,
    Seen,
    asked,
    digest_of,
    microseconds,
    written_terms,
)
from leased.stores._sql_rules import Effect
from leased.stores._sql_session import UNSETTLED, Call, NoTables, RolledBack, Unsettled, key_of, settled, token_of
from leased.stores._standing import ServerClock

_NO_RIGHT = 1142
_ROW_WAIT = 1.2  # a second, as the settings of a connection say, and the way
_NO_WAIT = 0.1  # a nap, and the way


class Link(Protocol):
    """A connection that runs one statement at a time; see `leased.stores._mysql_link`."""

    async def ask(self, statement: str, *, seconds: float) -> Answer:
        """The answer within so many seconds, or `Trouble`."""
        ...

    async def change(self, statement: str, *, seconds: float) -> Answer:
        """The same for a statement that has no rows to answer."""
        ...

    def idle(self) -> bool:
        """Whether no exchange is open."""
        ...

    def usable(self) -> bool:
        """See `leased.stores._pool`."""
        ...

    def close(self) -> None:
        """See `leased.stores._pool`."""
        ...


class Duplicate(RolledBack):
    """A row was there already."""


class MysqlSession:
    """See `leased.stores._sql_session.Session`. Statements by themselves are committed by themselves."""

    def __init__(
        self,
        link: Link,
        statements: Statements,
        *,
        place: str,
        clock: ServerClock,
        time: Callable[[], float],
        memory: Memory,
        ring: Callable[[str], None],
        at_once: str,
    ) -> None:
        """`place` is for messages, `time` is what `clock` compares with, `ring` is told of keys that were freed, and
        `at_once` stands before what may not wait for a lock; empty where the server has no words for that."""
        self._link = link
        self._statements = statements
        self._place = place
        self._clock = clock
        self._time = time
        self._memory = memory
        self._ring = ring
        self._at_once = at_once
        self._within = False
        self._now = 0

    def idle(self) -> bool:
        """See `Session`."""
        return not self._within and self._link.idle()

    def usable(self) -> bool:
        """See `Session`."""
        return not self._within and self._link.usable()

    def close(self) -> None:
        """See `Session`."""
        self._link.close()

    async def grant(self, claim: Claim, *, call: Call) -> Held | None:
        """See `Session`. It needs no look afterwards: what was granted is what was asked for, from that instant on.

        A new row and one that is there are two statements, for one that does both would cost as much as both.
        """
        name = claim.key.encode()
        if self._memory.is_new(claim.key):
            with contextlib.suppress(Duplicate):
                first = self._statements.grant_first(name, claim, ahead=call.ahead)
                return _granted(claim, (await self._change(first, call, writing=True)).number)
        after = self._statements.grant_next(name, asked(claim), ahead=call.ahead)
        answer = await self._change(after, call, writing=True)
        return _granted(claim, answer.number) if answer.changed else None

    async def extend(self, key: str, token: str, *, call: Call, ttl: float, number: int) -> Held | None:
        """See `Session`."""
        name, digest = key.encode(), digest_of(token)
        statement = self._statements.extend(name, digest, length=microseconds(ttl), number=number, ahead=call.ahead)
        if not (await self._change(statement, call, writing=True)).changed:
            return None
        try:
            seen = await self.look(key, None, call=call)
        except StoreUnavailable as error:
            raise type(error)(error.message, applied=True, hint=error.hint) from error
        record = seen.record
        if record is None or not record.has(digest) or record.renewal != number or not record.held(seen.now):
            return None
        return record.answer(key, token, now=seen.now)

    async def free(self, key: str, token: str, *, call: Call) -> bool | None:
        """See `Session`."""
        statement = self._statements.free(key.encode(), digest_of(token), ahead=call.ahead)
        if not (await self._change(statement, call, writing=True)).changed:
            return None
        self._ring(key)
        return True

    async def look(self, key: str, token: str | None, *, call: Call) -> Seen:
        """See `Session`."""
        digest = None if token is None else digest_of(token)
        asked_at = self._time()
        answer = await self._ask(self._statements.look(key.encode(), digest, ahead=call.ahead), call)
        instant, reason, until, name, *columns = answer.rows[0]
        self._clock.read((instant - call.ahead) / SECOND, asked_at=asked_at)
        mark = reason.decode() if reason is not None and until > instant else None
        return Seen(None if name is None else _record(columns), mark, instant)

    async def lock(self, key: str, token: str | None, *, call: Call) -> Seen:
        """See `Session`. A key without a record gets an empty one, or there would be nothing to lock."""
        await self._begin(call)
        await self._change(self._statements.ensure(key.encode(), NEVER_GRANTED), call)
        seen = await self.look(key, token, call=call)
        self._now = seen.now
        return Seen(None, seen.mark, seen.now) if seen.record == NEVER_GRANTED else seen

    async def finish(self, key: str, effect: Effect | None, *, call: Call) -> None:
        """See `Session`."""
        if effect is None:
            await self._end("ROLLBACK", call)
            return
        await self._change(self._statements.replace([(key.encode(), effect.record)]), call)
        await self._mark(effect.marks, call)
        await self._end("COMMIT", call)
        if effect.freed:
            self._ring(key)

    async def batch(self, operations: Sequence[Operation], *, call: Call) -> list[Outcome | Unsettled]:
        """See `Session`. What others have locked stays unsettled, and what needs a new record but is no grant."""
        places = {key_of(operation).encode(): place for place, operation in enumerate(operations)}
        keys = sorted(places)
        await self._begin(call)
        rows = (await self._ask(self._statements.lock_all(keys, ahead=call.ahead), call)).rows
        found: dict[bytes, Record | None] = {key: _record(columns) for _, key, *columns in rows}
        instant = max((row[0] for row in rows), default=0)
        missing = [key for key in keys if key not in found]
        if missing:
            present = (await self._ask(self._statements.present(missing, ahead=call.ahead), call)).rows
            instant = max(instant, *(row[0] for row in present))
            found |= dict.fromkeys(set(missing) - {row[1] for row in present})
        self._now = instant
        tokens = {key: digest_of(token_of(operations[places[key]])) for key in found}
        watched = [tokens[key] for key, record in found.items() if record is not None and record.marked_until > instant]
        reasons: dict[bytes, str] = {}
        if watched:
            statement = self._statements.marked(watched, now=instant)
            reasons = {token: reason.decode() for token, reason in (await self._ask(statement, call)).rows}
        outcomes: list[Outcome | Unsettled] = [UNSETTLED] * len(operations)
        effects: dict[bytes, Effect] = {}
        for key in filter(found.__contains__, keys):
            operation = operations[places[key]]
            outcome, effect = settled(operation, Seen(found[key], reasons.get(tokens[key]), instant))
            if effect is not None and found[key] is None and not isinstance(operation, Acquire):
                continue
            outcomes[places[key]] = outcome
            if effect is not None:
                effects[key] = effect
        await self._write_all(effects, call, fresh={key for key in effects if found[key] is None})
        return outcomes

    async def page(self, prefix: str, *, call: Call, after: str, limit: int) -> tuple[list[tuple[str, Record]], int]:
        """See `Session`."""
        statement = self._statements.page(prefix.encode(), after=after.encode(), limit=limit, ahead=call.ahead)
        rows = (await self._ask(statement, call)).rows
        page = [(key.decode(errors="replace"), _record(columns)) for _, key, *columns in rows]
        return page, max((row[0] for row in rows), default=0)

    async def expect(self, key: str, *, call: Call) -> None:
        """See `Session`. Only this process tells this process: there is nothing to ask of the server."""

    async def sweep(self, most: int, *, call: Call) -> None:
        """See `Session`. It goes through the table by key, so many rows at a time, and then begins again."""
        statement = self._statements.step(self._memory.after, most=most, ahead=call.ahead)
        asked_at = self._time()
        rows: dict[str, list[tuple[bytes, bytes]]] = {}
        for word, namespace, key, number in (await self._ask(statement, call)).rows:
            rows.setdefault(word, []).append((namespace, key))
            if word == "clock":
                self._clock.read((number - call.ahead) / SECOND, asked_at=asked_at)
        (self._memory.after,) = rows.get("last", [(b"", b"")])
        over = rows.get("over")
        if not over and "mark" not in rows:
            return
        await self._begin(call)
        if over:
            locked = (await self._ask(self._statements.lock_over(over, ahead=call.ahead), call)).rows
            if locked:
                await self._change(self._statements.delete([(row[0], row[1]) for row in locked]), call)
        await self._sweep_marks(most, call)
        await self._end("COMMIT", call)

    async def create(self, call: Call) -> None:
        """See `Session`."""
        for statement in self._statements.create():
            try:
                await self._link.ask(statement, seconds=call.left())
            except Trouble as found:
                if found.number == _NO_RIGHT:
                    raise StoreNotUsable(
                        f"{self._place} has no tables for locks yet, and this account may not make them: {found.said}",
                        hint="let somebody who may run what `leased schema URL` prints",
                    ) from found
                if found.conflict:
                    raise RolledBack(failure(found, place=self._place, writing=False)) from found
                raise failure(found, place=self._place, writing=False) from found

    async def _write_all(self, effects: dict[bytes, Effect], call: Call, *, fresh: set[bytes]) -> None:
        """Write and commit the effects, by key. If somebody else was quicker with a fresh one all of it is undone."""
        known = [(key, effect.record) for key, effect in effects.items() if key not in fresh]
        if known:
            await self._change(self._statements.replace(known), call)
        if fresh:
            await self._change(self._statements.insert([(key, effects[key].record) for key in sorted(fresh)]), call)
        await self._mark([mark for effect in effects.values() for mark in effect.marks], call)
        await self._end("COMMIT", call)
        for key, effect in effects.items():
            if effect.freed:
                self._ring(key.decode())

    async def _mark(self, marks: Sequence[tuple[bytes, str]], call: Call) -> None:
        """Add marks, and delete more than are added, so that they never pile up."""
        if marks:
            await self._sweep_marks(2 * len(marks), call)
            await self._change(self._statements.mark(sorted(marks), now=self._now, until=self._now + REPLAY), call)

    async def _sweep_marks(self, most: int, call: Call) -> None:
        over = (await self._ask(self._statements.lock_marks_over(most=most, ahead=call.ahead), call)).rows
        if over:
            await self._change(self._statements.delete_marks([(row[0], row[1]) for row in over]), call)

    async def _begin(self, call: Call) -> None:
        self._within = True  # first: whatever ends this call, the connection is not used with half a transaction
        await self._ask("START TRANSACTION", call, by=self._link.change)

    async def _end(self, statement: str, call: Call) -> None:
        await self._ask(statement, call, by=self._link.change, writing=statement == "COMMIT")
        self._within = False

    async def _change(self, statement: str, call: Call, *, writing: bool = False) -> Answer:
        """The answer of a statement that may meet somebody's lock. If the server waited for longer than the caller, he
        would not learn that nothing was changed, and the connection would be lost. What skips locked rows is never
        asked like that: MariaDB ends it with an error where there are any."""
        hurry = self._at_once if call.patience() < _ROW_WAIT else ""
        return await self._ask(hurry + statement, call, by=self._link.change, writing=writing)

    async def _ask(
        self, statement: str, call: Call, *, by: Callable[..., Awaitable[Answer]] | None = None, writing: bool = False
    ) -> Answer:
        """The answer, `by` the link's way; `writing`: if none comes, nobody knows whether it had its effect."""
        left = call.left()
        if left <= 0:
            raise StoreUnavailable(f"there was no time left to ask {self._place}", applied=False)
        try:
            return await (by or self._link.ask)(statement, seconds=left)
        except Trouble as found:
            await self._undo(call)
            if found.number == NO_TABLE:
                raise NoTables from found
            error = failure(found, place=self._place, writing=writing)
            if found.conflict and not self._too_late(found, call):
                raise (Duplicate if found.number == DUPLICATE else RolledBack)(error) from found
            raise error from found

    def _too_late(self, found: Trouble, call: Call) -> bool:
        """Whether somebody keeps a lock, and there is no time for the server to say so once more."""
        short = call.left() < _NO_WAIT if self._at_once else call.patience() < _ROW_WAIT
        return found.number in LOCKED and short

    async def _undo(self, call: Call) -> None:
        """Undo a transaction, so that the connection can go on; where that fails too it is dropped."""
        if self._within and self._link.usable():
            with contextlib.suppress(Trouble):
                await self._link.ask("ROLLBACK", seconds=call.left())
                self._within = False


def saying(link: Link, *, place: str, until: float) -> Callable[[str], Awaitable[tuple[tuple[Any, ...], ...]]]:
    """Asks one question after the other, all before one instant, and gives their rows."""

    async def ask(statement: str) -> tuple[tuple[Any, ...], ...]:
        try:
            return (await link.ask(statement, seconds=max(0.001, until - now()))).rows
        except Trouble as found:
            raise failure(found, place=place, writing=False) from found

    return ask


def _granted(claim: Claim, number: int) -> Held:
    _, _, length, _, _, ttl, *_ = written_terms(claim.ttl, claim.terms)
    return Held(Lease(claim.key, claim.token, number, ttl / SECOND, claim.owner, length / SECOND))


def _record(columns: Sequence[Any]) -> Record:
    *most, late, forced, marked_until = columns
    return Record._make((*most, bool(late), bool(forced), marked_until))
