"""A store around a store: what callers ask at the same time leaves as one batch. It changes no answer."""

from __future__ import annotations

import builtins
import math
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from leased.errors import LeasedError, StoreUnavailable
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
from leased.store import Bell, Clock, Outcome, Signal, Store, again, one

_MAX_BATCH = 512
_BUSY: Any = object()


class _Member:
    """One caller's operation on its way: waiting, then sent, then answered."""

    leads = False  # set: this member is to see that the next batch leaves
    batch: Sequence[_Member] = ()  # what it took along, until that is answered
    answered = False
    outcome: Outcome = None

    def __init__(self, operation: Operation, *, give_up_at: float, signal: Signal) -> None:
        self.operation = operation
        self.give_up_at = give_up_at
        self.signal = signal


class _Lone:
    """A caller with nobody beside him."""

    leads = False  # set: nobody else may call the store until this one has passed the lead on
    batch: Sequence[_Member] = ()


class Joined:
    """Sends one batch at a time: those who ask in one turn of a loop, or while a call is on its way, leave together.

    A caller with nobody beside him goes straight to the store, which keeps his time-out and sees to the end of what he
    cancels. Batches run to their end whatever becomes of a caller: a cancelled one only stops listening (before
    sending it is taken out), a cancelled leader does not take the others down, and nobody waits beyond his `timeout`.
    """

    def __init__(self, store: Store, clock: Clock, *, keeps_line: bool = False) -> None:
        """`keeps_line`: the store has a line of its own, in which no waiting claim may hold up a batch."""
        self._store = store
        self._clock = clock
        self._keeps_line = keeps_line
        self._mutex = threading.Lock()
        self._busy = False
        self._crowded = False  # the last call had company: whoever comes waits one turn for others
        self._waiting: list[_Member] = []

    @property
    def mode(self) -> Literal["blocking", "async", "any"]:
        """As the store within."""
        return self._store.mode

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        if claim.wait > 0 and self._keeps_line:
            return await self._store.acquire(claim, timeout=timeout)
        outcome: Held | Contended
        if not self._busy and not self._crowded:
            outcome = await self._alone(self._store.acquire(claim, timeout=timeout))
            if outcome is not _BUSY:
                return outcome
        outcome = await self._ask_with_others(Acquire(claim), timeout=timeout)
        return outcome

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        outcome: Held | Lost
        if not self._busy and not self._crowded:
            outcome = await self._alone(self._store.renew(key, token, ttl=ttl, number=number, timeout=timeout))
            if outcome is not _BUSY:
                return outcome
        outcome = await self._ask_with_others(Renew(key, token, ttl, number), timeout=timeout)
        return outcome

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        outcome: Released
        if not self._busy and not self._crowded:
            outcome = await self._alone(self._store.release(key, token, late=late, timeout=timeout))
            if outcome is not _BUSY:
                return outcome
        outcome = await self._ask_with_others(Release(key, token, late), timeout=timeout)
        return outcome

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        if await self._alone(self._store.abandon(key, token, heard=heard, timeout=timeout)) is _BUSY:
            await self._ask_with_others(Abandon(key, token, heard), timeout=timeout)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        outcome: Held | Lost = await self._alone(self._store.look(key, token, timeout=timeout))
        if outcome is _BUSY:
            outcome = await self._ask_with_others(Look(key, token), timeout=timeout)
        return outcome

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""
        return await self._store.status(key, timeout=timeout)

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""
        return await self._store.list(prefix, after=after, limit=limit, timeout=timeout)

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        return await self._store.force_release(key, fencing_token=fencing_token, timeout=timeout)

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`."""
        return await self._store.watch(key, bell)

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`: a batch already, it does not wait for others."""
        return await self._store.many(operations, timeout=timeout)

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return self._store.assurance()

    async def close(self) -> None:
        """See `leased.store`."""
        await self._store.close()

    async def _alone(self, call: Coroutine[Any, Any, Any]) -> Any:
        """What the store answers to a call; `_BUSY`, and the call is not made, if others are under way after all."""
        lone = _Lone()
        try:
            try:
                with self._mutex:
                    if not self._busy and not self._crowded:
                        lone.leads = self._busy = True
                if lone.leads:
                    return await call
            finally:
                if lone.leads:
                    self._pass_on(lone)
        except BaseException:
            call.close()
            if lone.leads:  # an interrupt came while the lead was passed on
                self._pass_on(lone)
            self._wake_leader()
            raise
        call.close()
        return _BUSY

    async def _ask_with_others(self, operation: Operation, *, timeout: float) -> Any:
        clock, left = self._clock, timeout
        member = _Member(operation, give_up_at=clock.now() + timeout, signal=clock.signal())
        try:
            with self._mutex:
                self._waiting.append(member)
                member.leads, self._busy = not self._busy, True
            while True:
                if member.leads:
                    clock.start(self._serve(member))
                if member.answered:
                    break
                if left <= 0:
                    self._give_up(member)
                    break
                await member.signal.wait(left)
                if not member.answered:
                    left = member.give_up_at - clock.now()
        except BaseException:
            self._withdraw(member)
            if self._store.mode == "blocking":  # what it had begun to serve ends with it
                self._recover(member)
            raise
        if isinstance(member.outcome, LeasedError):
            raise member.outcome
        return member.outcome

    async def _serve(self, leader: _Member) -> None:
        """Send one batch, answer its members, and pass the lead on, whatever happens."""
        batch = self._take(leader)
        if batch is None:
            return
        try:
            outcomes = await self._send(batch)
        except LeasedError as error:
            outcomes = [again(error) if isinstance(error, StoreUnavailable) else error for _ in batch]
        except BaseException:
            self._answer(leader, [_unknown()] * len(batch))
            raise
        self._answer(leader, outcomes)

    def _answer(self, leader: _Member, outcomes: Sequence[Outcome]) -> None:
        for member, outcome in zip(leader.batch, outcomes, strict=True):
            if not member.answered:
                member.outcome, member.answered = outcome, True
            member.signal.set()
        self._pass_on(leader)

    def _take(self, leader: _Member) -> builtins.list[_Member] | None:
        """Those who leave now; `None` when the leader has gone meanwhile, and the lead with it.

        A leader that blocks until they are answered takes nobody along who is more patient.
        """
        with self._mutex:
            if not leader.leads:
                return None
            batch, others = self._waiting, builtins.list[_Member]()
            if self._store.mode == "blocking" or len(batch) > _MAX_BATCH:
                patience = leader.give_up_at if self._store.mode == "blocking" else math.inf
                batch = []
                for member in self._waiting:
                    goes = member.give_up_at <= patience and len(batch) < _MAX_BATCH
                    (batch if goes else others).append(member)
            self._crowded = len(batch) > 1
            leader.batch, self._waiting, leader.leads = batch, others, False
        return batch

    async def _send(self, batch: builtins.list[_Member]) -> Sequence[Outcome]:
        now = self._clock.now()
        if len(batch) == 1:
            return [await one(self._store, batch[0].operation, timeout=max(0.0, batch[0].give_up_at - now))]
        timeout = max(0.0, max([member.give_up_at for member in batch]) - now)
        return await self._store.many([member.operation for member in batch], timeout=timeout)

    def _pass_on(self, leader: _Member | _Lone) -> None:
        """Let the most patient of those who wait lead them all, instead of this one."""
        with self._mutex:
            if not self._waiting:
                leader.leads, leader.batch, self._busy = False, (), False
                return
            next_one = max(self._waiting[:_MAX_BATCH], key=_patience)
            leader.leads, leader.batch = False, ()
            next_one.leads = self._crowded = True
        next_one.signal.set()

    def _withdraw(self, member: _Member) -> bool:
        """This caller listens no more; true if its operation had not left yet. Another one takes over its lead."""
        with self._mutex:
            unsent = member in self._waiting
            if unsent:
                self._waiting.remove(member)
        if member.leads:
            self._pass_on(member)
        return unsent

    def _recover(self, member: _Member) -> None:
        """The thread that served was interrupted, wherever that was: end what it had begun, and let others go on."""
        if member.batch:
            self._answer(member, [_unknown()] * len(member.batch))
        self._wake_leader()

    def _wake_leader(self) -> None:
        """After an interrupt: whoever was given the lead may not have been told."""
        for other in tuple(self._waiting):
            if other.leads:
                other.signal.set()

    def _give_up(self, member: _Member) -> None:
        """Its time is up: raise what is known of it, unless its answer has come in this instant."""
        if self._withdraw(member):
            raise StoreUnavailable("the store was busy with earlier calls until the time-out", applied=False)
        if not member.answered:
            raise _unknown()


def _patience(member: _Member) -> float:
    return member.give_up_at


def _unknown() -> StoreUnavailable:
    return StoreUnavailable("the call was cut off before its answer came", applied=None)
