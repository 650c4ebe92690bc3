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
_Work: TypeAlias = Callable[[_S, Call], Coroutine[Any, Any, _T]]
_SWEEP_EVERY = 512  # seldom, for it costs whoever waits for the answer
_SWEEP_MOST = 2 * _SWEEP_EVERY  # and more than can have been added since
_SWEEP_AFTER = 3_600.0
_SWEEP_TIME = 0.25
_LONGEST_NAP = 0.05
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
        return await self._run(self._acquiring(claim), timeout, writes=1)

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return await self._run(_renewing(key, token, ttl=ttl, number=number), timeout, writes=1)

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        return await self._run(_releasing(key, token, late=late), timeout, writes=1)

    async def abandon(self, key: str, token: str, *, timeout: float) -> None:
        """See `leased.store`."""
        await self._run(_abandoning(key, token), timeout, writes=1)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return await self._run(_looking(key, token), timeout)

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""

        async def looked(session: _S, call: Call) -> Status:
            return rules.status(await session.look(key, None, call=call), key=key)

        return await self._run(looked, timeout)

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""

        async def listed(session: _S, call: Call) -> builtins.list[Status]:
            found: builtins.list[Status] = []
            last, most = after, limit
            while most > 0:
                page, instant = await session.page(prefix, call=call, after=last, limit=most)
                shown = (record.status(key, now=instant) for key, record in page)
                found += [status for status in shown if status.state != "free"]  # as it is after a clock was set back
                if len(page) < most:
                    break
                last, most = page[-1][0], limit - len(found)
            return found

        return await self._run(listed, timeout)

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""

        async def forced(session: _S, call: Call) -> bool:
            return await _by_the_rules(
                session, call, key=key, token=None, decide=partial(rules.force_release, fencing_token=fencing_token)
            )

        return await self._run(forced, timeout, writes=1)

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`."""
        self._pool.check_open()
        if self._push is None:
            return unwatched
        end = await self._push.watch(key, bell)
        if end is unwatched:
            return end
        try:
            await self._run(lambda session, call: session.expect(key, call=call), _WATCH_TIME)
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

    def _acquiring(self, claim: Claim) -> _Work[_S, Held | Contended]:
        async def granted(session: _S, call: Call) -> Held | Contended:
            self._standing.check()
            held = await session.grant(claim, call=call)
            if held is not None:
                return held
            decide = partial(rules.acquire, claim=claim)
            return await _by_the_rules(session, call, key=claim.key, token=claim.token, decide=decide)

        return granted

    async def _by_itself(self, operation: Operation, timeout: float, *, patience: float) -> Outcome:
        """The outcome of one member, with so many seconds to wait for what others have locked."""
        work: _Work[_S, Outcome]
        match operation:
            case Acquire(claim):
                work = self._acquiring(claim)
            case Renew(key, token, ttl, number):
                work = _renewing(key, token, ttl=ttl, number=number)
            case Release(key, token, late):
                work = _releasing(key, token, late=late)
            case Abandon(key, token):
                work = _abandoning(key, token)
            case Look(key, token):
                work = _looking(key, token)
        try:
            return await self._run(work, timeout, writes=1, patience=patience)
        except LeasedError as error:
            return error

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

        async def batch(session: _S, call: Call) -> None:
            refusal, sent = self._refusal() if grants else None, chosen
            if refusal is not None:  # what is held must still end
                sent = [place for place in chosen if place not in grants]
                for place in grants:
                    outcomes[place] = again(refusal)
            if sent:
                found = await session.batch([operations[place] for place in sent], call=call)
                for place, outcome in zip(sent, found, strict=True):
                    outcomes[place] = outcome

        try:
            await self._run(batch, timeout, writes=len(chosen))
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

    async def _run(self, work: _Work[_S, _T], timeout: float, *, writes: int = 0, patience: float = math.inf) -> _T:
        """Do the work on a connection, again if the server undid it, and once the tables are made if there are none."""
        began = now()
        call = Call(began + timeout, int(self.offset * SECOND), began + patience)
        attempt = 0
        while True:
            session = await self._pool.take(call.left())
            try:
                answer = await work(session, call)
                if writes and self._due(writes):
                    await self._sweep(session, call)
            except RolledBack as undone:
                nap = min(_LONGEST_NAP, 0.001 * 2**attempt) * random.random()
                if call.patience() <= nap:
                    raise undone.error from undone
            except NoTables:
                nap = 0.0
                if attempt > _TRIES:
                    raise StoreNotUsable("the tables vanish again and again", hint="see who drops them") from None
                await self._create(session, call)
            else:
                return answer
            finally:
                self._put_back(session)
            attempt += 1
            await self._clock.sleep(nap)

    def _put_back(self, session: _S) -> None:
        if session.usable():
            self._pool.give(session)
        else:
            self._pool.drop(session)

    def _due(self, writes: int) -> bool:
        """Whether it is time to sweep: after so many writes, or after an hour."""
        self._until_sweep -= writes
        at = now() + self.offset
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


def _renewing(key: str, token: str, *, ttl: float, number: int) -> _Work[Session, Held | Lost]:
    async def renewed(session: Session, call: Call) -> Held | Lost:
        held = await session.extend(key, token, call=call, ttl=ttl, number=number)
        if held is not None:
            return held
        decide = partial(rules.renew, key=key, token=token, ttl=ttl, number=number)
        return await _by_the_rules(session, call, key=key, token=token, decide=decide)

    return renewed


def _releasing(key: str, token: str, *, late: bool) -> _Work[Session, Released]:
    async def released(session: Session, call: Call) -> Released:
        if not late and await session.free(key, token, call=call):
            return Released()
        decide = partial(rules.release, token=token, late=late)
        return await _by_the_rules(session, call, key=key, token=token, decide=decide)

    return released


def _abandoning(key: str, token: str) -> _Work[Session, None]:
    async def abandoned(session: Session, call: Call) -> None:
        seen = await session.lock(key, token, call=call)
        await session.finish(key, rules.abandon(seen, token=token), call=call)

    return abandoned


def _looking(key: str, token: str) -> _Work[Session, Held | Lost]:
    async def looked(session: Session, call: Call) -> Held | Lost:
        return rules.look(await session.look(key, token, call=call), key=key, token=token)

    return looked


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
