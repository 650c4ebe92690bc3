"""The lock of the asyncio face: a recipe with its ways to run work under a lease. It holds nothing itself."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from leased import context
from leased.aio_handle import Handle, Scope, acquire
from leased.checks import Duration, check_wait
from leased.errors import InvalidRequest
from leased.model import Contended
from leased.recipe import Recipe, key_maker, not_acquired
from leased.scope import Cancel, RunResult, being_left

if TYPE_CHECKING:
    from leased.aio import Locks

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


class Lock:
    """A recipe: which key, and on what terms. It holds nothing, may be shared by tasks and be made at import time.

    `async with lock:` acquires, runs the body and always releases. Used as a decorator it does so around every call,
    and `{names}` in the key are filled in from the call's arguments.
    """

    def __init__(self, locks: Callable[[], Locks], recipe: Recipe, *, key: str) -> None:
        self._locks = locks
        self._key = key
        self._recipe = recipe
        self._scopes: list[Scope] = []

    @property
    def key(self) -> str:
        """What it locks."""
        return self._key

    async def acquire(
        self,
        wait: Duration | None = None,
        *,
        token: str | None = None,
        request_id: str | None = None,
        cancel: Cancel | None = None,
    ) -> Handle:
        """A handle, or `LockNotAcquired` / `LockTimeout`. It does not renew itself unless the lock says `renew=True`.

        `wait` in seconds replaces the lock's own. `token` and `request_id` may be made by the caller, to recover by
        sending the same again: such an acquire is not handed back when it ends in `StoreUnavailable`. `cancel` is an
        event that ends the wait from another thread. Waiting for a block that encloses the caller is `LockDeadlock`.
        """
        seconds = self._recipe.wait if wait is None else check_wait(wait)
        outcome = await self._bare(seconds, token=token, request_id=request_id, cancel=cancel)
        if isinstance(outcome, Handle):
            return outcome
        cancelled = cancel is not None and cancel.is_set()
        raise not_acquired(self.key, wait=seconds, holder=outcome.status, cancelled=cancelled)

    async def try_acquire(self, *, token: str | None = None, request_id: str | None = None) -> Handle | None:
        """A handle, or `None` when somebody else has the key: one attempt, which never waits."""
        outcome = await self._bare(0.0, token=token, request_id=request_id, cancel=None)
        return outcome if isinstance(outcome, Handle) else None

    @overload
    async def run(
        self,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        token: str | None = None,
        request_id: str | None = None,
        cancel: Cancel | None = None,
        **kwargs: Any,
    ) -> RunResult[T]: ...

    @overload
    async def run(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        token: str | None = None,
        request_id: str | None = None,
        cancel: Cancel | None = None,
        **kwargs: Any,
    ) -> RunResult[T]: ...

    async def run(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        token: str | None = None,
        request_id: str | None = None,
        cancel: Cancel | None = None,
        **kwargs: Any,
    ) -> RunResult[Any]:
        """Call `fn` under the lease, or not at all: `ran, value = await lock.run(fn, …)`. Its errors pass through
        unchanged. An async `fn` is awaited, any other runs in a worker thread with the caller's context; as nobody can
        stop a thread, its end is waited for and the key kept until then, even when the caller is cancelled.

        A lease that was lost while `fn` ran shows as `.lost`; if `fn` also failed, `LockLost` is raised from its error.
        """
        return await self._run(self._recipe.wait, fn, args, kwargs, token=token, request_id=request_id, cancel=cancel)

    @overload
    async def try_run(
        self,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        token: str | None = None,
        request_id: str | None = None,
        **kwargs: Any,
    ) -> RunResult[T]: ...

    @overload
    async def try_run(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        token: str | None = None,
        request_id: str | None = None,
        **kwargs: Any,
    ) -> RunResult[T]: ...

    async def try_run(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        token: str | None = None,
        request_id: str | None = None,
        **kwargs: Any,
    ) -> RunResult[Any]:
        """As `run`, but never waits."""
        return await self._run(0.0, fn, args, kwargs, token=token, request_id=request_id, cancel=None)

    async def locked(self) -> bool:
        """Whether a claim would be refused now. Advice, not a test: the test is `try_acquire`."""
        return (await self._locks().status(self.key)).held

    def hold(self, *, cancel: Cancel | None = None) -> Scope:
        """A single-use manager for one block, which may be entered and left in different tasks. `cancel` is an event
        that ends the wait from another thread."""
        return self._scope(self.key, self._recipe.wait, cancel=cancel)

    async def __aenter__(self) -> Handle:
        """Acquire, or raise `LockNotAcquired` / `LockTimeout`: the body never runs without a grant."""
        scope = self.hold()
        outcome = await scope._enter(sys._getframe(1))
        if isinstance(outcome, Contended):
            raise scope._refusal(outcome)
        self._scopes.append(scope)
        return outcome

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release; raises `LockLost` where the lease ended before the body did (unless `if_lost="return"`)."""
        scope = being_left(self._scopes, context.entered_through(self, asyncio.current_task()), key=self.key)
        self._scopes.remove(scope)
        await scope.__aexit__(kind, error, traceback)

    def __call__(self, fn: F) -> F:
        """Decorate an async function or async generator function: each call runs under the lease on the key of its
        arguments."""
        make_key = key_maker(self.key, fn)
        if inspect.isasyncgenfunction(fn):

            @functools.wraps(fn)
            async def generate(*args: Any, **kwargs: Any) -> Any:
                async with (
                    self._scope(make_key(*args, **kwargs), self._recipe.wait),
                    aclosing(fn(*args, **kwargs)) as g,
                ):
                    async for value in g:
                        yield value

            return cast("F", generate)
        if not inspect.iscoroutinefunction(fn):
            name = getattr(fn, "__qualname__", repr(fn))
            raise InvalidRequest(f"{name} is not async, and this lock is", hint="use the blocking leased.lock")

        @functools.wraps(fn)
        async def call(*args: Any, **kwargs: Any) -> Any:
            async with self._scope(make_key(*args, **kwargs), self._recipe.wait):
                return await fn(*args, **kwargs)

        return cast("F", call)

    def __repr__(self) -> str:
        """Key and terms."""
        return f"<leased lock on {self.key!r}, ttl {self._recipe.ttl:g} s>"

    def __reduce__(self) -> Any:
        """By its locks and its recipe: the copy holds nothing and connects on first use."""
        return _remade, (self._locks, self._recipe, self._key)

    def _bare(
        self, wait: float, *, token: str | None, request_id: str | None, cancel: Cancel | None
    ) -> Coroutine[Any, Any, Handle | Contended]:
        recipe = self._recipe
        if recipe.enforce:
            raise InvalidRequest(
                "enforce=True needs a body to interrupt", hint="use `async with lock`, run() or a decorator"
            )
        claim = recipe.claim(self._key, token=token, request_id=request_id)
        client = self._locks()._client()
        client.check_fits(recipe.ttl)
        return acquire(client, recipe, claim, wait=wait, brought=token is not None, cancel=cancel, scoped=False)

    def _scope(
        self,
        key: str,
        wait: float,
        *,
        token: str | None = None,
        request_id: str | None = None,
        cancel: Cancel | None = None,
    ) -> Scope:
        claim = self._recipe.claim(key, token=token, request_id=request_id)
        client = self._locks()._client()
        client.check_fits(self._recipe.ttl)
        brought = token is not None
        return Scope(client, self._recipe, claim, lock=self, wait=wait, brought=brought, cancel=cancel)

    async def _run(
        self,
        wait: float,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        token: str | None,
        request_id: str | None,
        cancel: Cancel | None,
    ) -> RunResult[Any]:
        scope = self._scope(self.key, wait, token=token, request_id=request_id, cancel=cancel)
        handle = await scope._enter(sys._getframe(0))
        if isinstance(handle, Contended):
            return RunResult(ran=False, value=None, lost=False, handle=None)
        try:
            value = await _call(handle, fn, args, kwargs)
        except BaseException as error:
            await scope.__aexit__(type(error), error, error.__traceback__)
            raise
        ending = await scope._leave(None, returns=True)
        if ending is not None:
            raise ending
        return RunResult(ran=True, value=value, lost=handle.lost, handle=handle)


async def _call(handle: Handle, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
        return await fn(*args, **kwargs)
    value = await _in_thread(handle, functools.partial(fn, *args, **kwargs))
    return await value if inspect.isawaitable(value) else value


async def _in_thread(handle: Handle, fn: Callable[[], Any]) -> Any:
    """Call `fn` in a worker thread with the caller's context, and wait for its end although the caller is cancelled
    meanwhile: nobody can stop a thread, and the key must not be freed under it."""
    values: list[Any] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            values.append(fn())
        except BaseException as error:  # noqa: BLE001 (raised below; a future would exchange some exceptions)
            errors.append(error)

    work = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, call)
    struck: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            struck = error
    if struck is not None and not handle._body_stopped:
        raise struck from (errors[0] if errors else None)
    if errors:
        raise errors[0]
    return values[0]


def _remade(locks: Callable[[], Locks], recipe: Recipe, key: str) -> Lock:
    return Lock(locks, recipe, key=key)
