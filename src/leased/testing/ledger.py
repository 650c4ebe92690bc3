"""What the answers of a store prove by themselves, promise by promise; it shares nothing with the model."""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.model import Abandon, Acquire, Claim, Held, Lease, Look, Lost, Release, Released, Renew
from leased.policy import MAX_FENCING_TOKEN, REPLAY_WINDOW
from leased.testing.model import Answer, Command, ForceRelease


class PromiseBroken(AssertionError):
    """Two answers cannot both be right under the promise that the text names."""


@dataclass(slots=True)
class Hold:
    """Who holds a key as far as answers tell, and until which instant."""

    claim: Claim
    number: int
    until: float
    late: bool
    told: int = 1
    """How many claims were answered that it holds; -1 once it was renewed, for then nobody counts."""


@dataclass(slots=True)
class Ledger:
    """Follows the answers of one store. `slack` is how far its times may be off, in seconds."""

    slack: float = 0.0
    _holds: dict[str, Hold] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _refused_until: dict[str, float] = field(default_factory=dict)

    def saw(self, command: Command, answer: Answer, *, now: float) -> None:
        """Note an answer, or raise `PromiseBroken` if it cannot be true after those before it."""
        match command, answer:
            case Acquire(claim), Held(lease):
                self._granted(claim, lease, now)
            case ((Renew(key, token) | Look(key, token)), Held(lease)):
                hold = self._live(key, token, now)
                if hold is None:
                    raise PromiseBroken(f"SAFE5: {key!r} is held by a token whose hold had ended")
                self._same_number(hold, lease)
                if isinstance(command, Renew):
                    hold.until = now + lease.left
                    hold.told = -1 if lease.renewal else hold.told
            case ((Renew(key, token) | Look(key, token)), Lost(reason)):
                if self._live(key, token, now):
                    raise PromiseBroken(f"SAFE6: the hold of {key!r} is called lost ({reason}) before its end")
            case Release(key, token, late), Released(reason):
                hold = self._live(key, token, now)
                if (reason == "") != (hold is not None):
                    raise PromiseBroken(f"SAFE4: a release of {key!r} answered {reason!r}, against what is known")
                self._end(hold, now=now, refused=late or (hold is not None and hold.late))
                self._refuse(token, now if late else None)
            case Abandon(key, token, heard), _ if not self._kept(key, token, heard, now=now):
                self._end(self._live(key, token, now), now=now, refused=True)
                self._refuse(token, now)
            case ForceRelease(key), True:
                hold = self._holds.get(key)
                self._end(hold, now=now, refused=hold is not None and (hold.late or not self._over(hold, now)))
            case _:
                pass

    def _granted(self, claim: Claim, lease: Lease, now: float) -> None:
        hold = self._live(claim.key, claim.token, now)
        if hold:
            hold.late = hold.late or claim.late
            hold.told += hold.told > 0
            self._same_number(hold, lease)
            return
        before = self._holds.get(claim.key)
        if before and not self._over(before, now):
            if claim.owner is None or claim.owner != before.claim.owner:
                raise PromiseBroken(f"SAFE1: {claim.key!r} was granted while somebody else held it")
            self._end(before, now=now, refused=True)
        elif before and before.late:
            self._end(before, now=before.until, refused=True)
        if now < self._refused_until.get(claim.token, 0.0) - self.slack:
            raise PromiseBroken(f"SAFE5: {claim.key!r} was granted again to a token that had ended")
        if not self._numbers.get(claim.key, 0) < lease.fencing_token <= MAX_FENCING_TOKEN:
            raise PromiseBroken(f"SAFE2: {claim.key!r} got {lease.fencing_token} after {self._numbers.get(claim.key)}")
        self._numbers[claim.key] = lease.fencing_token
        self._holds[claim.key] = Hold(claim, lease.fencing_token, now + lease.left, claim.late)

    def _same_number(self, hold: Hold, lease: Lease) -> None:
        if lease.fencing_token != hold.number:
            raise PromiseBroken(f"SAFE7: one claim on {lease.key!r} was answered with two fencing tokens")

    def _kept(self, key: str, token: str, heard: int | None, *, now: float) -> bool:
        """Whether an abandon leaves a hold alone, for others were told of it; or may do so, as it is about to end."""
        hold = self._holds.get(key)
        if heard is None or hold is None or hold.claim.token != token or now >= hold.until + self.slack:
            return False
        return not 0 < hold.told <= heard or self._over(hold, now)

    def _over(self, hold: Hold, now: float) -> bool:
        return now >= hold.until - self.slack

    def _live(self, key: str, token: str, now: float) -> Hold | None:
        hold = self._holds.get(key)
        return hold if hold and hold.claim.token == token and not self._over(hold, now) else None

    def _end(self, hold: Hold | None, *, now: float, refused: bool) -> None:
        if hold:
            self._holds.pop(hold.claim.key, None)
            self._refuse(hold.claim.token, now if refused else None)

    def _refuse(self, token: str, since: float | None) -> None:
        if since is not None:
            self._refused_until[token] = max(since + REPLAY_WINDOW, self._refused_until.get(token, 0.0))
