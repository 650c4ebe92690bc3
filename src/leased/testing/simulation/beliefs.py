"""Watches what holders believe: compares it, in continuous time, with what the store holds for them.

All of this rests on the declared clock bounds; outside them nothing is checked here.
"""

from __future__ import annotations

from leased.hold import Hold
from leased.policy import RENEWAL_GRID
from leased.testing.simulation.client import Client
from leased.testing.simulation.history import History
from leased.testing.simulation.server import Server
from leased.timeline import Timeline

_ROUNDING = 1e-6
_SIGNAL_GRACE = RENEWAL_GRID + 0.01
_SIGNAL_GRACE_AFTER_PAUSE = 1.0
_RENEWAL_GRACE = 0.3
_RENEWAL_TAKES = 0.15
_LONG = 100.0


class Belief:
    """One hold of one client as last seen, and what its keeper owes it."""

    __slots__ = ("client", "ended", "extended_at", "hold", "kept", "lost_told", "over", "renewing", "until")

    def __init__(self, client: Client, hold: Hold, *, kept: bool, renewing: bool, now: float) -> None:
        self.client = client
        self.hold = hold
        self.kept = kept
        self.renewing = renewing
        self.until = hold.valid_until
        self.ended: str | None = hold.ended
        self.extended_at = now
        self.over = False
        self.lost_told = 0

    @property
    def real_until(self) -> float:
        """The real instant at which it ends by the holder's clock."""
        return self.client.clock.real(self.until)

    def active(self, now: float) -> bool:
        """Whether the holder believes at that real instant."""
        return self.ended is None and now < self.real_until and self.client.alive


class Beliefs:
    """All beliefs of a run that may still matter."""

    def __init__(self, timeline: Timeline, history: History, *, server: Server, inside: bool) -> None:
        self._timeline = timeline
        self._history = history
        self._server = server
        self._inside = inside
        self._by_key: dict[str, list[Belief]] = {}
        self._by_client: dict[Client, list[Belief]] = {}
        self._all: list[Belief] = []  # so that no handle is collected in mid-run: when that happens is not drawn

    def track(self, client: Client, hold: Hold, *, kept: bool, renewing: bool) -> Belief:
        """A client believes in this hold from now on."""
        belief = Belief(client, hold, kept=kept, renewing=renewing, now=self._timeline.now)
        self._all.append(belief)
        self._by_key.setdefault(hold.key, []).append(belief)
        self._by_client.setdefault(client, []).append(belief)
        self._history.add(
            client.name, "believes", hold.key, hold.token, hold.fencing_token, f"until {hold.valid_until:.4f}"
        )
        if client.clock.now() >= hold.valid_until:
            self._break("M5", belief, "was handed out although it was over")
        self.check(belief)
        if kept:
            hold.lost_hooks.append(lambda: self._told(belief))
            self._expect_signal(belief)
        return belief

    def drop(self, belief: Belief) -> None:
        """Its holder has no more use for it."""
        self.after_step(belief.client)
        self._by_key[belief.hold.key].remove(belief)
        self._by_client[belief.client].remove(belief)

    def after_step(self, client: Client) -> None:
        """A client ran: see what became of its beliefs."""
        for belief in self._by_client.get(client, ()):
            hold = belief.hold
            if hold.valid_until != belief.until or hold.ended != belief.ended:
                self._changed(belief)
            if hold.ended is None and hold.token in client.heard.lost and belief.active(self._timeline.now):
                self._break("H2", belief, "is still believed in after the store said that it is lost")

    def renews(self, client: Client, token: str) -> None:
        """A client asks for a renewal: not for a lease that it knows to be over."""
        beliefs = [belief for belief in self._by_client.get(client, ()) if belief.hold.token == token]
        if beliefs and all(belief.hold.ended is not None for belief in beliefs):
            self._break("H1", beliefs[0], f"is over ({beliefs[0].hold.ended}), and renewed all the same")

    def store_changed(self, key: str) -> None:
        """The store executed something on this key."""
        for belief in self._by_key.get(key, ()):
            self.check(belief)

    def clock_stepped(self, seconds: float, *, declared: bool) -> None:
        """The store's clock was set: within the bound everything must hold, beyond it these leases are excused."""
        judge = self._server.judge
        if not declared and seconds > 0:
            judge.excused.update(judge.granted)
        for key in self._by_key:
            self.store_changed(key)

    def check(self, belief: Belief) -> None:
        """Belief implies that the store holds it for this token, for at least as long; and nobody else believes."""
        now = self._timeline.now
        if not self._inside or not belief.active(now) or self._excused(belief):
            return
        hold, judge, clock = belief.hold, self._server.judge, self._server.clock
        record = judge.record(hold.key)
        if record is None or not record.held_by(hold.token, clock.now()):
            self._break("SAFE3", belief, "believes, and the store holds nothing for it")
        elif record.fencing_token != hold.fencing_token:
            self._break("SAFE2", belief, f"believes in {hold.fencing_token}, the store granted {record.fencing_token}")
        elif belief.real_until > clock.real(record.expires_at) + _ROUNDING:
            late = belief.real_until - clock.real(record.expires_at)
            self._break("SAFE3", belief, f"believes {late:.4f} s longer than the store holds it")
        for other in self._by_key[hold.key]:
            if other.hold.token != hold.token and other.active(now) and not self._excused(other):
                self._break("SAFE1", belief, f"believes at the same time as {other.client.name} in {other.hold.token}")

    def _changed(self, belief: Belief) -> None:
        """A hold was renewed, shortened, released or lost."""
        now, hold, clock = self._timeline.now, belief.hold, belief.client.clock
        if hold.ended is None and hold.valid_until > max(belief.until, clock.now()) and clock.now() > belief.until:
            self._break("SAFE5", belief, f"was over at {belief.until:.4f} and is believed in again")
        if belief.ended is not None and hold.ended is None:
            self._break("SAFE5", belief, f"had ended ({belief.ended}) and is believed in again")
        if hold.valid_until > belief.until:
            belief.extended_at = now
        belief.until, belief.ended = hold.valid_until, hold.ended
        self._history.add(belief.client.name, "belief", hold.token, hold.ended or "", f"until {hold.valid_until:.4f}")
        self.check(belief)

    def _excused(self, belief: Belief) -> bool:
        """Whether somebody was allowed to end this lease under its holder: by force, by re-take, or by an accident
        that is declared."""
        judge = self._server.judge
        return belief.hold.token in judge.forced or belief.hold.token in judge.excused

    def _told(self, belief: Belief) -> None:
        """The loss reached the callback."""
        belief.lost_told += 1
        self._history.add(belief.client.name, "told of loss", belief.hold.token, belief.hold.ended)
        if belief.lost_told > 1:
            self._break("SAFE12", belief, "was told of its loss twice")
        freed = belief.hold.token in self._server.judge.freed  # by a release whose second copy was answered first
        if belief.renewing and belief.hold.ended == "expired" and self._inside and not freed:
            self._check_renewals(belief)

    def _check_renewals(self, belief: Belief) -> None:
        """A lease that is renewed does not run out while nothing is wrong."""
        client = belief.client
        if belief.hold.max_until < belief.until + _LONG:
            return  # its max_hold is near: how near, only the store knows
        if belief.real_until - belief.extended_at < _RENEWAL_TAKES:
            return  # there was no time for an answer
        if client.calm_since < belief.extended_at - _RENEWAL_GRACE and not self._excused(belief):
            self._break("H1", belief, "ran out although every renewal could have been answered")

    def _expect_signal(self, belief: Belief) -> None:
        """Look again once the loss must have been told."""
        due = max(belief.real_until + _SIGNAL_GRACE, belief.client.awake_since + _SIGNAL_GRACE_AFTER_PAUSE)
        self._timeline.at(due, lambda: self._signal_due(belief, due))

    def _signal_due(self, belief: Belief, due: float) -> None:
        hold, client = belief.hold, belief.client
        if hold.ended is not None or not belief.kept or not client.alive or client.stopped:
            return
        late_at = max(
            client.clock.real(hold.valid_until) + _SIGNAL_GRACE, client.awake_since + _SIGNAL_GRACE_AFTER_PAUSE
        )
        if late_at > due:
            self._expect_signal(belief)
        elif not belief.lost_told:
            self._break("SAFE12", belief, "is over, and nobody was told")

    def _break(self, promise: str, belief: Belief, what: str) -> None:
        hold = belief.hold
        self._history.break_off(
            promise,
            f"{belief.client.name}'s hold {hold.token} on {hold.key!r} (fencing token {hold.fencing_token}) {what}",
        )
