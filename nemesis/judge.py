"""The judge: what a run broke of what the library promises. It knows the lines, and nothing of stores or faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nemesis.checks import endings, exclusion, liveness, manners
from nemesis.checks.violation import Violation
from nemesis.excuses import Excuses
from nemesis.history import Line
from nemesis.run import Run, put_together

Check = Callable[[Run, Excuses], Iterator[Violation]]

CHECKS: Mapping[str, Check] = {
    "exclusion": exclusion.mutual_exclusion,
    "fencing": exclusion.fencing,
    "guard": exclusion.guarded_writes,
    "early loss": endings.early_loss,
    "reason": endings.wrong_reason,
    "belief": endings.belief_in_time,
    "resurrection": endings.resurrection,
    "staleness": endings.staleness,
    "idempotence": endings.idempotence,
    "bounded": liveness.answers_in_time,
    "told": liveness.loss_told,
    "hand-off": liveness.hand_off,
    "wedged": liveness.dead_holders,
    "available": liveness.availability,
    "errors": manners.documented_errors,
    "clock": manners.clock_warnings,
}
"""By the name that their violations bear."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found. `excused` counts what would have been a violation but for a stated reason."""

    run: Run
    violations: Sequence[Violation]
    excused: Mapping[str, int]

    @property
    def valid(self) -> bool:
        """Whether no promise was broken."""
        return not self.violations


def judge(lines: Sequence[Line], *, leave_out: frozenset[str] = frozenset()) -> Verdict:
    """Look at the lines of a whole run, but not by these checks."""
    run = put_together(lines)
    excused: Counter[str] = Counter()
    violations: list[Violation] = []
    for name, check in CHECKS.items():
        if name in leave_out:
            continue
        excuses = Excuses(run)
        violations += check(run, excuses)
        for kind, count in excuses.used.items():
            excused[f"{name}: {kind}"] += count
    return Verdict(run, sorted(violations, key=lambda one: one.at), excused)
