"""The store in a database, whichever: fast statements first, then a look, then a short transaction by the rules."""

from __future__ import annotations

import builtins
import contextlib
import math
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from leased.clocks import now
from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.model import (
    Abandon,
    Acquire,
    Assurance,
    Claim,
    Contended,
    Held,
    Look,
    Lost,
    Operation,
    Release,
    Released,
    Renew,
    Status,
)
from leased.store import Bell, Clock, Outcome, again, unwatched
from leased.stores import _sql_rules as rules
from leased.stores._pool import Pool
from leased.stores._sql_record import SECOND, Seen
from leased.stores._sql_session import UNSETTLED, Call, NoTables, RolledBack, Session, Unsettled, key_of
from leased.stores._standing import Standing

_T = TypeVar("_T")
_S = TypeVar("_S", bound=Session)
_A = TypeVar("_A")
_Work: TypeAlias = Callable[[_S, Call, _A], Coroutine[Any, Any, _T]]
_SWEEP_EVERY = 512  # seldom, for it costs whoever waits for the answer
_SWEEP_MOST = 2 * _SWEEP_EVERY  # and more than can have been added since
_SWEEP_AFTER = 3_600.0
_SWEEP_TIME = 0.25
_LONGEST_NAP, _ATTEMPT = 0.05, 0.01
_FIRST_TRY = 0.25
_PATIENCE = 0.1
_WATCH_TIME = 1.0
_TRIES = 5


class Push(Protocol):
    """How releases are heard of, where the database can tell."""

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """Listen; on return the server knows."""
        ...

    def close(self) -> None:
        """End all watches."""
        ...


class SqlStore(Generic[_S]):
    """Keeps locks in two tables: rows and short statements on any connection, nothing that lives in a session.

    `offset` seconds are added to the server's clock, always 0 except in tests.
    """

    def __init__(
        self,
        pool: Pool[_S],
        *,
        mode: Literal["blocking", "async"],
        clock: Clock,
        standing: Standing,
        push: Push | None = None,
    ) -> None:
        """`clock` is that of the callers; `standing` is told by the sessions what the server gives."""
        self.offset = 0.0
        self._mode: Literal["blocking", "async"] = mode
        self._pool = pool
        self._clock = clock
        self._standing = standing
        self._push = push
        self._until_sweep = random.randint(1, _SWEEP_EVERY)  # also programs that end after a few calls sweep
        self._swept_at: float | None = None

    @property
    def mode(self) -> Literal["blocking", "async", "any"]:
        """See `leased.store`."""
        return self._mode

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        return await self._run(self._granted, claim, timeout, writes=1)

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return await self._run(_renewed, Renew(key, token, ttl, number), timeout, writes=1)

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        return await self._run(_released, Release(key, token, late), timeout, writes=1)

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        await self._run(_abandoned, Abandon(key, token, heard), timeout, writes=1)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return await self._run(_looked, Look(key, token), timeout)

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""
        return await self._run(_shown, key, timeout)

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""

        async def listed(session: _S, call: Call, last: str) -> builtins.list[Status]:
            found: builtins.list[Status] = []
            most = limit
            while most > 0:
                page, instant = await session.page(prefix, call=call, after=last, limit=most)
                shown = (record.status(key, now=instant) for key, record in page)
                found += [status for status in shown if status.state != "free"]  # as it is after a clock was set back
                if len(page) < most:
                    break
                last, most = page[-1][0], limit - len(found)
            return found

        return await self._run(listed, after, timeout)

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""

        async def forced(session: _S, call: Call, number: int | None) -> bool:
            decide = partial(rules.force_release, fencing_token=number)
            return await _by_the_rules(session, call, key=key, token=None, decide=decide)

        return await self._run(forced, fencing_token, timeout, writes=1)

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`."""
        self._pool.check_open()
        if self._push is None:
            return unwatched
        end = await self._push.watch(key, bell)
        if end is unwatched:
            return end
        try:
            await self._run(_expected, key, _WATCH_TIME)
        except BaseException:
            end()
            raise
        return end

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`. Members that the statements for all could not settle are asked one by one.

        All wait for the slowest of them, so together they wait only a moment for rows that somebody else has locked.
        """
        until = now() + timeout
        outcomes = await self._together(operations, timeout)
        rest = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, Unsettled)]
        patience = math.inf if len(operations) == 1 else _PATIENCE
        for count, place in enumerate(rest):
            began = now()
            left = max(0.0, until - began)
            share = max(left / (len(rest) - count), min(left, _FIRST_TRY))
            outcomes[place] = outcome = await self._by_itself(operations[place], share, patience=patience)
            if isinstance(outcome, StoreUnavailable):
                patience = max(0.0, patience - (now() - began))
        return cast("Sequence[Outcome]", outcomes)

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return self._standing.assurance

    async def close(self) -> None:
        """See `leased.store`. Watches end too."""
        self._pool.close()
        if self._push is not None:
            self._push.close()

    async def _granted(self, session: _S, call: Call, claim: Claim) -> Held | Contended:
        self._standing.check()
        held = await session.grant(claim, call=call)
        if held is not None:
            return held
        decide = partial(rules.acquire, claim=claim)
        return await _by_the_rules(session, call, key=claim.key, token=claim.token, decide=decide)

    async def _by_itself(self, operation: Operation, timeout: float, *, patience: float) -> Outcome:
        """The outcome of one member, with so many seconds to wait for what others have locked."""
        try:
            return await self._run(self._done, operation, timeout, writes=1, patience=patience)
        except LeasedError as error:
            return error

    async def _done(self, session: _S, call: Call, operation: Operation) -> Outcome:
        match operation:
            case Acquire(claim):
                return await self._granted(session, call, claim)
            case Renew():
                return await _renewed(session, call, operation)
            case Release():
                return await _released(session, call, operation)
            case Abandon():
                await _abandoned(session, call, operation)
                return None
            case Look():
                return await _looked(session, call, operation)

    async def _together(self, operations: Sequence[Operation], timeout: float) -> builtins.list[Outcome | Unsettled]:
        """What statements for all of them settle; the second operation on a key waits for its turn."""
        outcomes: builtins.list[Outcome | Unsettled] = [UNSETTLED] * len(operations)
        places: dict[str, int] = {}
        for place, operation in enumerate(operations):
            places.setdefault(key_of(operation), place)
        if len(places) < 2:
            return outcomes
        chosen = sorted(places.values())
        grants = [place for place in chosen if isinstance(operations[place], Acquire)]

        async def batch(session: _S, call: Call, sent: builtins.list[int]) -> None:
            refusal = self._refusal() if grants else None
            if refusal is not None:  # what is held must still end
                sent = [place for place in chosen if place not in grants]
                for place in grants:
                    outcomes[place] = again(refusal)
            if sent:
                found = await session.batch([operations[place] for place in sent], call=call)
                for place, outcome in zip(sent, found, strict=True):
                    outcomes[place] = outcome

        try:
            await self._run(batch, chosen, timeout, writes=len(chosen))
        except StoreUnavailable as error:
            for place in chosen:
                if isinstance(outcomes[place], Unsettled):
                    outcomes[place] = again(error)
        return outcomes

    def _refusal(self) -> StoreUnavailable | None:
        """Why nothing may be granted here."""
        try:
            self._standing.check()
        except StoreNotUsable as error:
            return error
        return None

    async def _run(
        self, work: _Work[_S, _A, _T], given: _A, timeout: float, *, writes: int = 0, patience: float = math.inf
    ) -> _T:
        """Do the work on a connection, again if the server undid it, and once the tables are made if there are none."""
        began = now()
        call = Call(began + timeout, int(self.offset * SECOND), began + patience)
        attempt, left = 0, timeout
        while True:
            session = await self._pool.take(left)
            try:
                answer = await work(session, call, given)
                if writes and self._due(writes, at=began + self.offset):
                    await self._sweep(session, call)
            except RolledBack as undone:
                nap = min(_LONGEST_NAP, 0.001 * 2**attempt) * random.random()
                if call.patience() <= nap + _ATTEMPT:  # better than an end in the middle of one more
                    raise undone.error from undone
            except NoTables:
                nap = 0.0
                if attempt > _TRIES:
                    raise StoreNotUsable("the tables vanish again and again", hint="see who drops them") from None
                await self._create(session, call)
            else:
                return answer
            finally:
                if session.idle():
                    self._pool.give(session)
                else:
                    self._pool.drop(session)
            attempt += 1
            await self._clock.sleep(nap)
            left = call.left()

    def _due(self, writes: int, *, at: float) -> bool:
        """Whether it is time to sweep: after so many writes, or after an hour."""
        self._until_sweep -= writes
        if self._swept_at is None:
            self._swept_at = at
        if self._until_sweep > 0 and at - self._swept_at < _SWEEP_AFTER:
            return False
        self._until_sweep, self._swept_at = _SWEEP_EVERY, at
        return True

    async def _create(self, session: _S, call: Call) -> None:
        with contextlib.suppress(RolledBack):  # somebody else makes them as well: they are there now, or soon
            await session.create(call)

    async def _sweep(self, session: _S, call: Call) -> None:
        """A clean-up that fails or takes too long costs its connection, and nobody his answer."""
        with contextlib.suppress(LeasedError, RolledBack, NoTables):
            await session.sweep(_SWEEP_MOST, call=Call(min(call.until, now() + _SWEEP_TIME), call.ahead))


async def _renewed(session: Session, call: Call, asked: Renew) -> Held | Lost:
    key, token, ttl, number = asked.key, asked.token, asked.ttl, asked.number
    held = await session.extend(key, token, call=call, ttl=ttl, number=number)
    if held is not None:
        return held
    decide = partial(rules.renew, key=key, token=token, ttl=ttl, number=number)
    return await _by_the_rules(session, call, key=key, token=token, decide=decide)


async def _released(session: Session, call: Call, asked: Release) -> Released:
    if not asked.late and await session.free(asked.key, asked.token, call=call):
        return Released()
    decide = partial(rules.release, token=asked.token, late=asked.late)
    return await _by_the_rules(session, call, key=asked.key, token=asked.token, decide=decide)


async def _abandoned(session: Session, call: Call, asked: Abandon) -> None:
    seen = await session.lock(asked.key, asked.token, call=call)
    await session.finish(asked.key, rules.abandon(seen, token=asked.token, heard=asked.heard), call=call)


async def _looked(session: Session, call: Call, asked: Look) -> Held | Lost:
    return rules.look(await session.look(asked.key, asked.token, call=call), key=asked.key, token=asked.token)


async def _shown(session: Session, call: Call, key: str) -> Status:
    return rules.status(await session.look(key, None, call=call), key=key)


async def _expected(session: Session, call: Call, key: str) -> None:
    await session.expect(key, call=call)


async def _by_the_rules(
    session: Session,
    call: Call,
    *,
    key: str,
    token: str | None,
    decide: Callable[[Seen], tuple[_T, rules.Effect | None]],
) -> _T:
    """Look, which settles it where nothing is to be written; else decide again with the key locked."""
    answer, effect = decide(await session.look(key, token, call=call))
    if effect is None:
        return answer
    answer, effect = decide(await session.lock(key, token, call=call))
    await session.finish(key, effect, call=call)
    return answer
