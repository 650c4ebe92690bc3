"""Asyncio handles and blocks: what is alive under a lease in the asyncio face. The decisions are the engine's."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType

from leased import context, engine
from leased.checks import Duration, check_ttl
from leased.client import Client
from leased.errors import LeasedError, LockNotAcquired, LockNotHeld
from leased.handle import HandleFacts
from leased.hold import Hold, Hook
from leased.hooks import guarded
from leased.hooks import run_hook as run_in_thread
from leased.model import Claim, Contended, LostReason, Released, Renewed
from leased.observe import log
from leased.recipe import Recipe, not_acquired
from leased.scope import (
    NOTHING_TO_FREE,
    Cancel,
    ending_error,
    hand_over,
    note_release_problem,
    place_of,
    refuse_deadlock,
)


class Handle(HandleFacts):
    """A lease that is alive in this process: a value that any task, loop or thread may read, renew and release.

    A bare handle (from `acquire`) is not renewed unless asked; one that is forgotten ends after its ttl.
    """

    __slots__ = ("_block", "_client", "_recipe", "_stopper")

    def __init__(self, client: Client, hold: Hold, recipe: Recipe | None, *, scoped: bool) -> None:
        self._client = client
        self._clock = client.env.clock
        self._hold = hold
        self._recipe = recipe
        self._scoped = scoped
        self._block: context.Block | None = None
        self._stopper: BodyStopper | None = None

    async def renew(self, ttl: Duration | None = None) -> Renewed:
        """Set the lease to end `ttl` seconds from now (default: its ttl); a smaller ttl shortens it.

        False with a reason when the lease is lost: nothing revives it. Raises `StoreUnavailable` when there was no
        answer (the earlier deadline stands) and `AccessDenied` when a rule refuses (the lease goes on to its deadline).
        """
        seconds = None if ttl is None else check_ttl(ttl, margin=self._client.env.margin)
        return await engine.renew(self._client.store, self._client.env, self._hold, ttl=seconds)

    async def extend(self, ttl: Duration | None = None) -> None:
        """As `renew`, but raises `LockNotHeld` when the lease is lost or was released."""
        outcome = await self.renew(ttl)
        if not outcome:
            reason = outcome.lost_reason or outcome.reason
            raise LockNotHeld(f"the lease on {self.key!r} cannot be extended: {reason}", key=self.key, reason=reason)

    async def release(self) -> Released:
        """Free the key. False with a reason (`not_holder`, `expired`, `already_released`) when there was nothing to
        free; never raises for a lost lease. Raises `StoreUnavailable` when there was no answer: call it again."""
        client, hold = self._client, self._hold
        if hold.keeper is not None:
            hold.keeper.discard(hold)
        try:
            return await engine.release(client.store, client.env, hold)
        finally:
            if client.env.closed:
                await _close_if_last(client)

    def hand_over(self) -> str:
        """The handle as text, for `restore` elsewhere; here the lease is lost (`handed_over`): neither renewed nor
        released any more. Raises `LockLost` or `LockNotHeld` if it is not held."""
        self.ensure_held()
        text = self.dump()
        hand_over(self._client.env, self._hold)
        return text

    def on_lost(self, callback: Hook) -> None:
        """Call `callback` once, without arguments, when the lease is lost; at once if it is. An async function runs as
        a task of this loop, any other in a thread of its own."""
        if self._hold.forked:  # those that are registered already are the parent's
            run_hook(self._safe(callback))
            return
        self._hook(self._hold.lost_hooks, callback)
        if self.lost:
            self._hold.run_lost_hooks(run_hook)

    def on_at_risk(self, callback: Hook) -> None:
        """Call `callback` once when renewals have been failing for a third of the lease. An async function runs as a
        task of this loop, any other in a thread of its own."""
        self._hook(self._hold.at_risk_hooks, callback)

    async def __aenter__(self) -> Handle:
        """Enter a block under this lease, which releases it at its end. Raises `LockLost` or `LockNotHeld` if over."""
        self.ensure_held()
        self._scoped = True
        self._enter_block(None, taken_at=place_of(sys._getframe(1)))
        self._client.keep(self._hold, renewing=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release; a lost lease is told as `async with lock` does."""
        returns = self._recipe is not None and self._recipe.if_lost == "return"
        ending = await self._leave_block(error, returns=returns)
        if ending is not None:
            raise ending from _unless_cancelled(error)

    def _safe(self, callback: Hook) -> Hook:
        is_async = inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__)
        return _LoopHook(callback, key=self.key) if is_async else guarded(callback, key=self.key)

    def _hook(self, hooks: list[Hook], callback: Hook) -> None:
        hooks.append(self._safe(callback))
        if self._hold.ended is None and not self.lost:
            self._client.keep(self._hold, renewing=False)  # also where another loop, which may be gone, keeps it

    def _enter_block(self, lock: object, *, taken_at: str) -> None:
        client, task = self._client, asyncio.current_task()
        self._block = context.Block(
            lock=lock, lines=client.env.lines, hold=self._hold, handle=self, runner=task, taken_at=taken_at
        )
        context.enter(self._block)
        client.env.lines.block_began(self.key, self.owner, hold=self._hold)
        client.blocks.add(self._hold)
        if task is not None:
            self._stopper = BodyStopper(task)
            self._hold.stop = self._stopper.stop

    async def _leave_block(self, error: BaseException | None, *, returns: bool) -> LeasedError | None:
        """End the block: always release, and say what it has to raise. Our own cancellation becomes that error."""
        client, hold = self._client, self._hold
        hold.stop = None
        stopped = self._stopper is not None and await self._stopper.leave(error)
        try:
            lost = self._end_keeping()
            if hold.outcome is None and lost not in NOTHING_TO_FREE:
                await engine.release(client.store, client.env, hold)
        except LeasedError as problem:
            note_release_problem(hold, problem, error=error)
        finally:
            if not hold.forked:  # else all of this is the parent's
                client.blocks.discard(hold)
                client.env.lines.block_ended(hold.key, hold.owner, hold=hold)
                if client.env.closed:
                    await _close_if_last(client)
        if self._stopper is not None and self._stopper.swallowed:
            raise asyncio.CancelledError
        if isinstance(error, asyncio.CancelledError) and not stopped:
            return None  # cancelled from outside: that stays what it is
        lost = hold.lost_reason(client.env.clock.now())
        returns = returns and error is None
        return ending_error(self._recipe, hold, error=_unless_cancelled(error), lost=lost, returns=returns)

    @property
    def _body_stopped(self) -> bool:
        """Whether the loss of the lease has cancelled the body of its block."""
        return self._stopper is not None and self._stopper.stopped

    def _end_keeping(self) -> LostReason | None:
        """The body is over: nobody renews any more; why the lease was lost before, if it was."""
        hold = self._hold
        if self._block is not None:
            context.leave(self._block)
            self._block = None
        lost = hold.lost_reason(self._clock.now())
        if lost is not None:
            engine.lose(self._client.env, hold, lost)
        if hold.keeper is not None:
            hold.keeper.discard(hold)
        return lost


class BodyStopper:
    """Cancels the task of a body once its lease is lost, and takes that cancellation back when the block is left."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self._loop = task.get_loop()
        self._cancelled_before = task.cancelling()
        self._left = False
        self.stopped = False
        self.swallowed = False

    def stop(self) -> None:
        """Cancel the body, from any thread; returns at once."""
        if self._loop is asyncio._get_running_loop():
            self._cancel()
            return
        with suppress(RuntimeError):  # the loop is closed, and the body with it
            self._loop.call_soon_threadsafe(self._cancel)

    async def leave(self, error: BaseException | None) -> bool:
        """The block is left with this error: cancel no more. True if the only cancellation was ours; it no longer
        counts among the task's. `swallowed` says that one from outside was met here and is still to be raised."""
        self._left = True
        if not self.stopped:
            return False
        on_its_way = not isinstance(error, asyncio.CancelledError)
        if on_its_way:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        ours = self._task.uncancel() <= self._cancelled_before
        self.swallowed = on_its_way and not ours
        return ours

    def _cancel(self) -> None:
        if not self._left and not self.stopped and not self._task.done():
            self.stopped = True
            self._task.cancel("the lease was lost")


async def _close_if_last(client: Client) -> None:
    """After a release under locks that were closed: the last one closes the store."""
    if client.may_go():
        await client.store.close()


class Scope:
    """A single-use manager for one block under a lease. It may be entered and left in different tasks."""

    __slots__ = ("_brought", "_cancel", "_claim", "_client", "_lock", "_recipe", "_used", "_wait", "handle")

    def __init__(
        self,
        client: Client,
        recipe: Recipe,
        claim: Claim,
        *,
        lock: object,
        wait: float,
        brought: bool,
        cancel: Cancel | None,
    ) -> None:
        self._client = client
        self._recipe = recipe
        self._claim = claim
        self._lock = lock
        self._wait = wait
        self._brought = brought
        self._cancel = cancel
        self._used = False
        self.handle: Handle | None = None

    async def __aenter__(self) -> Handle:
        """Acquire; raises `LockNotAcquired`, or `LockTimeout` when the wait ran out: the body never runs without."""
        outcome = await self._enter(sys._getframe(1))
        if isinstance(outcome, Handle):
            return outcome
        raise self._refusal(outcome)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release, and raise `LockLost` (or `LeaseDeadlineExceeded`) where the lease ended before the body did."""
        ending = await self._leave(error, returns=self._recipe.if_lost == "return")
        if ending is not None:
            raise ending from _unless_cancelled(error)

    async def _enter(self, frame: FrameType) -> Handle | Contended:
        """Acquire and begin the block, or say who has the key. `frame` is where the block is written."""
        if self._used:
            raise LockNotHeld(f"this hold on {self._claim.key!r} was used before", key=self._claim.key, reason="used")
        self._used = True
        taken_at = place_of(frame)
        handle = await acquire(
            self._client,
            self._recipe,
            self._claim,
            wait=self._wait,
            brought=self._brought,
            cancel=self._cancel,
            scoped=True,
        )
        if isinstance(handle, Contended):
            return handle
        self.handle = handle
        handle._enter_block(self._lock, taken_at=taken_at)
        self._client.keep(handle._hold, renewing=self._recipe.renew is not False and not self._recipe.enforce)
        return handle

    async def _leave(self, error: BaseException | None, *, returns: bool) -> LeasedError | None:
        """End the block; what it has to raise, if anything."""
        if self.handle is None:
            return None
        return await self.handle._leave_block(error, returns=returns)

    def _refusal(self, contended: Contended) -> LockNotAcquired:
        """The error that tells who has the key."""
        cancelled = self._cancel is not None and self._cancel.is_set()
        return not_acquired(self._claim.key, wait=self._wait, holder=contended.status, cancelled=cancelled)


async def acquire(
    client: Client, recipe: Recipe, claim: Claim, *, wait: float, brought: bool, cancel: Cancel | None, scoped: bool
) -> Handle | Contended:
    """Ask the engine; a handle, or who has the key. A cancellation at any point leaves nothing held."""
    if wait > 0:
        refuse_deadlock(client.env.lines, claim.key, asyncio.current_task())
    outcome = await engine.acquire(
        client.store,
        client.env,
        claim,
        wait=wait,
        brought=brought,
        fixed=recipe.enforce,
        scoped=scoped,
        retry_delay=recipe.retry_delay,
        cancelled=None if cancel is None else cancel.is_set,
        name=recipe.name,
    )
    if isinstance(outcome, Contended):
        return outcome
    handle = Handle(client, outcome, recipe, scoped=scoped)
    if not scoped:
        client.remember(outcome, renewing=bool(recipe.renew))
    return handle


def run_hook(hook: Hook) -> None:
    """Call a hook where it can harm nothing: an async one in its loop, any other in a thread of its own."""
    if isinstance(hook, _LoopHook):
        hook()
    else:
        run_in_thread(hook)


class _LoopHook:
    """An async hook, to be run as a task of the loop in which it was registered."""

    def __init__(self, hook: Callable[[], object], *, key: str) -> None:
        self._hook = hook
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._hook()  # type: ignore[misc]  # checked to be a coroutine function
        except Exception:  # noqa: BLE001 (somebody else's code: its failure is logged and harms no lease)
            log.exception("a hook of the lease on %r failed", self._key)


def _unless_cancelled(error: BaseException | None) -> BaseException | None:
    return None if isinstance(error, asyncio.CancelledError) else error
