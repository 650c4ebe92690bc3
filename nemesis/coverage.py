"""How much of what can happen did happen in a run; a run in which too little happened proves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nemesis.checks.liveness import waited_for
from nemesis.judge import Verdict
from nemesis.run import Hold, Run

MINUTE = 60.0

WORKERS: Mapping[str, int] = {
    "grants": 150,
    "contended": 100,
    "satisfied waits": 100,
    "renewals": 100,
    "losses known": 20,
    "take-overs after expiry": 20,
    "stale calls refused": 40,
    "repeated requests": 10,
    "hand-offs": 20,
    "forced releases": 3,
    "zombies that knew": 3,
    "killed workers": 3,
}
"""What a minute of any scenario must have seen at the least."""


def counts(verdict: Verdict) -> dict[str, int]:
    """What happened, by name."""
    run = verdict.run
    holds = [hold for found in run.holds.values() for hold in found]
    acquires = [call for call in run.calls if call.call == "acquire"]
    refused = [call for call in run.calls if call.found.get("reason") in ("lease_lost", "not_holder", "expired")]
    return {
        "grants": len(holds),
        "contended": sum(call.found.get("error") in ("LockNotAcquired", "LockTimeout") for call in acquires),
        "satisfied waits": sum(call.granted and call.answered - call.asked > 0.05 for call in acquires),
        "renewals": sum(bool(call.found.get("renewed")) for call in run.calls)
        + sum(line.data["event"] == "renewed" for line in run.told),
        "losses known": sum(hold.loss is not None for hold in holds),
        "take-overs after expiry": sum(_take_overs(found) for found in run.holds.values()),
        "stale calls refused": len(refused) + sum(not line.data["accepted"] for line in run.writes),
        "repeated requests": sum(bool(call.granted and call.hold) for call in acquires),
        "hand-offs": sum(1 for _ in waited_for(run)),
        "forced releases": sum(bool(call.found.get("ended")) for call in run.calls),
        "zombies that knew": sum(_knew(run, hold) for hold in holds),
        "killed workers": len(run.deaths),
        "unknown outcomes": sum(call.outcome == "unknown" and call.who not in run.deaths for call in run.calls),
        "faults": len(run.faults),
        "fail-overs": sum(fault.loses for fault in run.faults),
        "grants lost to fail-over": verdict.excused.get("early loss: fail-over", 0),
    }


def missing(found: Mapping[str, int], gates: Mapping[str, int], *, seconds: float) -> list[str]:
    """What there was too little of, for a run of this length; one of more than a minute need not have seen more."""
    wanted = {name: int(least * min(seconds / MINUTE, 1.0)) for name, least in gates.items()}
    return [f"{name}: {found[name]} of {least}" for name, least in wanted.items() if found[name] < least]


def _take_overs(holds: Sequence[Hold]) -> int:
    """Grants of a key whose last lease had run out, for nobody gave it up."""
    ordered = sorted(holds, key=lambda hold: hold.fence)
    lapsed = [all(call.call == "drop" or call.asked > hold.until() for call in hold.calls) for hold in ordered]
    return sum(lapsed[:-1])


def _knew(run: Run, hold: Hold) -> bool:
    """Whether its process was stopped beyond its end, and the first that it read after that was the loss."""
    for began, ended in run.stops.get(hold.who, ()):
        if hold.granted < began < hold.until(began) < ended:
            after = [line for line in hold.sights if line.at > ended]
            if after and after[0].data["lost"]:
                return True
    return False
