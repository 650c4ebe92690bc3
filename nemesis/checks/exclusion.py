"""Who believes at the same time, and whether fencing tokens rise and stale writes are refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from nemesis.checks.violation import Violation
from nemesis.excuses import Excuses
from nemesis.history import Line
from nemesis.run import Hold, Run


def mutual_exclusion(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """No two holders of one key believe at the same time."""
    for key, holds in run.holds.items():
        believing: list[Hold] = []
        for hold in holds:
            began, ended = hold.belief
            believing = [other for other in believing if other.belief[1] > began]
            for other in believing:
                earlier, later = sorted((other, hold), key=lambda one: one.fence)
                until = min(other.belief[1], ended)
                if until > began and excuses.overlap(earlier, later, until=until) is None:
                    yield Violation(
                        "exclusion",
                        began,
                        f"{key!r} was believed in by {_named(other)} and {_named(hold)} for {until - began:.3f} s",
                    )
            if ended > began:
                believing.append(hold)


def fencing(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """Fencing tokens rise with every grant of a key, and no two grants share one. Nothing excuses this."""
    for key, holds in run.holds.items():
        highest: Hold | None = None
        seen: dict[int, Hold] = {}
        before = 0  # so many of them, in the order in which they were had, were had before this one can have been made
        for hold in sorted(holds, key=lambda one: one.earliest):
            while before < len(holds) and holds[before].granted < hold.earliest:
                highest = holds[before] if highest is None or holds[before].fence > highest.fence else highest
                before += 1
            if highest is not None and hold.fence <= highest.fence:
                yield Violation("fencing", hold.granted, f"{key!r}: {_named(hold)} came after {_named(highest)}")
            elif hold.fence in seen:
                yield Violation("fencing", hold.granted, f"{key!r}: {_named(hold)} and {_named(seen[hold.fence])}")
            seen[hold.fence] = hold


def guarded_writes(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """The resource accepts no write of a lower fencing token than one that it has seen, and refuses no other."""
    by_key: dict[str, list[Line]] = defaultdict(list)
    for line in run.writes:
        by_key[line.key].append(line)
    for key, writes in by_key.items():
        highest = 0
        for line in sorted(writes, key=lambda one: int(one.data["serial"])):
            fence, accepted, seen = int(line.data["fence"]), bool(line.data["accepted"]), int(line.data["seen"])
            highest = max(highest, seen)
            if accepted != (fence >= highest):
                was = "accepted" if accepted else "refused"
                yield Violation("guard", line.at, f"{key!r}: a write with {fence} was {was} after {highest}")
            highest = max(highest, fence)


def _named(hold: Hold) -> str:
    return f"{hold.op} (fencing token {hold.fence}, granted at {hold.granted:.3f})"
