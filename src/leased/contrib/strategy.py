"""A lock as one stage of a resilience pipeline: what lies within runs only under the lease. It retries nothing itself.

It fits pipelines whose stages have `execute(call)` and `execute_async(call)`, such as those of `interlock-cb`, and by
itself is a function around a function.
"""

from __future__ import annotations

import copy
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import leased
from leased.checks import Duration
from leased.contrib._calls import filled_in, refuse_unfinished
from leased.contrib._opened import Opened, StoreGiven
from leased.errors import InvalidRequest, LockNotAcquired

T = TypeVar("T")


class Cancel(Protocol):
    """Whatever ends a wait from elsewhere: a `threading.Event` will do."""

    def is_set(self) -> bool:
        """Whether the wait is to end."""
        ...


@dataclass(slots=True)
class Execution:
    """What one run is about, and what became of it under the lock.

    `values` are the caller's; `cancel` ends a wait for the key, and what has not begun by then is not run. `key` and
    `fencing_token` are those of the latest attempt that got the key, and `outcome` says how the latest attempt ended.
    One attempt is under way at a time (`asks`), and strategies within its call have an execution of their own.

    | outcome | meaning |
    | --- | --- |
    | `waiting` | it has not ended yet, and has not got the key |
    | `rejected` | somebody else has the key: nothing ran |
    | `unavailable` | whether the key could be had is not known, or asking was refused: nothing ran |
    | `running` | it has the key |
    | `done` | it ran to its end under the lease |
    | `failed` | it ran, and raised |
    | `lost` | it ran, and the lease ended before it did |
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    cancel: Cancel | None = None
    key: str | None = None
    fencing_token: int | None = None
    outcome: Literal["waiting", "rejected", "unavailable", "running", "done", "failed", "lost"] = "waiting"
    asks: bool = field(default=False, repr=False)


Key: TypeAlias = str | Callable[[Execution], str]
"""A key, a template with `{names}` of values, or what makes the key of an execution."""
OnLost: TypeAlias = Callable[[Execution, str], object]
"""What to call, or to await on asyncio, with the execution and the key when the lease is lost."""

_current: ContextVar[Execution | None] = ContextVar("leased_execution", default=None)
_begins = threading.Lock()  # an attempt looks whether there is another, and says that it is there, in one step


def _forget_parents() -> None:
    global _begins
    _begins = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)


@contextmanager
def execution(*, cancel: Cancel | None = None, **values: Any) -> Iterator[Execution]:
    """Strategies that run inside, in this thread or task, take their keys from these values, and tell here how it went.

    A stage that runs the rest in a thread of its own hides that from them: give it to them by `LockStrategy.within`.
    """
    run = Execution(values, cancel)
    token = _current.set(run)
    try:
        yield run
    finally:
        _current.reset(token)


class LockStrategy:
    """Runs a call only while this process holds the key; see `Lock.hold` for what that means.

    `key` may name `{values}` of the running `execution`. `store` is a URL, which is opened on first use, or `Locks` of
    the face that the calls have. `ttl` (30 s), `wait` (0), `owner` and `name` (a label for metrics) are as of a lock.
    `on_lost(execution, key)` is called when the lease is lost, and on asyncio the call is stopped then.

    A call that is not run raises `LockNotAcquired`, or `LockTimeout` when the wait ran out. A call that succeeded has
    its value returned even if the lease was lost before it ended: `Execution.outcome` is `lost` then. Its own errors
    pass through; where the lease was lost as well, `LockLost` is raised from them.
    """

    def __init__(
        self,
        key: Key,
        *,
        store: StoreGiven,
        ttl: Duration = 30.0,
        wait: Duration = 0.0,
        owner: str | None = None,
        on_lost: OnLost | None = None,
        name: str = "Lock",
    ) -> None:
        self._key = key
        self._opened = Opened(store)
        self._terms: dict[str, Any] = {"ttl": ttl, "wait": wait, "owner": owner, "if_lost": "return", "name": name}
        self._on_lost = on_lost
        self._run: Execution | None = None
        self.name = name

    def within(self, run: Execution) -> LockStrategy:
        """This strategy for one execution, whatever thread or task it is run in; it shares the store, and what closes
        one closes both. Blocking time-outs run what lies within in a thread that knows nothing of `execution`."""
        bound = copy.copy(self)
        bound._run = run
        return bound

    def execute(self, call: Callable[[], T]) -> T:
        """Call it under the lease, in this thread."""
        if inspect.iscoroutinefunction(self._on_lost):
            raise InvalidRequest("on_lost is a coroutine function, and this call blocks", hint="give a plain function")
        with _attempt(self._run) as run:
            lock = self._opened.blocking().lock(_key_of(self._key, run), **self._terms)
            with lock.hold(cancel=run.cancel) as handle, self._granted(run, handle):
                value = call()
                refuse_unfinished(value)
            run.outcome = "lost" if handle.lost else "done"
        return value

    async def execute_async(self, call: Callable[[], Awaitable[T]]) -> T:
        """As `execute`, for what is awaited: it is cancelled when the lease is lost."""
        with _attempt(self._run) as run:
            lock = self._opened.asynchronous().lock(_key_of(self._key, run), **self._terms)
            async with lock.hold(cancel=run.cancel) as handle:
                with self._granted(run, handle):
                    value = await call()
            run.outcome = "lost" if handle.lost else "done"
        return value

    def close(self) -> None:
        """Close what was opened here for blocking calls; `Locks` that were given are their owner's."""
        self._opened.close()

    async def aclose(self) -> None:
        """Close what was opened here for either kind of call."""
        await self._opened.aclose()

    @contextmanager
    def _granted(self, run: Execution, handle: Any) -> Iterator[None]:
        """While the call runs: strategies within it have an execution of their own, with the same values. Not for who
        has given up meanwhile: nothing is run late."""
        if run.cancel is not None and run.cancel.is_set():
            raise LockNotAcquired("gave up, as the caller asked, just as the key was got", key=handle.key)
        run.key, run.fencing_token = handle.key, handle.fencing_token
        run.outcome = "running"
        if self._on_lost is not None:
            handle.on_lost(partial(self._on_lost, run, handle.key))
        with execution(cancel=run.cancel, **run.values):
            yield


@contextmanager
def _attempt(given: Execution | None) -> Iterator[Execution]:
    """A new attempt of the given or the running execution, or of one that nobody reads. There is one at a time, for
    there is one fencing token to be told."""
    run = given or _current.get() or Execution()
    with _begins:
        if run.asks:
            raise InvalidRequest(
                "this execution has another attempt under way, in another task or thread",
                hint="give each its own: `with execution(...):` around each call",
            )
        run.asks = True
    run.key = run.fencing_token = None
    run.outcome = "waiting"
    try:
        yield run
    except BaseException as error:
        _failed(run, error)
        raise
    finally:
        run.asks = False


def _failed(run: Execution, error: BaseException) -> None:
    """What an error says of the attempt: an error of the same class may come from within the call as well."""
    if run.outcome == "waiting":
        run.outcome = "rejected" if isinstance(error, LockNotAcquired) else "unavailable"
    elif isinstance(error, leased.LockLost) and error.key == run.key:
        run.outcome = "lost"
    else:
        run.outcome = "failed"


def _key_of(key: Key, run: Execution) -> str:
    hint = "run inside `with execution(name=value) as run:`, give `run` by `within(run)` where another thread runs it"
    return filled_in(key, run.values, hint=hint) if isinstance(key, str) else key(run)
