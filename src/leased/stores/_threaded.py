"""A blocking store for event loops: one worker thread runs its calls in their order. It decides nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, TypeVar

from leased.clocks import step
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Assurance, Claim, Contended, Held, Lost, Operation, Released, Status
from leased.store import Bell, Outcome, Store
from leased.stores._forks import ForkMutex, follow_forks

_T = TypeVar("_T")
_CLOSE_TIME = 1.0
_GRACE = 0.5


class _Call:
    """One call on its way: begun by the worker, or withdrawn when its time is up, whichever comes first."""

    __slots__ = ("_alarm", "_answer", "_free", "_gone", "_loop", "_results", "_undo", "_until", "_work")

    def __init__(
        self,
        work: Callable[[float], Coroutine[Any, Any, Any]],
        *,
        timeout: float,
        undo: Callable[[Any], None] | None = None,
    ) -> None:
        self._work = work
        self._undo = undo
        self._until = time.monotonic() + timeout
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Any] = self._loop.create_future()
        self._free = threading.Lock()
        self._gone = False
        self._results: list[Any] = []  # until somebody takes it: the caller, or whoever gives it up
        self._alarm: asyncio.TimerHandle | None = None

    async def answer(self, timeout: float) -> Any:
        """What the store says; while the call has not begun, not later than its time-out."""
        if timeout != math.inf:
            self._alarm = self._loop.call_later(timeout, self._withdraw, timeout)
        try:
            result = await self._answer
            self._results.clear()
            return result
        except BaseException:
            # The worker looks at this once the result is there: its loop may end before it could be told by it.
            self._gone = True
            self._give_up()
            raise
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    def run(self) -> None:
        """Run it to its end, whatever became of the caller, and give the answer to its loop."""
        if not self._take():
            return
        try:
            result = step(self._work(max(0.0, self._until - time.monotonic())))
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is awaited
            self._tell(self._fail, error)
        else:
            self._results.append(result)
            if not self._tell(self._succeed, result) or self._gone:
                self._give_up()

    def _tell(self, settle: Callable[[Any], None], result: Any) -> bool:
        """Whether the caller's loop is still there to be told."""
        try:
            self._loop.call_soon_threadsafe(settle, result)
        except RuntimeError:
            return False
        return True

    def _give_up(self) -> None:
        """Undo what nobody will ever use, once, and only if it is there yet."""
        try:
            result = self._results.pop()
        except IndexError:
            return
        if self._undo is not None:
            self._undo(result)

    def _take(self) -> bool:
        """True for the first who asks."""
        return self._free.acquire(blocking=False)

    def _withdraw(self, timeout: float) -> None:
        """End it without an answer. Once it has begun its store sees to its end, unless that hangs as well."""
        if self._take():
            message = f"earlier calls kept the store busy for {timeout:.3g} s: nothing was changed"
            self._fail(StoreUnavailable(message, applied=False))
        else:
            message = f"the store did not come back within {timeout:.3g} s and {_GRACE:g} s more"
            self._alarm = self._loop.call_later(_GRACE, self._fail, StoreUnavailable(message, applied=None))

    def _succeed(self, result: Any) -> None:
        if not self._answer.done():
            self._answer.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)


_Line = queue.SimpleQueue["_Call | None"]


def _serve(line: _Line) -> None:
    while (call := line.get()) is not None:
        call.run()
        del call  # or what it answered would live until the next one


class ThreadedStore:
    """The same store, for callers on any number of event loops.

    Calls run one after the other in the order in which they were made, so no clean-up overtakes what it cleans up. A
    cancelled caller only stops listening. The thread starts with the first call and does not keep a program running.
    """

    mode: Literal["blocking", "async", "any"] = "async"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mutex = ForkMutex()
        self._line: _Line | None = None
        self._closed = False
        follow_forks(self)

    @property
    def offset(self) -> float:
        """Seconds added to the store's clock; always 0 except in tests."""
        return float(getattr(self._store, "offset", 0.0))

    @offset.setter
    def offset(self, seconds: float) -> None:
        setattr(self._store, "offset", seconds)  # noqa: B010 - it is no part of the protocol

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        return await self._call(lambda left: self._store.acquire(claim, timeout=left), timeout)

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return await self._call(
            lambda left: self._store.renew(key, token, ttl=ttl, number=number, timeout=left), timeout
        )

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        return await self._call(lambda left: self._store.release(key, token, late=late, timeout=left), timeout)

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        await self._call(lambda left: self._store.abandon(key, token, heard=heard, timeout=left), timeout)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return await self._call(lambda left: self._store.look(key, token, timeout=left), timeout)

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""
        return await self._call(lambda left: self._store.status(key, timeout=left), timeout)

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""
        return await self._call(lambda left: self._store.list(prefix, after=after, limit=limit, timeout=left), timeout)

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        return await self._call(
            lambda left: self._store.force_release(key, fencing_token=fencing_token, timeout=left), timeout
        )

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`. A watch whose caller is gone when it is there ends at once."""
        call = self._send(lambda _: self._store.watch(key, bell), math.inf, undo=lambda end: end())
        end: Callable[[], None] = await call.answer(math.inf)
        return end

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`."""
        return await self._call(lambda left: self._store.many(operations, timeout=left), timeout)

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return self._store.assurance()

    async def close(self) -> None:
        """See `leased.store`. What was asked before still runs; the store is closed after it."""
        if self._closed:
            return
        call = self._send(lambda _: self._store.close(), math.inf)
        with self._mutex.lock:
            self._closed = True
            line, self._line = self._line, None
        if line is not None:
            line.put(None)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(call.answer(math.inf), _CLOSE_TIME)

    def before_fork(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.before_fork()

    def after_fork_in_parent(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """See `leased.stores._forks`. The worker stayed in the parent, with what waits for it."""
        self._mutex.after_fork_in_child()
        self._line = None

    async def _call(self, work: Callable[[float], Coroutine[Any, Any, _T]], timeout: float) -> _T:
        answer: _T = await self._send(work, timeout).answer(timeout)
        return answer

    def _send(
        self,
        work: Callable[[float], Coroutine[Any, Any, Any]],
        timeout: float,
        *,
        undo: Callable[[Any], None] | None = None,
    ) -> _Call:
        call = _Call(work, timeout=timeout, undo=undo)
        with self._mutex.lock:
            if self._closed:
                raise StoreNotUsable("this store was closed", hint="connect again")
            if self._line is None:
                self._line = self._start()
            self._line.put(call)
        return call

    def _start(self) -> _Line:
        """Start the thread, which ends with the store."""
        line: _Line = queue.SimpleQueue()
        try:
            threading.Thread(target=_serve, args=(line,), name="leased-store", daemon=True).start()
        except RuntimeError as error:
            raise StoreUnavailable(f"no thread for the store: {error}", applied=False) from error
        weakref.finalize(self, line.put, None).atexit = False
        return line
