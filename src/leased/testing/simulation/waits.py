"""Watches every acquire: it ends in time and in order, and leaves nothing behind; no open key is overlooked."""

from __future__ import annotations

import math

from leased.hold import Hold
from leased.model import Claim
from leased.policy import CLEANUP_BUDGET, MIN_CALL_TIMEOUT, POLL_MAX
from leased.testing.model import Record
from leased.testing.simulation.client import Client, ends_at
from leased.testing.simulation.history import History
from leased.testing.simulation.server import Server
from leased.timeline import Timeline

_ROUND_TRIP = 0.1
_RETURN_GRACE = MIN_CALL_TIMEOUT + _ROUND_TRIP
_CLEANUP_GRACE = CLEANUP_BUDGET + 2 * _ROUND_TRIP
_TAKEN_WITHIN = (POLL_MAX + 2 * _ROUND_TRIP) * 1.02
_TAKEN_SOON = 2 * _ROUND_TRIP


class Acquisition:
    """One call of `acquire`, from its start on."""

    __slots__ = (
        "brought",
        "cancelled",
        "claim",
        "client",
        "ended",
        "gave_up",
        "number",
        "paused_before",
        "started",
        "tokens",
        "wait",
    )

    def __init__(self, client: Client, claim: Claim, *, wait: float, brought: bool, number: int, now: float) -> None:
        self.client = client
        self.claim = claim
        self.wait = wait
        self.brought = brought
        self.number = number
        self.started = now
        self.paused_before = client.paused
        self.tokens = [claim.token]
        self.cancelled = False
        self.gave_up = False
        self.ended: float | None = None

    @property
    def until(self) -> float:
        """The real instant at which the wait is over."""
        return ends_at(self.started, wait=self.client.local(self.wait))

    def waits(self, now: float) -> bool:
        """Whether it still asks for the key, and will."""
        leaves = self.cancelled or self.gave_up or self.tokens[-1] in self.client.heard.denied
        return self.ended is None and not leaves and self.client.alive and now < self.until


class Waits:
    """All acquisitions of a run."""

    def __init__(self, timeline: Timeline, history: History, *, server: Server, inside: bool, notices: bool) -> None:
        self._timeline = timeline
        self._history = history
        self._server = server
        self._inside = inside
        self._notices = notices
        self._restarted = False
        self._number = 0
        self._open: dict[str, list[Acquisition]] = {}
        self._records: dict[str, Record | None] = {}
        self._versions: dict[str, int] = {}
        self._opens: dict[str, float] = {}

    def begin(self, client: Client, claim: Claim, *, wait: float, brought: bool) -> Acquisition:
        """An acquire starts now."""
        self._number += 1
        client.heard.unanswered.discard(claim.token)  # what an earlier acquire left open is its caller's business
        acquisition = Acquisition(
            client, claim, wait=wait, brought=brought, number=self._number, now=self._timeline.now
        )
        self._open.setdefault(claim.key, []).append(acquisition)
        self._history.add(client.name, "acquires", f"#{self._number}", claim, claim.token, f"wait {wait:.3f}")
        version, opens = self._versions.get(claim.key, 0), self._opens.get(claim.key, 0.0)
        due = max(self._timeline.now, opens) + _TAKEN_WITHIN
        self._timeline.at(due, lambda: self._check_taken(claim.key, version, opens))
        return acquisition

    def end(self, acquisition: Acquisition, *, hold: Hold | None, left_open: bool = False) -> None:
        """An acquire ended; `left_open`: the caller keeps its token and will ask again, or abandon it."""
        now = self._timeline.now
        acquisition.ended = now
        self._open[acquisition.claim.key].remove(acquisition)
        self._history.add(acquisition.client.name, "ends", f"#{acquisition.number}", hold.token if hold else "without")
        if hold is not None:
            if acquisition.cancelled:
                self._break("L12", acquisition, "became holder after it was cancelled")
            self._check_order(acquisition)
            if hold.token in acquisition.client.heard.unanswered:
                self._server.judge.announced.add(hold.token)
        self._check_return(acquisition)
        for token in acquisition.tokens:
            if (hold is None or token != hold.token) and not (left_open and token == acquisition.claim.token):
                self._expect_nothing_left(acquisition, token)

    def after_step(self, client: Client) -> None:
        """A client ran: of those who wait for a key in it, only one asks at a time."""
        asking = client.heard.asking
        if len(asking) < 2:
            return
        for key in {claim.key for claim in asking.values()}:
            waiting = [
                acquisition
                for acquisition in self._open.get(key, ())
                if acquisition.wait > 0 and acquisition.claim.owner is None and acquisition.tokens[-1] in asking
            ]
            if len(waiting) > 1:
                self._break("LIVE6", waiting[1], f"asks while #{waiting[0].number} does")

    def store_changed(self, key: str) -> None:
        """The store executed something on this key."""
        record = self._server.judge.record(key)
        if record is not self._records.get(key):
            self._records[key] = record
            self._look_at(key, changed=True)

    def store_reset(self) -> None:
        """The store restarted, which ends all watches, or its clock was set: look at everything anew."""
        self._restarted = True
        for key in self._open:
            self._records[key] = self._server.judge.record(key)
            self._look_at(key, changed=False)

    def _check_order(self, granted: Acquisition) -> None:
        """In one process, those who wait are served in the order in which they came (the holder's owner excepted)."""
        if granted.wait <= 0 or granted.claim.owner is not None:
            return
        for other in self._open[granted.claim.key]:
            earlier = other.client is granted.client and other.wait > 0 and other.number < granted.number
            if earlier and other.waits(self._timeline.now) and other.claim.owner is None and not other.brought:
                self._break("LIVE5", granted, f"was served before #{other.number}, which came first")

    def _check_return(self, acquisition: Acquisition) -> None:
        """Whoever waits is back within the wait and a round trip, and the clean-up where there is one."""
        client, now = acquisition.client, self._timeline.now
        took = now - acquisition.started - (client.paused - acquisition.paused_before)
        allowed = max(acquisition.wait, 0.0) if acquisition.wait > 0 else client.env.timeout
        if not acquisition.cancelled and took > client.local(allowed + _RETURN_GRACE + _CLEANUP_GRACE) + _ROUND_TRIP:
            self._break("LIVE4", acquisition, f"took {took:.3f} s instead of {allowed:.3f} s")

    def _expect_nothing_left(self, acquisition: Acquisition, token: str) -> None:
        """Look again once the clean-up must have reached the store."""
        ended = self._timeline.now
        due = max(ended, acquisition.client.calm_since) + _CLEANUP_GRACE
        self._timeline.at(due, lambda: self._check_nothing_left(acquisition, token, ended))

    def _check_nothing_left(self, acquisition: Acquisition, token: str, ended: float) -> None:
        judge, client = self._server.judge, acquisition.client
        if not client.alive or token in judge.excused:
            return
        due = client.awake_since + _CLEANUP_GRACE
        if due > self._timeline.now:  # it had no time to clean up
            self._timeline.at(due, lambda: self._check_nothing_left(acquisition, token, ended))
            return
        granted = judge.granted.get(token)
        if granted is not None and judge.holds(acquisition.claim.key, token, now=self._server.clock.now()):
            # A second copy that wins after a refusal is one unrenewed lease (O5); a brought token may come from before.
            ghost = token in client.link.doubled or acquisition.brought
            before = not ghost and self._server.clock.real(granted) < ended
            if before and client.calm_since < ended - _CLEANUP_GRACE:
                self._break("LIVE3", acquisition, f"ended without {token}, and the store still holds the key for it")
        if token in client.heard.unanswered and token not in client.heard.given_back:
            self._break("SAFE11", acquisition, f"ended without {token}, which may still be granted: never abandoned")

    def _look_at(self, key: str, *, changed: bool) -> None:
        """Look again once somebody must have taken the key, if it is open then."""
        record, now = self._server.judge.record(key), self._timeline.now
        opens = self._opens[key] = now if record is None else max(self._server.clock.real(record.free_at), now)
        version = self._versions[key] = self._versions.get(key, 0) + 1
        self._timeline.at(opens + _TAKEN_WITHIN, lambda: self._check_taken(key, version, opens))
        if changed and (opens > now or self._notices):
            self._timeline.at(opens + _TAKEN_SOON, lambda: self._check_taken_soon(key, version, opens, now))

    def _check_taken(self, key: str, version: int, opens: float) -> None:
        """An open key is taken within a bound by someone who waits for it, if nothing is wrong with that one."""
        now = self._timeline.now
        if self._versions.get(key, 0) != version or not self._inside:
            return
        again = math.inf
        for waiter in self._open.get(key, ()):
            client = waiter.client
            if not waiter.waits(now) or waiter.wait <= 0 or waiter.brought:
                continue
            since = max(opens, waiter.started, client.calm_since, client.barred_until(waiter.claim))
            if now - since >= _TAKEN_WITHIN:
                self._break("LIVE2", waiter, f"waits, and {key!r} has been open for {now - since:.3f} s")
            else:
                again = min(again, min(since, now) + _TAKEN_WITHIN)
        if again < math.inf:
            self._timeline.at(again, lambda: self._check_taken(key, version, opens))

    def _check_taken_soon(self, key: str, version: int, opens: float, changed: float) -> None:
        """Someone who waits takes the key at once when a notice says that it opened, or when he knew when it would."""
        now = self._timeline.now
        if self._versions[key] != version or not self._inside or self._restarted:
            return
        for waiter in self._open.get(key, ()):
            client = waiter.client
            if not waiter.waits(now) or waiter.wait <= 0 or waiter.brought:
                continue
            knew = opens <= changed or changed + _ROUND_TRIP < client.heard.looked.get(key, -1.0) < opens
            ready = max(waiter.started, client.calm_since + _TAKEN_WITHIN, client.barred_until(waiter.claim)) < opens
            if knew and ready:
                self._break("LIVE2", waiter, f"waits, and knew that {key!r} would open {now - opens:.3f} s ago")

    def _break(self, promise: str, acquisition: Acquisition, what: str) -> None:
        name, claim = acquisition.client.name, acquisition.claim
        self._history.break_off(promise, f"{name}'s acquire #{acquisition.number} of {claim.key!r} {what}")
