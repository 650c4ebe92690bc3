"""The lock of the blocking face: a recipe with its ways to run work under a lease. It holds nothing itself."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from leased import context
from leased.checks import Duration, check_wait
from leased.errors import InvalidRequest
from leased.interrupt import BodyInterrupted, spared
from leased.model import Contended
from leased.recipe import Recipe, key_maker, not_acquired
from leased.scope import Cancel, RunResult, being_left
from leased.sync_handle import Handle, Scope, acquire

if TYPE_CHECKING:
    from leased.sync import Locks

P = ParamSpec("P")
T = TypeVar("T")


class Lock:
    """A recipe: which key, and on what terms. It holds nothing, may be shared by threads and be made at import time.

    `with lock:` acquires, runs the body and always releases. Used as a decorator it does so around every call, and
    `{names}` in the key are filled in from the call's arguments.
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

    def acquire(
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
        match self._bare(seconds, token=token, request_id=request_id, cancel=cancel):
            case Contended(status):
                cancelled = cancel is not None and cancel.is_set()
                raise not_acquired(self.key, wait=seconds, holder=status, cancelled=cancelled)
            case handle:  # with no call in between, after which an interrupt could drop it
                return handle

    def try_acquire(self, *, token: str | None = None, request_id: str | None = None) -> Handle | None:
        """A handle, or `None` when somebody else has the key: one attempt, which never waits."""
        match self._bare(0.0, token=token, request_id=request_id, cancel=None):
            case Contended():
                return None
            case handle:
                return handle

    def run(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        token: str | None = None,
        request_id: str | None = None,
        cancel: Cancel | None = None,
        **kwargs: Any,
    ) -> RunResult[T]:
        """Call `fn` under the lease, or not at all: `ran, value = lock.run(fn, …)`. Its errors pass through unchanged.

        A lease that was lost while `fn` ran shows as `.lost`; if `fn` also failed, `LockLost` is raised from its error.
        """
        return self._run(self._recipe.wait, fn, args, kwargs, token=token, request_id=request_id, cancel=cancel)

    def try_run(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        token: str | None = None,
        request_id: str | None = None,
        **kwargs: Any,
    ) -> RunResult[T]:
        """As `run`, but never waits."""
        return self._run(0.0, fn, args, kwargs, token=token, request_id=request_id, cancel=None)

    def locked(self) -> bool:
        """Whether a claim would be refused now. Advice, not a test: the test is `try_acquire`."""
        return self._locks().status(self.key).held

    def hold(self, *, cancel: Cancel | None = None) -> Scope:
        """A single-use manager for one block, which may be entered and left on different threads. `cancel` is an event
        that ends the wait from another thread."""
        return self._scope(self.key, self._recipe.wait, cancel=cancel)

    def __enter__(self) -> Handle:
        """Acquire, or raise `LockNotAcquired` / `LockTimeout`: the body never runs without a grant."""
        scope = self.hold()
        try:
            self._scopes.append(scope)
            return scope._enter_or_raise(sys._getframe(1))
        except BaseException:  # refused, or interrupted between the grant and the block
            if scope in self._scopes:
                self._scopes.remove(scope)
            scope._leave(None, returns=True)
            raise

    @spared
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release; raises `LockLost` where the lease ended before the body did (unless `if_lost="return"`)."""
        scope, returns = None, self._recipe.if_lost == "return"
        try:
            scope = self._being_left()
            ending = scope._leave(error, returns=returns)
        except BaseException as struck:  # an interrupt on the way out: the block is left all the same
            scope = scope or self._being_left()
            ending = scope._leave(error or struck, returns=returns)
            if not isinstance(struck, BodyInterrupted):
                raise
        finally:
            if scope is not None:
                self._scopes.remove(scope)
        if ending is not None:
            raise ending from (None if isinstance(error, BodyInterrupted) else error)

    def __call__(self, fn: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function or a generator function: each call runs under the lease on the key of its arguments."""
        if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
            raise InvalidRequest(f"{fn.__qualname__} is async, and this lock is blocking", hint="use leased.aio")
        make_key = key_maker(self.key, fn)
        if inspect.isgeneratorfunction(fn):

            @functools.wraps(fn)
            def generate(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self._scope(make_key(*args, **kwargs), self._recipe.wait):
                    return (yield from fn(*args, **kwargs))

            return generate

        @functools.wraps(fn)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with self._scope(make_key(*args, **kwargs), self._recipe.wait):
                return fn(*args, **kwargs)

        return call

    def __repr__(self) -> str:
        """Key and terms."""
        return f"<leased lock on {self.key!r}, ttl {self._recipe.ttl:g} s>"

    def __reduce__(self) -> Any:
        """By its locks and its recipe: the copy holds nothing and connects on first use."""
        return _remade, (self._locks, self._recipe, self._key)

    def _being_left(self) -> Scope:
        return being_left(self._scopes, context.entered_through(self, threading.get_ident()), key=self.key)

    def _bare(
        self, wait: float, *, token: str | None, request_id: str | None, cancel: Cancel | None
    ) -> Handle | Contended:
        recipe = self._recipe
        if recipe.enforce:
            raise InvalidRequest("enforce=True needs a body to interrupt", hint="use `with lock`, run() or a decorator")
        claim = recipe.claim(self._key, token=token, request_id=request_id)
        client = self._locks()._client()
        client.check_fits(recipe.ttl)
        return acquire(client, recipe, claim, wait=wait, brought=token is not None, cancel=cancel)

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

    def _run(
        self,
        wait: float,
        fn: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        token: str | None,
        request_id: str | None,
        cancel: Cancel | None,
    ) -> RunResult[T]:
        scope = self._scope(self.key, wait, token=token, request_id=request_id, cancel=cancel)
        try:
            handle = scope._enter(sys._getframe(0))
            if isinstance(handle, Contended):
                return RunResult(ran=False, value=None, lost=False, handle=None)
            value = fn(*args, **kwargs)
            ending = scope._leave(None, returns=True)
        except BaseException as error:
            scope.__exit__(type(error), error, error.__traceback__)
            raise
        if ending is not None:
            raise ending
        return RunResult(ran=True, value=value, lost=handle.lost, handle=handle)


def _remade(locks: Callable[[], Locks], recipe: Recipe, key: str) -> Lock:
    return Lock(locks, recipe, key=key)
