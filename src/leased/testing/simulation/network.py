"""The lines between clients and the store: every message can be late, lost, doubled or cut off. It keeps no state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal

from leased.errors import AccessDenied, LeasedError, RateLimited, StoreUnavailable
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
from leased.store import Bell, Outcome
from leased.testing.model import ForceRelease, ShowList, ShowStatus
from leased.testing.simulation.faults import Faults
from leased.testing.simulation.history import History
from leased.testing.simulation.server import Batch, Request, Server, Watch, operations_of
from leased.timeline import Process, Task, Timeline

_MEAN_DELAY = 0.003
_NOTICEABLE = 0.05
_SLOW_WATCH = 0.12
_CONNECTS = 0.2
_CUT = (0.1, 8.0)


class _Call:
    """One request under way: open while its caller waits for the answer."""

    __slots__ = ("open", "request", "task")

    def __init__(self, request: Request, task: Task) -> None:
        self.request = request
        self.task = task
        self.open = True


class Network:
    """Carries messages between all links and the server, with the faults of the run; `quiet` switches them off."""

    def __init__(self, timeline: Timeline, server: Server, *, faults: Faults, chance: Random) -> None:
        self.timeline = timeline
        self.server = server
        self.faults = faults
        self.chance = chance
        self.quiet = False

    def hits(self, probability: float) -> bool:
        """Whether a fault of this probability strikes now."""
        return probability > 0.0 and not self.quiet and self.chance.random() < probability

    def delay(self) -> float:
        """Seconds that one message takes."""
        seconds = self.chance.expovariate(1.0 / _MEAN_DELAY)
        if self.hits(self.faults.slow):
            seconds += self.chance.uniform(_NOTICEABLE, self.faults.slowest)
        return seconds

    def cut(self) -> float:
        """Seconds that a line stays cut."""
        return self.chance.uniform(*_CUT)


class Link:
    """One client's line to the store: a `Store` whose every call crosses the network.

    `troubled_until` is the instant up to which something on this line went wrong; `doubled` the tokens of acquires
    and releases that were delivered twice: the answer to one copy does not know of the other.
    """

    mode: Literal["blocking", "async", "any"] = "async"

    def __init__(self, network: Network, process: Process, *, history: History, timeout: float) -> None:
        self.process = process
        self.troubled_until = -1.0
        self.doubled: set[str] = set()
        self._network = network
        self._history = history
        self._timeout = timeout
        self._cut_out = self._cut_in = -1.0

    def troubled(self, until: float) -> None:
        """Something is wrong on this line up to that instant."""
        self.troubled_until = max(self.troubled_until, until)

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        outcome: Held | Contended = await self._ask(Acquire(claim), timeout=timeout)
        return outcome

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        outcome: Held | Lost = await self._ask(Renew(key, token, ttl, number), timeout=timeout)
        return outcome

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        outcome: Released = await self._ask(Release(key, token, late), timeout=timeout)
        return outcome

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        await self._ask(Abandon(key, token, heard), timeout=timeout)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        outcome: Held | Lost = await self._ask(Look(key, token), timeout=timeout)
        return outcome

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""
        status: Status = await self._ask(ShowStatus(key), timeout=timeout)
        return status

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""
        page: list[Status] = await self._ask(ShowList(prefix, after, limit), timeout=timeout)
        return page

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        done: bool = await self._ask(ForceRelease(key, fencing_token), timeout=timeout)
        return done

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`."""
        unwatch: Callable[[], None] = await self._ask(Watch(key, self._far_bell(bell)), timeout=self._timeout)
        timeline = self._network.timeline
        return lambda: timeline.at(timeline.now + _MEAN_DELAY, unwatch)

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`."""
        hits, share = self._network.hits, self._network.faults.failed_member
        failed = frozenset(place for place in range(len(operations)) if hits(share))
        if failed:
            self.troubled(self._network.timeline.now + _NOTICEABLE)
        outcomes: Sequence[Outcome] = await self._ask(Batch(tuple(operations), failed), timeout=timeout)
        return outcomes

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return self._network.server.store.assurance()

    async def close(self) -> None:
        """See `leased.store`; the line stays, for the store's own clients share nothing with it."""

    async def _ask(self, request: Request, *, timeout: float) -> Any:
        timeline = self._network.timeline
        if timeline.current is None:
            raise GeneratorExit  # the end of time: nothing is asked any more
        until = timeline.now + timeout / self.process.clock.rate
        if self._network.chance.random() < _CONNECTS:
            await self.process.clock.sleep(min(timeout, self._network.chance.expovariate(1.0 / _MEAN_DELAY)))
        call = _Call(request, timeline.current)
        self._send(call, until=until)
        try:
            answer: Any = await self.process.wait(until - timeline.now)
        finally:
            call.open = False
        if answer is None or isinstance(answer, StoreUnavailable):
            self.troubled(timeline.now)
        if answer is None:
            raise StoreUnavailable("no answer in time", applied=None)
        if isinstance(answer, LeasedError):
            raise answer
        return answer[0]

    def _send(self, call: _Call, *, until: float) -> None:
        """Put a request on the line; whatever happens to it is drawn here. `until`: when its caller gives up."""
        network, now = self._network, self._network.timeline.now
        faults = network.faults
        if network.hits(faults.reset):
            self._reset(call)
            if network.chance.random() < 0.5:
                return
        elif network.hits(faults.cut * 0.1):
            cut_until = now + network.cut()
            sides = network.chance.choice(("out", "in", "both"))
            self._history.add(self.process.name, "line cut", sides, f"until {cut_until:.3f}")
            self._cut_out = max(self._cut_out, cut_until if sides != "in" else -1.0)
            self._cut_in = max(self._cut_in, cut_until if sides != "out" else -1.0)
        if self._cut_out > now or network.hits(faults.lost_request):
            self._history.add(self.process.name, "request lost", call.request)
            self.troubled(until)
            return
        delays = [network.delay()]
        if network.hits(faults.duplicate):
            self.doubled.update(filter(None, map(_token, operations_of(call.request))))
            delays.append(network.delay())
        self._troubled_by(min(delays), until=until)
        if isinstance(call.request, Watch) and network.hits(faults.slow_watch):
            delays[0] += network.chance.uniform(0.0, _SLOW_WATCH)  # subscribing takes its time: that is no trouble
        for delay in delays:
            network.timeline.at(now + delay, lambda: self._arrive(call, until=until))

    def _troubled_by(self, delay: float, *, until: float) -> None:
        if delay > _NOTICEABLE:
            self.troubled(min(self._network.timeline.now + delay, until) + _NOTICEABLE)

    def _arrive(self, call: _Call, *, until: float) -> None:
        """The request reaches the store; its answer goes back."""
        network, now = self._network, self._network.timeline.now
        if network.server.down:
            self.troubled(until)
            if network.chance.random() < 0.7:
                self._reply(call, StoreUnavailable("connection refused", applied=False), delay=network.delay())
            return
        if isinstance(call.request, Acquire | Renew) and network.hits(network.faults.refused):
            answer: Any = self._refuse()
        else:
            answer = network.server.handle(self.process.name, call.request)
        if not call.open:
            return
        if self._cut_in > now or network.hits(network.faults.lost_answer):
            self._history.add(self.process.name, "answer lost", call.request)
            self.troubled(until)
            return
        delay = network.delay()
        self._troubled_by(delay, until=until)
        self._reply(call, answer if isinstance(answer, LeasedError) else (answer,), delay=delay)

    def _refuse(self) -> LeasedError:
        """A service that has limits and rules refuses: nothing is done."""
        chance = self._network.chance
        if chance.random() < 0.2:
            return AccessDenied("refused by a rule")
        retry_after = chance.uniform(0.0, 1.0)
        self.troubled(self._network.timeline.now + retry_after + _NOTICEABLE)
        return RateLimited("too many requests", retry_after=retry_after)

    def _reply(self, call: _Call, answer: object, *, delay: float) -> None:
        def hand_over() -> None:
            if call.open:
                call.open = False
                call.task.wake(answer)

        timeline = self._network.timeline
        timeline.at(timeline.now + delay, hand_over, process=self.process)

    def _reset(self, call: _Call) -> None:
        """The connection breaks under a call: its caller hears of it at once, and cannot know what became of it."""
        self._history.add(self.process.name, "reset", call.request)
        delay = self._network.delay()
        self.troubled(self._network.timeline.now + delay + _NOTICEABLE)
        self._reply(call, StoreUnavailable("connection reset", applied=None), delay=delay)

    def _far_bell(self, bell: Bell) -> Bell:
        """What rings at the store, and may or may not be heard here."""
        network = self._network

        def ring() -> None:
            if self._cut_in > network.timeline.now or network.hits(network.faults.lost_notice):
                self.troubled(network.timeline.now + _NOTICEABLE)
                return
            delay = network.delay()
            self._troubled_by(delay, until=math.inf)
            network.timeline.at(network.timeline.now + delay, bell, process=self.process)

        return ring


def _token(operation: Operation) -> str | None:
    """The token that an acquire or a release is about."""
    if isinstance(operation, Acquire):
        return operation.claim.token
    return operation.token if isinstance(operation, Release) else None
