"""Histories made by hand: the lines of a run in which only what a test says happens."""

from __future__ import annotations

from typing import Any

from nemesis.checks.violation import Violation
from nemesis.history import Line, What
from nemesis.judge import Verdict, judge

KEY = "north"
TTL = 1.0
BELIEF = TTL * 0.98 - 0.05
"""How long a holder believes after it asked."""


class Story:
    """Collects lines. Times are seconds; a call is asked at its time and answered a hundredth later."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._ops = 0

    def add(
        self, what: What, at: float, *, who: str = "a", op: str = "", call: str = "", hold: str = "", **data: Any
    ) -> None:
        """One line."""
        self._lines.append(Line(at, what, who, op, call, KEY, hold, data))

    def call(
        self,
        call: str,
        at: float,
        *,
        who: str = "a",
        hold: str = "",
        outcome: What | None = "ok",
        took: float = 0.01,
        given: dict[str, Any] | None = None,
        **found: Any,
    ) -> str:
        """A call with its end, or without one for the outcome `None`."""
        self._ops += 1
        op = f"{who}#{self._ops}"
        self.add("invoke", at, who=who, op=op, call=call, hold=hold, **(given or {}))
        if outcome is not None:
            self.add(outcome, at + took, who=who, op=op, **found)
        return op

    def grant(
        self,
        at: float,
        fence: int,
        *,
        who: str = "a",
        exclusive: str = "primary",
        kept: bool = False,
        wait: float = 0.0,
        took: float = 0.01,
        lost: bool = False,
    ) -> str:
        """An acquire that got the key: believed in from the answer on, unless it is lost by then."""
        return self.call(
            "acquire",
            at,
            who=who,
            took=took,
            given={"ttl": TTL, "wait": wait, "kept": kept, "patience": None},
            fence=fence,
            lost=lost,
            until=at + took if lost else at + BELIEF,
            reason="expired" if lost else None,
            exclusive=exclusive,
            early_loss=exclusive != "primary",
        )

    def refusal(self, at: float, *, who: str = "a", wait: float = 0.0, took: float = 0.01, hold: str = "") -> str:
        """An acquire that was refused."""
        given = {"ttl": TTL, "wait": wait, "kept": False, "patience": None}
        error = "LockTimeout" if wait else "LockNotAcquired"
        return self.call("acquire", at, who=who, hold=hold, outcome="fail", took=took, given=given, error=error)

    def release(self, at: float, hold: str, *, who: str = "a", reason: str = "", took: float = 0.01) -> str:
        """A release, which frees the key unless it has a reason."""
        return self.call("release", at, who=who, hold=hold, took=took, freed=not reason, reason=reason)

    def renew(self, at: float, hold: str, *, who: str = "a", lost: str = "", took: float = 0.01) -> str:
        """A renewal: refused, because it was lost so, or not."""
        op = self.call(
            "renew",
            at,
            who=who,
            hold=hold,
            took=took,
            renewed=not lost,
            reason="lease_lost" if lost else "",
            lost_reason=lost or None,
        )
        self.sight(at + took, hold, who=who, until=at + BELIEF if not lost else None, reason=lost or None)
        return op

    def sight(self, at: float, hold: str, *, who: str = "a", until: float | None, reason: str | None = None) -> None:
        """What a holder sees of its hold: until when it believes, or (`None`) that it is lost."""
        self.add(
            "sees", at, who=who, hold=hold, lost=until is None, until=at if until is None else until, reason=reason
        )

    def force(self, at: float, *, aim: int | None = None, outcome: What | None = "ok", took: float = 0.01) -> str:
        """A forced release."""
        return self.call("force", at, who="f", outcome=outcome, took=took, given={"aim": aim}, ended=True)

    def fault(self, began: float, gone: float, healed: float, *, loses: bool, hurts: bool = True) -> None:
        """A server was broken."""
        self._ops += 1
        op = f"nemesis#{self._ops}"
        self.add("fault", began, who="nemesis", op=op, name="fault", loses=loses, hurts=hurts)
        self.add("gone", gone, who="nemesis", op=op)
        self.add("healed", healed, who="nemesis", op=op, loses=loses, hurts=hurts)

    def clock(self, began: float, healed: float, *, step: float = 0.0, rate: float = 1.0) -> None:
        """The store's clock was moved, which hurts nobody and loses nothing."""
        self._ops += 1
        op = f"nemesis#{self._ops}"
        self.add("fault", began, who="nemesis", op=op, name="clock", loses=False, hurts=False, step=step, rate=rate)
        self.add("healed", healed, who="nemesis", op=op, loses=False, hurts=False)

    def verdict(self, *, ended: float = 100.0) -> Verdict:
        """What the judge says to a run that ended then."""
        return judge(sorted([*self._lines, Line(ended, "end", "nemesis")], key=lambda line: line.at))

    def broken(self, *, ended: float = 100.0) -> set[str]:
        """The promises that the judge found broken."""
        return {violation.promise for violation in self.violations(ended=ended)}

    def violations(self, *, ended: float = 100.0) -> list[Violation]:
        """All of them."""
        return list(self.verdict(ended=ended).violations)
