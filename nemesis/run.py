"""A run as the judge sees it: calls, holds and faults put together from lines. It convicts nobody."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nemesis.history import Line

NEVER = math.inf
CLOCK_MARGIN, STEP_MARGIN = 0.02, 0.05
"""What a holder gives up of its lease: a share, and seconds. Stated by the product, and repeated here on purpose."""

GIVING_UP = frozenset({"release", "leave", "abandon", "drop"})
"""Calls with which a holder gives up its belief."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the library. One that never ended has `answered` `NEVER` and the outcome `unknown`."""

    op: str
    call: str
    who: str
    key: str
    hold: str
    asked: float
    given: Mapping[str, Any]
    answered: float = NEVER
    outcome: str = "unknown"
    found: Mapping[str, Any] = field(default_factory=dict)

    @property
    def granted(self) -> bool:
        """Whether it is an acquire that got a handle."""
        return self.call == "acquire" and self.outcome == "ok"


@dataclass(frozen=True, slots=True)
class Hold:
    """One grant, and what its holder recorded of it. Times of belief are inner bounds: it believed at least then.

    `earliest` is the earliest instant at which the store can have granted it.
    """

    acquire: Call
    calls: Sequence[Call]
    sights: Sequence[Line]
    told: Sequence[Line]
    died: float = NEVER

    @property
    def op(self) -> str:
        """The call that got it."""
        return self.acquire.op

    @property
    def key(self) -> str:
        """What is held."""
        return self.acquire.key

    @property
    def who(self) -> str:
        """The process of the holder."""
        return self.acquire.who

    @property
    def fence(self) -> int:
        """Its fencing token."""
        return int(self.acquire.found["fence"])

    @property
    def ttl(self) -> float:
        """Its length in seconds."""
        return float(self.acquire.given["ttl"])

    @property
    def kept(self) -> bool:
        """Whether the library renews it and tells of its loss."""
        return bool(self.acquire.given.get("kept"))

    @property
    def granted(self) -> float:
        """When the holder had it."""
        return self.acquire.answered

    @property
    def earliest(self) -> float:
        """Belief never outlives what the store has left, so the grant cannot be older than a ttl before its end."""
        if self.acquire.found["lost"]:
            return self.acquire.asked
        return max(self.acquire.asked, float(self.acquire.found["until"]) - self.ttl)

    @property
    def given_up(self) -> float:
        """When its holder began to let it go."""
        return min((call.asked for call in self.calls if call.call in GIVING_UP), default=NEVER)

    @property
    def loss(self) -> tuple[float, str] | None:
        """When the holder knew that it is lost, and why; `None` while it did not."""
        found = [(line.at, str(line.data.get("reason"))) for line in self.sights if line.data["lost"]]
        found += [(line.at, str(line.data.get("reason"))) for line in self.told if line.data["event"] == "lost"]
        return min(found, default=None)

    def until(self, at: float = NEVER) -> float:
        """How long the holder believed, as it last saw before a time, were nothing else to happen.

        What a handle says after its holder began to give it up is no belief: a released one is not lost.
        """
        seen = [(self.granted, self.acquire.found), *((line.at, line.data) for line in self.sights)]
        last = min(at, self.given_up)
        return max(
            (max(seen_at, float(data["until"])) for seen_at, data in seen if not data["lost"] and seen_at <= last),
            default=-NEVER,
        )

    def contact(self, at: float = NEVER) -> float:
        """When the answer was asked for by which the holder believed, as it last saw before a time."""
        return self.until(at) - usable(self.ttl)

    @property
    def belief(self) -> tuple[float, float]:
        """From when until when its holder believed; empty where the end is not after the beginning."""
        known = self.loss
        return self.granted, min(self.given_up, known[0] if known else NEVER, self.until(), self.died)


@dataclass(frozen=True, slots=True)
class Fault:
    """A server was broken. Where it `loses`, grants from before `gone` may be forgotten from `began` on; where it does
    not `hurt`, no caller may meet an error. A `step` set the store's clock, there and back; `rate` is how fast it ran.
    """

    op: str
    name: str
    began: float
    gone: float
    healed: float
    loses: bool
    hurts: bool
    step: float = 0.0
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that happened in one run. `stops` are the times in which a process was stopped; `store` is the kind of
    store, as its URL says."""

    calls: Sequence[Call]
    holds: Mapping[str, Sequence[Hold]]
    faults: Sequence[Fault]
    stops: Mapping[str, Sequence[tuple[float, float]]]
    deaths: Mapping[str, float]
    writes: Sequence[Line]
    told: Sequence[Line]
    ended: float
    store: str = ""

    def quiet(self, began: float, ended: float, *, who: Iterable[str] = ()) -> bool:
        """Whether no server was broken then, and none of these processes stopped or killed."""
        if any(fault.began < ended and fault.healed > began for fault in self.faults):
            return False
        return all(self.deaths.get(one, NEVER) > ended and not self.stopped(one, began, ended) for one in who)

    def stopped(self, who: str, began: float, ended: float) -> float:
        """For how many seconds of that time a process was stopped."""
        return sum(max(0.0, min(stop[1], ended) - max(stop[0], began)) for stop in self.stops.get(who, ()))


def usable(ttl: float) -> float:
    """For how long a holder may believe after it asked, at the most."""
    return ttl * (1 - CLOCK_MARGIN) - STEP_MARGIN


def put_together(lines: Sequence[Line]) -> Run:
    """The run that left these lines, which are in the order of their times."""
    calls = _calls(lines)
    deaths = {line.who: line.at for line in lines if line.what == "killed"}
    by_hold: dict[str, list[Call]] = defaultdict(list)
    sights, told = _by_hold(lines, "sees"), _by_hold(lines, "told")
    for call in calls:
        by_hold[call.hold].append(call)
    holds: dict[str, list[Hold]] = defaultdict(list)
    for call in calls:
        if call.granted and not call.hold:
            died = deaths.get(call.who, NEVER)
            holds[call.key].append(Hold(call, by_hold[call.op], sights[call.op], told[call.op], died))
    for found in holds.values():
        found.sort(key=lambda hold: hold.granted)
    return Run(
        calls=calls,
        holds=holds,
        faults=_faults(lines),
        stops=_stops(lines),
        deaths=deaths,
        writes=[line for line in lines if line.what == "wrote"],
        told=[line for line in lines if line.what == "told"],
        ended=max((line.at for line in lines), default=0.0),
        store=next((str(line.data["kind"]) for line in lines if line.what == "store"), ""),
    )


def _calls(lines: Sequence[Line]) -> list[Call]:
    ends = {line.op: line for line in lines if line.what in ("ok", "fail", "unknown")}
    calls = []
    for line in lines:
        if line.what == "invoke":
            end = ends.get(line.op)
            call = Call(line.op, line.call, line.who, line.key, line.hold, line.at, line.data)
            if end is not None:
                call = Call(
                    line.op, line.call, line.who, line.key, line.hold, line.at, line.data, end.at, end.what, end.data
                )
            calls.append(call)
    return calls


def _by_hold(lines: Sequence[Line], what: str) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.what == what and line.hold:
            found[line.hold].append(line)
    return found


def _faults(lines: Sequence[Line]) -> list[Fault]:
    gone = {line.op: line.at for line in lines if line.what == "gone"}
    healed = {line.op: line for line in lines if line.what == "healed"}
    faults = []
    for line in lines:
        if line.what == "fault":
            ended = healed.get(line.op)
            end = NEVER if ended is None else ended.at
            known = line.data if ended is None else ended.data
            loses, hurts = bool(known["loses"]), bool(known["hurts"])
            name = str(line.data["name"])
            faults.append(
                Fault(
                    line.op,
                    name,
                    line.at,
                    gone.get(line.op, end),
                    end,
                    loses=loses,
                    hurts=hurts,
                    step=float(line.data.get("step", 0.0)),
                    rate=float(line.data.get("rate", 1.0)),
                )
            )
    return faults


def _stops(lines: Sequence[Line]) -> dict[str, list[tuple[float, float]]]:
    stops: dict[str, list[tuple[float, float]]] = defaultdict(list)
    since: dict[str, float] = {}
    for line in lines:
        if line.what == "stopped":
            since[line.who] = line.at
        elif line.what in ("continued", "killed") and line.who in since:
            stops[line.who].append((since.pop(line.who), line.at))
    for who, at in since.items():
        stops[who].append((at, NEVER))
    return stops
