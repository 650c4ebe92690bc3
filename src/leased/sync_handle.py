"""Blocking handles and blocks: what is alive under a lease in the blocking face. The decisions are the engine's."""

from __future__ import annotations

import sys
import threading
from types import FrameType, TracebackType

from leased import context, engine
from leased.checks import Duration, check_ttl
from leased.client import Client
from leased.clocks import step
from leased.errors import LeasedError, LockNotAcquired, LockNotHeld
from leased.handle import HandleFacts
from leased.hold import Hold, Hook
from leased.hooks import guarded, run_hook
from leased.interrupt import BodyInterrupted, Interrupter, spared
from leased.model import Claim, Contended, LostReason, Released, Renewed
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
    """A lease that is alive in this process: a value that any thread may read, renew and release.

    A bare handle (from `acquire`) is not renewed unless asked; one that is forgotten ends after its ttl.
    """

    __slots__ = ("_block", "_client", "_recipe")

    def __init__(self, client: Client, hold: Hold, recipe: Recipe | None, *, scoped: bool) -> None:
        self._client = client
        self._clock = client.env.clock
        self._hold = hold
        self._recipe = recipe
        self._scoped = scoped
        self._block: context.Block | None = None

    def renew(self, ttl: Duration | None = None) -> Renewed:
        """Set the lease to end `ttl` seconds from now (default: its ttl); a smaller ttl shortens it.

        False with a reason when the lease is lost: nothing revives it. Raises `StoreUnavailable` when there was no
        answer (the earlier deadline stands) and `AccessDenied` when a rule refuses (the lease goes on to its deadline).
        """
        seconds = None if ttl is None else check_ttl(ttl, margin=self._client.env.margin)
        return step(engine.renew(self._client.store, self._client.env, self._hold, ttl=seconds))

    def extend(self, ttl: Duration | None = None) -> None:
        """As `renew`, but raises `LockNotHeld` when the lease is lost or was released."""
        outcome = self.renew(ttl)
        if not outcome:
            reason = outcome.lost_reason or outcome.reason
            raise LockNotHeld(f"the lease on {self.key!r} cannot be extended: {reason}", key=self.key, reason=reason)

    def release(self) -> Released:
        """Free the key. False with a reason (`not_holder`, `expired`, `already_released`) when there was nothing to
        free; never raises for a lost lease. Raises `StoreUnavailable` when there was no answer: call it again."""
        client, hold = self._client, self._hold
        if hold.keeper is not None:
            hold.keeper.discard(hold)
        try:
            return step(engine.release(client.store, client.env, hold))
        finally:
            if client.env.closed:
                _close_if_last(client)

    def hand_over(self) -> str:
        """The handle as text, for `restore` elsewhere; here the lease is lost (`handed_over`): neither renewed nor
        released any more. Raises `LockLost` or `LockNotHeld` if it is not held."""
        self.ensure_held()
        text = self.dump()
        hand_over(self._client.env, self._hold)
        return text

    def on_lost(self, callback: Hook) -> None:
        """Call `callback` once, without arguments, in a thread of its own, when the lease is lost; at once if it is."""
        if self._hold.forked:  # those that are registered already are the parent's
            run_hook(guarded(callback, key=self.key))
            return
        self._hook(self._hold.lost_hooks, callback)
        if self.lost:
            self._hold.run_lost_hooks(run_hook)

    def on_at_risk(self, callback: Hook) -> None:
        """Call `callback` once, in a thread of its own, when renewals have been failing for a third of the lease."""
        self._hook(self._hold.at_risk_hooks, callback)

    def __enter__(self) -> Handle:
        """Enter a block under this lease, which releases it at its end. Raises `LockLost` or `LockNotHeld` if over."""
        self.ensure_held()
        self._scoped = True
        self._enter_block(None, taken_at=place_of(sys._getframe(1)))
        return self

    @spared
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release; a lost lease is told as `with lock` does."""
        returns = self._recipe is not None and self._recipe.if_lost == "return"
        try:
            ending = self._leave_block(error, returns=returns)
        except BaseException as struck:  # an interrupt on the way out: the block is left all the same
            self._leave_block(error or struck, returns=returns)
            raise
        if ending is not None:
            raise ending from error

    def _hook(self, hooks: list[Hook], callback: Hook) -> None:
        hooks.append(guarded(callback, key=self.key))
        if self._hold.keeper is None and self._hold.ended is None and not self.lost:
            self._client.keep(self._hold, renewing=False)

    def _enter_block(self, lock: object, *, taken_at: str) -> None:
        client = self._client
        self._block = context.Block(
            lock=lock,
            lines=client.env.lines,
            hold=self._hold,
            handle=self,
            runner=threading.get_ident(),
            taken_at=taken_at,
        )
        context.enter(self._block)
        client.env.lines.block_began(self.key, self.owner, hold=self._hold)
        client.blocks.add(self._hold)

    def _leave_block(self, error: BaseException | None, *, returns: bool) -> LeasedError | None:
        """End the block: always release, and say what it has to raise. An interrupted call is repeated."""
        client, hold = self._client, self._hold
        try:
            lost = self._end_keeping()
            if hold.outcome is None and lost not in NOTHING_TO_FREE:
                step(engine.release(client.store, client.env, hold))
        except LeasedError as problem:
            note_release_problem(hold, problem, error=error)
        finally:
            if not hold.forked:  # else all of this is the parent's
                client.blocks.discard(hold)
                client.env.lines.block_ended(hold.key, hold.owner, hold=hold)
                if client.env.closed:
                    _close_if_last(client)
        lost = hold.lost_reason(client.env.clock.now())
        return ending_error(self._recipe, hold, error=error, lost=lost, returns=returns)

    def _end_keeping(self) -> LostReason | None:
        """The body is over: nobody stops it any more and nobody renews; why the lease was lost before, if it was."""
        hold = self._hold
        if self._block is not None:
            context.leave(self._block)
            self._block = None
        hold.stop = None
        lost = hold.lost_reason(self._clock.now())
        if lost is not None:
            engine.lose(self._client.env, hold, lost)
        if hold.keeper is not None:
            hold.keeper.discard(hold)
        return lost


def _close_if_last(client: Client) -> None:
    """After a release under locks that were closed: the last one closes the store."""
    if client.may_go():
        step(client.store.close())


class Scope:
    """A single-use manager for one block under a lease. It may be entered and left on different threads."""

    __slots__ = (
        "_brought",
        "_cancel",
        "_claim",
        "_client",
        "_interrupter",
        "_lock",
        "_recipe",
        "_used",
        "_wait",
        "handle",
    )

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
        self._interrupter: Interrupter | None = None

    def __enter__(self) -> Handle:
        """Acquire; raises `LockNotAcquired`, or `LockTimeout` when the wait ran out: the body never runs without."""
        return self._enter_or_raise(sys._getframe(1))

    @spared
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release, and raise `LockLost` (or `LeaseDeadlineExceeded`) where the lease ended before the body did."""
        returns = self._recipe.if_lost == "return"
        try:
            ending = self._leave(error, returns=returns)
        except BaseException as struck:  # an interrupt on the way out: the block is left all the same
            ending = self._leave(error or struck, returns=returns)
            if not isinstance(struck, BodyInterrupted):
                raise
        if ending is not None:
            raise ending from (None if isinstance(error, BodyInterrupted) else error)

    def _enter_or_raise(self, frame: FrameType) -> Handle:
        """Acquire and begin the block that is written in `frame`; raises `LockNotAcquired` or `LockTimeout`."""
        try:
            outcome = self._enter(frame)
            if isinstance(outcome, Contended):
                raise self._refusal(outcome)
            return outcome
        except BaseException as struck:  # an interrupt may come between the grant and the block
            ending = self._leave(struck, returns=True)
            if isinstance(struck, BodyInterrupted) and ending is not None:
                raise ending from None
            raise

    def _enter(self, frame: FrameType) -> Handle | Contended:
        """Acquire and begin the block, or say who has the key. After an error `leave` must follow."""
        if self._used:
            raise LockNotHeld(f"this hold on {self._claim.key!r} was used before", key=self._claim.key, reason="used")
        self._used = True
        outcome = acquire(
            self._client,
            self._recipe,
            self._claim,
            wait=self._wait,
            brought=self._brought,
            cancel=self._cancel,
            scope=self,
        )
        if isinstance(outcome, Handle):
            outcome._enter_block(self._lock, taken_at=place_of(frame))
            if self._recipe.enforce:
                self._interrupter = Interrupter(frame)
                outcome._hold.stop = self._interrupter.strike
            self._client.keep(outcome._hold, renewing=self._recipe.renew is not False and not self._recipe.enforce)
        return outcome

    @spared
    def _leave(self, error: BaseException | None, *, returns: bool) -> LeasedError | None:
        """End the block; what it has to raise, if anything. An interrupted call is repeated."""
        if self._interrupter is not None:
            try:
                self._interrupter.leave()
            except BodyInterrupted:
                self._interrupter.leave()
        if self.handle is None:
            return None
        body_error = None if isinstance(error, BodyInterrupted) else error
        return self.handle._leave_block(body_error, returns=returns and error is None)

    def _refusal(self, contended: Contended) -> LockNotAcquired:
        """The error that tells who has the key."""
        cancelled = self._cancel is not None and self._cancel.is_set()
        return not_acquired(self._claim.key, wait=self._wait, holder=contended.status, cancelled=cancelled)


def acquire(
    client: Client,
    recipe: Recipe,
    claim: Claim,
    *,
    wait: float,
    brought: bool,
    cancel: Cancel | None,
    scope: Scope | None = None,
) -> Handle | Contended:
    """Ask the engine; a handle, or who has the key. An interrupt at any point leaves nothing held: a scope has its
    handle before this returns."""
    if wait > 0:
        refuse_deadlock(client.env.lines, claim.key, threading.get_ident())
    outcome: Hold | Contended | None = None
    try:
        outcome = step(
            engine.acquire(
                client.store,
                client.env,
                claim,
                wait=wait,
                brought=brought,
                fixed=recipe.enforce,
                scoped=scope is not None,
                retry_delay=recipe.retry_delay,
                cancelled=None if cancel is None else cancel.is_set,
                name=recipe.name,
            )
        )
        if isinstance(outcome, Contended):
            return outcome
        handle = Handle(client, outcome, recipe, scoped=scope is not None)
        if scope is not None:
            scope.handle = handle
        else:
            client.remember(outcome, renewing=bool(recipe.renew))
        return handle
    except BaseException:
        if isinstance(outcome, Hold):
            step(engine.drop(client.store, client.env, outcome, claim))
        raise
