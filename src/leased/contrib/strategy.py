"""A lock as one stage of a resilience pipeline: what lies within runs only under the lease. It retries nothing itself.

It fits pipelines whose stages have `execute(call)` and `execute_async(call)`, such as those of `interlock-cb`, and by
itself is a function around a function.
"""

from __future__ import annotations

import inspect
import string
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import leased
from leased.checks import Duration, shown
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

    `values` are the caller's; `cancel` ends a wait for the key. `key` and `fencing_token` are those of the latest
    attempt that got the key, and `outcome` says how the latest attempt ended:

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


Key: TypeAlias = str | Callable[[Execution], str]
"""A key, a template with `{names}` of values, or what makes the key of an execution."""
OnLost: TypeAlias = Callable[[Execution, str], object]
"""What to call, or to await on asyncio, with the execution and the key when the lease is lost."""

_current: ContextVar[Execution | None] = ContextVar("leased_execution", default=None)


@contextmanager
def execution(*, cancel: Cancel | None = None, **values: Any) -> Iterator[Execution]:
    """Strategies that run inside take their keys from these values, and tell here how it went."""
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
        self.name = name

    def execute(self, call: Callable[[], T]) -> T:
        """Call it under the lease, in this thread."""
        if inspect.iscoroutinefunction(self._on_lost):
            raise InvalidRequest("on_lost is a coroutine function, and this call blocks", hint="give a plain function")
        run, lock = self._begin(self._opened.blocking())
        try:
            with lock.hold(cancel=run.cancel) as handle:
                self._granted(run, handle)
                value = call()
                run.outcome = "done"
            if handle.lost:
                run.outcome = "lost"
        except BaseException as error:
            _failed(run, error)
            raise
        return value

    async def execute_async(self, call: Callable[[], Awaitable[T]]) -> T:
        """As `execute`, for what is awaited: it is cancelled when the lease is lost."""
        run, lock = self._begin(self._opened.asynchronous())
        try:
            async with lock.hold(cancel=run.cancel) as handle:
                self._granted(run, handle)
                value = await call()
                run.outcome = "done"
            if handle.lost:
                run.outcome = "lost"
        except BaseException as error:
            _failed(run, error)
            raise
        return value

    def close(self) -> None:
        """Close what was opened here for blocking calls; `Locks` that were given are their owner's."""
        self._opened.close()

    async def aclose(self) -> None:
        """Close what was opened here for either kind of call."""
        await self._opened.aclose()

    def _begin(self, locks: Any) -> tuple[Execution, Any]:
        """A new attempt of the running execution, or of one that nobody reads, and its lock."""
        run = _current.get() or Execution()
        run.key = run.fencing_token = None
        run.outcome = "waiting"
        return run, locks.lock(_filled_in(self._key, run), **self._terms)

    def _granted(self, run: Execution, handle: Any) -> None:
        run.key, run.fencing_token = handle.key, handle.fencing_token
        run.outcome = "running"
        if self._on_lost is not None:
            handle.on_lost(partial(self._on_lost, run, handle.key))


def _failed(run: Execution, error: BaseException) -> None:
    """What an error says of the attempt: an error of the same class may come from within the call as well."""
    if run.outcome == "waiting":
        run.outcome = "rejected" if isinstance(error, LockNotAcquired) else "unavailable"
    elif isinstance(error, leased.LockLost) and error.key == run.key:
        run.outcome = "lost"
    else:
        run.outcome = "failed"


def _filled_in(key: Key, run: Execution) -> str:
    if not isinstance(key, str):
        return key(run)
    try:
        return string.Formatter().vformat(key, (), run.values)
    except (LookupError, AttributeError, ValueError) as error:
        raise InvalidRequest(
            f"the key {shown(key)!r} cannot be filled in from {sorted(run.values)}: {error}",
            hint="run inside `with execution(name=value):`, or write literal braces twice",
        ) from None
