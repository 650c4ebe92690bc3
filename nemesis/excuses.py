"""What may end a hold before its time: a forced release, a fail-over where the store had said so, and the store's clock
where it was set or ran too fast, since a lease ends by that clock. Nothing else.

A fail-over excuses only what the store's assurance stated when the lease was granted (`early_loss`, and no more
exclusion than `until-failover`), only holds that were granted before the old data was gone, and only for one ttl after.
A clock excuses by how much it was moved: within the margins of a holder it excuses nothing, and no fencing token ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from leased.model import exclusivity_rank
from nemesis.run import Call, Fault, Hold, Run
from nemesis.worker import TIMEOUT

SLACK = 0.1
"""Seconds between an instant and the line that tells of it, on a machine that is busy."""

JUMP = 0.1
"""Seconds by which a clock jumps when it begins to run otherwise, for each 1.0 of its rate: how it is moved."""


class Excuses:
    """The excuses of one run; `used` counts how often each kind was taken."""

    def __init__(self, run: Run) -> None:
        """Of this run."""
        self.used: Counter[str] = Counter()
        self._run = run
        self._forces: dict[str, list[Call]] = defaultdict(list)
        for call in run.calls:
            if call.call == "force" and (call.outcome == "unknown" or (call.outcome == "ok" and call.found["ended"])):
                self._forces[call.key].append(call)

    def ended_early(self, hold: Hold, at: float) -> bool:
        """Whether this hold may have been over at the store at that time although it was believed in."""
        return (
            any(at >= call.asked for call, _ in self._hits(hold))
            or any(fault.began <= at and self._bounded(hold, at, fault) for fault in self._losses(hold))
            or self._over_by_the_clock(hold, at)
        )

    def overlap(self, earlier: Hold, later: Hold, *, until: float) -> str | None:
        """Why both may have been believed in until that time; `None` if nothing excuses it."""
        for call, over in self._hits(earlier):
            # a fail-over may forget the forced release and the later grant, and the earlier hold goes on
            forgotten = [fault.gone + later.ttl for fault in self._losses(later) if fault.began <= until]
            if call.asked <= later.granted and until <= max([over + earlier.ttl, *forgotten]) + SLACK:
                return self._use("forced release")
        if self._over_by_the_clock(earlier, later.granted):
            return self._use("clock moved")
        for fault in self._losses(earlier):
            if later.granted >= fault.began and until <= fault.gone + earlier.ttl + SLACK:
                return self._use("fail-over")  # the earlier one was forgotten
        for fault in self._losses(later):
            split = earlier.contact(later.granted) >= fault.began - SLACK
            if split and until <= fault.gone + later.ttl + SLACK:
                return self._use("fail-over")  # of two primaries the old one granted later, and was forgotten
        return None

    def revived(self, earlier: Hold, later: Hold, call: Call) -> str | None:
        """Why the store may have taken a call of the earlier hold for the holder's after it had granted the later."""
        for fault in self._losses(later):
            if call.answered >= fault.began:
                return self._use("fail-over")  # the later grant was forgotten
        for fault in self._losses(earlier):
            if later.granted >= fault.began and call.asked <= fault.gone:
                return self._use("fail-over")  # the old server still answered
        return None

    def forgotten(self, hold: Hold, at: float) -> str | None:
        """Why the store may know nothing at that time of a token it had granted."""
        return self._use("fail-over") if any(fault.began <= at for fault in self._losses(hold)) else None

    def excuse(self, hold: Hold, at: float) -> str | None:
        """As `ended_early`, and counted: which excuse it was."""
        for call, _ in self._hits(hold):
            if at >= call.asked:
                return self._use("forced release")
        for fault in self._losses(hold):
            if fault.began <= at and self._bounded(hold, at, fault):
                return self._use("fail-over")
        return self._use("clock moved") if self._over_by_the_clock(hold, at) else None

    def _over_by_the_clock(self, hold: Hold, at: float) -> bool:
        """Whether the lease was over at that time on the store's clock, for that was set or ran too fast."""
        contact = hold.contact(at)
        for fault in self._run.faults:
            if fault.began > at or fault.healed < contact:
                continue
            if fault.step or (fault.rate > 1.0 and at >= contact + hold.ttl / fault.rate - (fault.rate - 1.0) * JUMP):
                return True
        return False

    def _hits(self, hold: Hold) -> Iterator[tuple[Call, float]]:
        """The forced releases that can have ended this hold, and when each was over at the latest."""
        for call in self._forces[hold.key]:
            over = self._over(call)
            if call.given.get("aim") in (None, hold.fence) and over >= hold.earliest:
                yield call, over

    def _over(self, call: Call) -> float:
        """When a call has had its effect at the latest: a stopped server may do it after nobody waits for it."""
        if call.outcome == "ok":
            return call.answered
        over = call.asked + TIMEOUT
        for fault in sorted(self._run.faults, key=lambda fault: fault.began):
            if fault.began <= over and fault.healed >= call.asked:
                over = max(over, fault.healed)
        return over

    def _losses(self, hold: Hold) -> Iterator[Fault]:
        """The faults that may have made the store forget this grant, where it had said that this can be."""
        found = hold.acquire.found
        stated = found["early_loss"] and exclusivity_rank(found["exclusive"]) <= exclusivity_rank("until-failover")
        for fault in self._run.faults:
            if stated and fault.loses and hold.earliest <= fault.gone and hold.granted <= fault.healed + hold.ttl:
                yield fault

    def _bounded(self, hold: Hold, at: float, fault: Fault) -> bool:
        """Whether what is believed at that time rests on an answer from before the old data was gone."""
        return hold.until(at) <= fault.gone + hold.ttl + SLACK

    def _use(self, kind: str) -> str:
        self.used[kind] += 1
        return kind
