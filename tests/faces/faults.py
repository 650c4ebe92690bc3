"""A store around a store that does what networks do: loses requests and answers, is slow, hangs, refuses, dies."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
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
from leased.store import Bell, Clock, Outcome, Store, unwatched


@dataclass(frozen=True, slots=True)
class Call:
    """One operation as it was asked for."""

    operation: str
    key: str
    token: str
    timeout: float
    at: float
    batched: bool = False


Step = Callable[[Call], Awaitable[None]]


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` calls of one operation (on one key, or on all)."""

    operation: str
    key: str | None
    times: float
    before: Step | None = None
    after: Step | None = None


class FaultyStore:
    """The store within, with faults on order; it remembers every call, and how many requests they were."""

    mode: Literal["blocking", "async", "any"] = "any"

    def __init__(self, store: Store, clock: Clock) -> None:
        self.within = store
        self.clock = clock
        self.calls: builtins.list[Call] = []
        self.requests = 0
        self.watches = 0
        self.deaf = False
        self.down = False
        self.closed = False
        self._faults: builtins.list[Fault] = []
        self.hanging: builtins.list[Any] = []

    def asked(self, operation: str, *, key: str | None = None) -> int:
        """How often an operation was asked for."""
        return sum(call.operation == operation and key in (None, call.key) for call in tuple(self.calls))

    def before(self, operation: str, step: Step, *, key: str | None = None, times: float = 1) -> None:
        """Run `step` before the store gets the next such calls."""
        self._faults.append(Fault(operation, key, times, before=step))

    def after(self, operation: str, step: Step, *, key: str | None = None, times: float = 1) -> None:
        """Run `step` after the store has done the next such calls, before the caller learns it."""
        self._faults.append(Fault(operation, key, times, after=step))

    def fail(self, operation: str, error: BaseException, *, key: str | None = None, times: float = 1) -> None:
        """Raise this instead of asking the store."""

        async def refuse(call: Call) -> None:
            raise error

        self.before(operation, refuse, key=key, times=times)

    def lose_request(self, operation: str, *, key: str | None = None, times: float = 1) -> None:
        """The request never arrives, and nobody can know."""
        self.fail(operation, StoreUnavailable("the connection broke"), key=key, times=times)

    def lose_answer(self, operation: str, *, key: str | None = None, times: float = 1) -> None:
        """The store does it, and the answer is lost."""

        async def cut(call: Call) -> None:
            raise StoreUnavailable("the connection broke")

        self.after(operation, cut, key=key, times=times)

    def delay(self, operation: str, seconds: float, *, key: str | None = None, times: float = 1) -> None:
        """The request is on its way for so long."""

        async def sleep(call: Call) -> None:
            await self.clock.sleep(seconds)

        self.before(operation, sleep, key=key, times=times)

    def delay_answer(self, operation: str, seconds: float, *, key: str | None = None, times: float = 1) -> None:
        """The answer is on its way for so long."""

        async def sleep(call: Call) -> None:
            await self.clock.sleep(seconds)

        self.after(operation, sleep, key=key, times=times)

    def hang(
        self, operation: str, *, key: str | None = None, times: float = float("inf"), past_timeout: bool = False
    ) -> None:
        """The request hangs until its time-out (`past_timeout`: also after that), or until `let_go`."""

        async def wait(call: Call) -> None:
            signal = self.clock.signal()
            self.hanging.append(signal)
            if self.down or not await signal.wait(1e6 if past_timeout else call.timeout):
                raise StoreUnavailable("no answer within the time-out")

        self.before(operation, wait, key=key, times=times)

    def let_go(self) -> None:
        """No more faults; what hangs goes on."""
        self._faults.clear()
        for signal in self.hanging:
            signal.set()
        self.hanging.clear()

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        answer: Held | Contended = await self._request(Acquire(claim), timeout)
        return answer

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        answer: Held | Lost = await self._request(Renew(key, token, ttl, number), timeout)
        return answer

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        answer: Released = await self._request(Release(key, token, late), timeout)
        return answer

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        await self._request(Abandon(key, token, heard), timeout)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        answer: Held | Lost = await self._request(Look(key, token), timeout)
        return answer

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""
        self.requests += 1
        status: Status = await self._call(
            "status", key, "", timeout=timeout, work=lambda: self.within.status(key, timeout=timeout)
        )
        return status

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""
        self.requests += 1
        page: list[Status] = await self._call(
            "list",
            prefix,
            "",
            timeout=timeout,
            work=lambda: self.within.list(prefix, after=after, limit=limit, timeout=timeout),
        )
        return page

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        self.requests += 1
        done: bool = await self._call(
            "force_release",
            key,
            "",
            timeout=timeout,
            work=lambda: self.within.force_release(key, fencing_token=fencing_token, timeout=timeout),
        )
        return done

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`. A deaf store watches nothing."""
        self.requests += 1
        self.watches += 1
        stop: Callable[[], None] = await self._call("watch", key, "", timeout=5.0, work=lambda: self._watch(key, bell))
        return stop

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`."""
        self.requests += 1
        outcomes: builtins.list[Outcome] = []
        for operation in operations:
            try:
                outcomes.append(await self._operate(operation, timeout=timeout, batched=True))
            except LeasedError as error:
                outcomes.append(error)
        return outcomes

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return self.within.assurance()

    async def close(self) -> None:
        """See `leased.store`."""
        self.closed = True
        await self.within.close()

    async def _watch(self, key: str, bell: Bell) -> Callable[[], None]:
        return unwatched if self.deaf else await self.within.watch(key, bell)

    async def _request(self, operation: Operation, timeout: float) -> Any:
        self.requests += 1
        return await self._operate(operation, timeout=timeout, batched=False)

    async def _operate(self, operation: Operation, *, timeout: float, batched: bool) -> Any:
        of = operation.claim if isinstance(operation, Acquire) else operation
        return await self._call(
            type(operation).__name__.lower(),
            of.key,
            of.token,
            timeout=timeout,
            batched=batched,
            work=lambda: self._within(operation, timeout),
        )

    async def _within(self, operation: Operation, timeout: float) -> Outcome:
        (outcome,) = await self.within.many([operation], timeout=timeout)
        if isinstance(outcome, LeasedError):
            raise outcome
        return outcome

    async def _call(
        self,
        operation: str,
        key: str,
        token: str,
        *,
        timeout: float,
        work: Callable[[], Awaitable[Any]],
        batched: bool = False,
    ) -> Any:
        call = Call(operation, key, token, timeout, self.clock.now(), batched)
        self.calls.append(call)
        if self.down:
            raise StoreUnavailable("the store is down")
        before = self._next(operation, key, lambda fault: fault.before)
        after = self._next(operation, key, lambda fault: fault.after)
        if before is not None:
            await before(call)
        outcome = await work()
        if after is not None:
            await after(call)
        return outcome

    def _next(self, operation: str, key: str, step_of: Callable[[Fault], Step | None]) -> Step | None:
        """The first fault that is due for this call, which counts down."""
        for fault in self._faults:
            step = step_of(fault)
            if step is not None and fault.operation == operation and fault.key in (None, key) and fault.times > 0:
                fault.times -= 1
                return step
        return None
