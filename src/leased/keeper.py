"""Keeps leases: one flat loop renews all of them in batches and notices every loss. It never runs a body."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from leased.engine import apply_renewal, lose
from leased.env import Env
from leased.errors import AccessDenied, LeasedError, StoreNotUsable
from leased.hold import INF, Hold
from leased.model import Held, Lost, Renew
from leased.policy import POLL_MAX, RENEWAL_GRID, lease_call_timeout, renew_at, retry_renewal_at, usable
from leased.store import Outcome, Store

_IDLE = 10.0
"""Seconds the loop stays for the next lease once the last has gone."""

_COMPACT_AT = 64


class Keeper:
    """The loop over all leases of one client. Whoever drives it runs `run()` whenever `add` says so.

    It refers to holds weakly: a handle that its owner forgot is no longer renewed. The loop itself never calls the
    store; batches run as work of their own (`Clock.start`), so that a call that hangs delays no loss and no other
    batch. A member of a batch that got no answer is tried again alone.
    """

    def __init__(self, store: Store, env: Env) -> None:
        self._store = store
        self._env = env
        self._mutex = threading.Lock()
        self._fresh: list[weakref.ref[Hold]] = []
        self._heap: list[tuple[float, int, weakref.ref[Hold]]] = []
        self._serial = 0
        self._kept = 0
        self._signal = env.clock.signal()
        self._wakes_at = INF
        self._running = False
        self._closed = False

    def add(self, hold: Hold, *, renewing: bool) -> bool:
        """Keep this hold: notice its loss, and renew it if `renewing`. True if `run` has to be started.

        Most blocks are over before the loop looks again, so a new hold only stands in a list until then. One that
        another keeper has, whose loop may be gone, is taken over from it, with its renewal.
        """
        renewing, before = hold.renewing or renewing, hold.keeper
        if before is not None and before is not self:
            before.discard(hold)
        hold.renewing = renewing and not self._closed
        due = hold.valid_until
        if not _at_last(hold):
            due = hold.renew_due = renew_at(self._env.clock.now(), believed_until=due)
        with self._mutex:
            self._kept += hold.keeper is None
            hold.keeper = self
            self._fresh.append(weakref.ref(hold))
            start = not self._running
            self._running = True
            wake = not start and due < self._wakes_at
        if wake:
            self._signal.set()
        return start

    def not_started(self) -> None:
        """`run`, which `add` asked for, could not be started: let the next `add` ask again."""
        self._running = False

    def discard(self, hold: Hold) -> None:
        """Keep this hold no longer; no renewal of it is started from now on."""
        if hold.forked:  # this keeper is the parent's, and who held its mutex does not run here
            return
        with self._mutex:
            if hold.keeper is not self:
                return
            hold.keeper = None
            hold.renewing, hold.due = False, INF
            self._kept -= 1
            if self._fresh and self._fresh[-1]() is hold:
                self._fresh.pop()
            elif len(self._heap) + len(self._fresh) > _COMPACT_AT + 2 * self._kept:
                self._enter_fresh()
                self._heap = [entry for entry in self._heap if self._current(entry) is not None]
                heapify(self._heap)

    def moved(self, hold: Hold) -> None:
        """The hold's deadline moved to earlier: see that it is renewed in time."""
        now = self._env.clock.now()
        if not _at_last(hold):
            hold.renew_due = min(hold.renew_due, renew_at(now, believed_until=hold.valid_until))
        self._enter(hold)

    def close(self) -> None:
        """Renew nothing from now on; losses are noticed until the last hold has gone."""
        self._closed = True
        with self._mutex:
            self._enter_fresh()
            holds = [hold for entry in self._heap if (hold := self._current(entry)) is not None]
        for hold in holds:
            hold.renewing, hold.renew_due = False, INF
        self._signal.set()

    async def run(self) -> None:
        """The loop. It ends some time after the last lease, at once when closed."""
        idle_until = self._env.clock.now() + _IDLE
        try:
            while True:
                now = self._env.clock.now()
                with self._mutex:
                    self._enter_fresh()
                    self._drop_stale()
                    if self._heap:
                        idle_until = now + _IDLE
                    elif self._closed or now >= idle_until:
                        self._running = False
                        return
                    nap = min(self._heap[0][0] - now, POLL_MAX) if self._heap else POLL_MAX
                    self._wakes_at = now + nap
                if nap > 0:
                    await self._signal.wait(nap)
                self._step()
        except BaseException:
            self._running = False
            raise

    def _step(self) -> None:
        """Everything that is due now: losses at once, renewals as batches of their own."""
        env = self._env
        now = env.clock.now()
        together: list[Hold] = []
        for hold in self._take_due(now):
            reason = hold.lost_reason(now)
            if reason is not None:
                self.discard(hold)
                lose(env, hold, reason)
                continue
            if hold.ended is not None:
                continue
            if hold.failing_since is not None and now >= _at_risk_at(hold):
                self._warn(hold)
            look_at = INF
            if now >= hold.renew_due - RENEWAL_GRID:
                hold.renew_due = now + lease_call_timeout(env.timeout, ttl=hold.ttl) + RENEWAL_GRID  # if all else fails
                if hold.failing_since is None:
                    together.append(hold)
                    look_at = renew_at(now, believed_until=now + usable(hold.ttl, margin=hold.margin))
                else:
                    env.clock.start(self._renew([hold]))
            with self._mutex:
                if hold.keeper is self:
                    self._put(hold, look_at=look_at)
        if together:
            env.clock.start(self._renew(together))

    async def _renew(self, holds: Sequence[Hold]) -> None:
        """Renew these holds in one batch and put them back; whatever the store does, each has its next step."""
        env = self._env
        asked_at = env.clock.now()
        operations: list[Renew] = []
        asked: list[Hold] = []
        for hold in holds:
            if hold.ended is None and hold.renewing:
                if hold.failing_since is None:
                    hold.failing_since = asked_at
                asked.append(hold)
                number = hold.ask(asked_at, ttl=hold.ttl)
                operations.append(Renew(hold.key, hold.token, hold.ttl, number))
        if not asked:
            return
        timeout = lease_call_timeout(env.timeout, ttl=min([hold.ttl for hold in asked]))
        outcomes: Sequence[Outcome]
        try:
            outcomes = await self._call(operations, timeout=timeout)
        except LeasedError as error:
            outcomes = [error] * len(asked)
        for hold, outcome in zip(asked, outcomes, strict=True):
            self._answered(hold, outcome, asked_at=asked_at)

    async def _call(self, operations: Sequence[Renew], *, timeout: float) -> Sequence[Outcome]:
        if len(operations) > 1:
            return await self._store.many(operations, timeout=timeout)
        only = operations[0]
        return [await self._store.renew(only.key, only.token, ttl=only.ttl, number=only.number, timeout=timeout)]

    def _answered(self, hold: Hold, outcome: Outcome, *, asked_at: float) -> None:
        env = self._env
        if isinstance(outcome, (Held, Lost)):
            apply_renewal(env, hold, outcome, asked_at=asked_at)
            hold.at_risk_told = False
            hold.renew_due = INF if _at_last(hold) else renew_at(asked_at, believed_until=hold.valid_until)
        elif isinstance(outcome, AccessDenied):
            hold.last_reason, hold.failing_since, hold.renew_due = "denied", None, INF  # good to its deadline
            env.tell("denied", hold.key, lock=hold.name)
        else:
            if hold.failing_since == asked_at:
                env.tell("renewal_failed", hold.key, lock=hold.name, data={"error": type(outcome).__name__})
            if isinstance(outcome, StoreNotUsable):
                lose(env, hold, "store_lost")
            now = env.clock.now()
            hold.renew_due = retry_renewal_at(now, believed_until=hold.valid_until, chance=env.chance)
        if hold.ended is not None:
            self.discard(hold)
        elif hold.renew_due < hold.due:  # else the loop looks at it in time anyway
            self._enter(hold)

    def _enter(self, hold: Hold) -> None:
        """Enter the hold at its next step, if it is still kept, and see that the loop wakes in time."""
        with self._mutex:
            if hold.keeper is not self:
                return
            self._put(hold)
            wake = hold.due < self._wakes_at
        if wake:
            self._signal.set()

    def _put(self, hold: Hold, *, look_at: float = INF) -> None:
        """Enter the hold at its next step, unless the loop looks at it before that, and then puts it here again.

        `look_at`: look no later than this. Where its next step will be once a renewal that is sent now has succeeded,
        it is entered at once, and needs no second entry then.
        """
        due = min(hold.valid_until, hold.renew_due, look_at)
        if hold.failing_since is not None:
            due = min(due, _at_risk_at(hold))
        if due < hold.due:
            hold.due = due
            self._serial += 1
            heappush(self._heap, (due, self._serial, weakref.ref(hold)))

    def _take_due(self, now: float) -> list[Hold]:
        """All whose step is due, and with them those that are due within one step of the grid."""
        taken: list[Hold] = []
        with self._mutex:
            due = bool(self._heap) and self._heap[0][0] <= now
            while due and self._heap and self._heap[0][0] <= now + RENEWAL_GRID:
                hold = self._current(heappop(self._heap))
                if hold is not None:
                    hold.due = INF
                    taken.append(hold)
        return taken

    def _enter_fresh(self) -> None:
        for reference in self._fresh:
            hold = reference()
            if hold is not None and hold.keeper is self:
                self._put(hold)
        self._fresh.clear()

    def _drop_stale(self) -> None:
        while self._heap and self._current(self._heap[0]) is None:
            heappop(self._heap)

    def _current(self, entry: tuple[float, int, weakref.ref[Hold]]) -> Hold | None:
        """The hold of an entry, if it is alive and kept here, and this is its latest entry."""
        hold = entry[2]()
        return hold if hold is not None and hold.due == entry[0] and hold.keeper is self else None

    def _warn(self, hold: Hold) -> None:
        hold.at_risk_told = True
        self._env.tell("at_risk", hold.key, lock=hold.name)
        if self._env.run_hook is not None:
            for hook in hold.at_risk_hooks:
                self._env.run_hook(hook)


def _at_last(hold: Hold) -> bool:
    """Whether renewing is over for good: it cannot move the end any more."""
    return hold.last_reason is not None or not hold.renewing or hold.valid_until >= hold.max_until - RENEWAL_GRID


def _at_risk_at(hold: Hold) -> float:
    """When renewals will have been failing for a third of the lease."""
    if hold.failing_since is None or hold.at_risk_told:
        return INF
    return hold.failing_since + hold.ttl / 3.0
