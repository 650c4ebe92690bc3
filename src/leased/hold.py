"""What this process knows about one lease: facts and arithmetic. It does no I/O and never asks a store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Literal, Protocol

from leased.errors import LockLost, LockNotHeld
from leased.model import Claim, Lease, LostReason, Released
from leased.policy import usable, valid_until

Hook = Callable[[], object]
"""Something to call once; what it returns is the business of whoever runs it."""

INF = float("inf")

_generation = 0


def _count_fork() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class KeepsHolds(Protocol):
    """Whoever renews a hold and notices its loss."""

    def moved(self, hold: Hold) -> None:
        """The hold's deadline moved to earlier."""
        ...

    def discard(self, hold: Hold) -> None:
        """Keep this hold no longer."""
        ...


def _left(lease: Lease) -> float:
    """The time left as the store tells it, but no more than the whole lease: after its clock was set back it tells of
    time that is gone, and that may be over at once when the clock is put right."""
    return min(lease.left, lease.ttl)


class Hold:
    """One lease as this process sees it: believed until `valid_until` on the local clock, never longer.

    `ended` is `None` while belief may last, `released` once the holder gave it up, else the reason of the loss; the
    first one stands; no renewal moves it beyond `max_until`. Everything here may be read from any thread.
    """

    ended: LostReason | Literal["released"] | None = None
    outcome: Released | None = None
    release_unanswered = False
    last_reason: LostReason | None = None  # why it is not renewed any more, if that is known
    name: str | None = None
    told: int | None = None  # under a token that was brought: how often the store may have told us of it
    stop: Callable[[], None] | None = None
    at_risk_told = False
    failing_since: float | None = None
    renewing = False
    forgotten = False  # its bare handle is gone: it is kept for its end to be told, if at all
    renew_due = INF
    due = INF
    keeper: KeepsHolds | None = None

    def __init__(self, lease: Lease, asked_at: float, *, claim: Claim, margin: float) -> None:
        self.generation = _generation
        self.key = lease.key
        self.token = lease.token
        self.owner = lease.owner
        self.fencing_token = lease.fencing_token
        self.ttl = claim.ttl
        self.margin = margin
        self.late = claim.late
        self.valid_until = valid_until(asked_at, waited=lease.waited, left=_left(lease), margin=margin)
        self.max_until = asked_at + usable(claim.terms.max_hold, margin=margin)
        self.number = self.applied = lease.renewal
        self.lost_hooks: list[Hook] = []
        self.at_risk_hooks: list[Hook] = []
        self._asked: dict[int, float] = {}  # by number: where a renewal without an answer yet may have set the end
        self._mutex = threading.Lock()

    @property
    def forked(self) -> bool:
        """Whether this is a forked child's copy of its parent's hold: inert, and its mutex is not to be touched."""
        return self.generation != _generation

    def ask(self, asked_at: float, *, ttl: float) -> int:
        """Before a renewal is sent: its number, above every earlier one. From now on, and until the store answers that
        this one or a later one was applied, belief ends no later than what it may leave."""
        with self._mutex:
            self.number += 1
            self.ttl = ttl
            number, until = self.number, asked_at + usable(ttl, margin=self.margin)
            self._asked[number] = until
            shorter = until < self.valid_until
            self.valid_until = min(self.valid_until, until)
        if shorter and self.keeper is not None:
            self.keeper.moved(self)
        return number

    def renewed(self, lease: Lease, asked_at: float, *, now: float) -> bool:
        """Take over what a renewal (or a look) was answered, unless the hold is over; answers older than one already
        seen change nothing. True while the hold goes on."""
        with self._mutex:
            if self.ended is not None or now >= self.valid_until:
                return False
            before = self.valid_until
            self.number = max(self.number, lease.renewal)
            if lease.renewal >= self.applied:
                self.applied = lease.renewal
                self._asked.pop(lease.renewal, None)
                if self._asked:  # most often it was the only one
                    self._asked = {number: until for number, until in self._asked.items() if number > lease.renewal}
                until = valid_until(asked_at, waited=lease.waited, left=_left(lease), margin=self.margin)
                self.valid_until = min([until, *self._asked.values()])
                self.failing_since = None
            shorter = self.valid_until < before
        if shorter and self.keeper is not None:
            self.keeper.moved(self)
        return True

    def end(self, reason: LostReason | Literal["released"]) -> bool:
        """End belief for this reason; false if it had ended before (the first reason stands)."""
        if self.generation != _generation:
            return False
        with self._mutex:
            if self.ended is not None:
                return False
            self.ended = reason
            return True

    def run_lost_hooks(self, run_hook: Callable[[Hook], None]) -> None:
        """Call each hook of the loss once, whoever comes first to it."""
        while self.lost_hooks:
            try:
                hook = self.lost_hooks.pop(0)
            except IndexError:  # another thread was quicker
                return
            run_hook(hook)

    def lost_reason(self, now: float) -> LostReason | None:
        """Why the lease is lost, at its deadline or as the store said; `None` while held, and after a release."""
        if self.generation != _generation:
            return "forked"
        if self.ended is not None:
            return None if self.ended == "released" else self.ended
        if now < self.valid_until:
            return None
        if self.last_reason is not None:
            return self.last_reason
        return "max_hold" if self.valid_until >= self.max_until - 0.001 else "expired"

    def check(self, now: float) -> None:
        """Nothing while held; raises `LockLost`, or `LockNotHeld` after a release."""
        reason = self.lost_reason(now)
        if reason is not None:
            raise lost_error(self.key, reason)
        if self.ended is not None:
            raise LockNotHeld(
                f"the lease on {self.key!r} was released by this handle", key=self.key, reason="already_released"
            )

    def remaining(self, now: float) -> float:
        """Seconds for which it may still be believed; 0 once it is over."""
        return max(0.0, self.valid_until - now) if self.ended is None and not self.forked else 0.0


_WORDS: dict[LostReason, str] = {
    "taken": "somebody else holds it now",
    "retaken": "the same owner took it over",
    "expired": "it ran out before it was renewed",
    "force_released": "it was released by force",
    "max_hold": "it reached its max_hold",
    "denied": "renewing it was denied",
    "store_lost": "the store that held it is gone",
    "forked": "this process was forked from the one that holds it",
    "closed": "its locks were closed",
    "handed_over": "it was handed over",
}


def lost_error(key: str, reason: LostReason) -> LockLost:
    """The error that tells of a lost lease."""
    return LockLost(
        f"the lease on {key!r} is over: {_WORDS[reason]}; the work may have run beside another holder's",
        key=key,
        reason=reason,
        hint="check the fencing token where you write, and choose the ttl by the pauses you tolerate",
    )
