"""The asyncio face on an event loop with a virtual clock, which picks among what is ready by seed. It never waits.

The store is a real memory store behind calls that take their time, get lost, and go on when their caller is cancelled.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from random import Random
from typing import Any, Literal, TypeVarTuple, Unpack

from leased import aio
from leased.aio_clock import LoopClock
from leased.clocks import step
from leased.errors import LeasedError, LockLost, LockNotAcquired, StoreUnavailable
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
from leased.policy import REPLAY_WINDOW
from leased.store import Bell, Outcome, one
from leased.stores.memory import MemoryStore

_KEY = "k"
_LENGTH = 8.0
_LONGEST_TTL = 8.0
_SETTLING = 0.5
_JITTER = 1e-7


_Arguments = TypeVarTuple("_Arguments")


class _Jump(selectors.SelectSelector):
    """Instead of waiting for files, lets virtual time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits for another one: nothing will ever happen")
        self.now += max(timeout, 0.0)
        return []


class SeededLoop(asyncio.SelectorEventLoop):
    """An event loop that runs what is ready in an order drawn from `chance`, on a clock that jumps to what is next."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Virtual seconds."""
        return self._jump.now

    def call_soon(
        self,
        callback: Callable[[Unpack[_Arguments]], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call it in one of the next turns, before or after others that are ready."""
        return self.call_at(self.time() + _JITTER * self._chance.random(), callback, *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[_Arguments]], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)


class _SeededClock(LoopClock):
    """The loop's clock as the client's clock."""

    def __init__(self, loop: SeededLoop) -> None:
        self.now = loop.time
        self.wall = lambda: 1.7e9 + loop.time()


class SlowStore:
    """A memory store whose calls take time and may be lost; what was sent is done, whatever becomes of its caller."""

    mode: Literal["blocking", "async", "any"] = "async"

    def __init__(self, inner: MemoryStore, chance: Random, *, lost: float) -> None:
        self.inner = inner
        self._chance = chance
        self._lost = lost

    @property
    def loses(self) -> bool:
        """Whether calls can get lost."""
        return self._lost > 0

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
        return await self.inner.status(key, timeout=timeout)

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""
        return await self.inner.list(prefix, after=after, limit=limit, timeout=timeout)

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        return await self.inner.force_release(key, fencing_token=fencing_token, timeout=timeout)

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`."""
        await asyncio.sleep(self._delay())
        return await self.inner.watch(key, bell)

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`."""
        outcomes: Sequence[Outcome] = await self._ask(tuple(operations), timeout=timeout)
        return outcomes

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return self.inner.assurance()

    async def close(self) -> None:
        """See `leased.store`; the store within stays open, for the checks."""

    def _delay(self) -> float:
        return self._chance.expovariate(200.0)

    async def _ask(self, request: Operation | tuple[Operation, ...], *, timeout: float) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def arrive() -> None:
            if isinstance(request, tuple):
                outcome: Any = step(self.inner.many(request, timeout=1.0))
            else:
                outcome = step(one(self.inner, request, timeout=1.0))
            if self._chance.random() >= self._lost:
                loop.call_later(self._delay(), reply, outcome)

        def reply(outcome: Any) -> None:
            if not answer.done():
                answer.set_result(outcome)

        await asyncio.sleep(self._delay())  # for a connection: nothing was sent yet
        if self._chance.random() >= self._lost:
            loop.call_later(self._delay(), arrive)
        timer = loop.call_later(timeout, answer.cancel)
        try:
            await asyncio.wait([answer])
        finally:
            timer.cancel()
        if answer.cancelled():
            raise StoreUnavailable("no answer in time", applied=None)
        return answer.result()


class _Party:
    """Several tasks that use one lock of one client in every way, while they are cancelled at any time."""

    def __init__(self, seed: int, loop: SeededLoop) -> None:
        self.chance = Random(f"party {seed}")
        self.broken: list[str] = []
        self.inside: list[aio.Handle] = []
        clock = _SeededClock(loop)
        self.inner = MemoryStore(clock)
        self.store = SlowStore(self.inner, self.chance, lost=self.chance.choice((0.0, 0.0, 0.1, 0.3)))
        self.locks = aio.connect(self.store, clock=clock, timeout=self.chance.choice((0.5, 2.0)))

    async def run(self) -> None:
        """Let them work and be cancelled, then see what is left."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._guest()) for _ in range(self.chance.randint(1, 4))]
        while loop.time() < _LENGTH:
            await asyncio.sleep(self.chance.expovariate(10.0))
            place = self.chance.randrange(len(tasks))
            tasks[place].cancel()
            if self.chance.random() < 0.3:
                await asyncio.sleep(self.chance.expovariate(100.0))
                tasks[place].cancel()
            if tasks[place].done():
                tasks[place] = loop.create_task(self._guest())
        for _ in range(2):
            for task in tasks:
                task.cancel()
            await asyncio.sleep(self.chance.expovariate(200.0))
        await asyncio.wait(tasks)
        await asyncio.sleep(_LONGEST_TTL if self.store.loses else _SETTLING)
        await self._check_end()

    async def _guest(self) -> None:
        """Use the lock until cancelled."""
        chance = self.chance
        with suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(chance.expovariate(20.0))
                lock = self.locks.lock(
                    _KEY,
                    ttl=chance.uniform(0.3, _LONGEST_TTL),
                    wait=chance.choice((0.0, 1.0, aio.FOREVER)),
                    owner=chance.choice((None, None, "red")),
                )
                with suppress(LockNotAcquired, LockLost, StoreUnavailable):
                    await chance.choice((self._block, self._handle, self._run))(lock)

    async def _block(self, lock: aio.Lock) -> None:
        async with lock as handle:
            await self._body(handle)

    async def _run(self, lock: aio.Lock) -> None:
        async def body() -> None:
            handle = aio.current()
            if isinstance(handle, aio.Handle):
                await self._body(handle)

        await lock.run(body)

    async def _handle(self, lock: aio.Lock) -> None:
        handle = await lock.acquire()
        try:
            await self._body(handle)
        finally:
            with suppress(LeasedError):
                await handle.release()

    async def _body(self, handle: aio.Handle) -> None:
        """What must not run twice at once, as far as its handles believe."""
        others = [other for other in self.inside if not other.lost and other.owner is None]
        if others:  # who named an owner may have been re-taken, and is not told at once
            self.broken.append(f"SAFE1: {handle.fencing_token} came in while {others[0].fencing_token} was inside")
        self.inside.append(handle)
        try:
            await asyncio.sleep(self.chance.expovariate(5.0))
        finally:
            self.inside.remove(handle)

    async def _check_end(self) -> None:
        """Nothing is held, waited for, renewed or still running."""
        loop = asyncio.get_running_loop()
        status = await self.inner.status(_KEY, timeout=1.0)
        if status.held:
            self.broken.append(f"LIVE3: when all were gone the key was still {status.state}")
        client = self.locks._client()
        for name, things in (("line", client.env.lines._lines), ("owner", client.env.lines._reserved)):
            if things:
                self.broken.append(f"LIVE7: when all were gone a {name} was left: {things}")
        await self.locks.close()
        await asyncio.sleep(REPLAY_WINDOW)
        left = [task.get_coro() for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
        if left:
            self.broken.append(f"LIVE10: still running: {left}")


def simulate_loop(seed: int) -> list[str]:
    """Run one seed of the asyncio face; the promises that were broken."""
    loop = SeededLoop(Random(f"loop {seed}"))
    try:
        party = _Party(seed, loop)
        loop.run_until_complete(party.run())
        return party.broken
    finally:
        loop.close()
