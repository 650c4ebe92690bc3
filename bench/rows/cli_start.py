"""The row `cli-start`."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.contender import Command
from bench.measure import MILLI, Result, at_most, near_floor, per_operation, tabulate
from bench.plan import Plan


def run(plan: Plan) -> Result:
    """Whole runs of the command."""
    leased = str(Path(sys.executable).with_name("leased"))
    url = f"sqlite:{plan.directory / 'locks.db'}"
    contenders = [
        Command("`leased run KEY -- true`", [leased, "run", "key", "--url", url, "--", "true"]),
        Command("`leased --version`", [leased, "--version"]),
        Command("`leased status KEY`", [leased, "status", "key", "--url", url]),
        Command("`python -c pass`", [sys.executable, "-c", "pass"], role="floor"),
    ]
    count = plan.count(3)
    series = per_operation(
        [(one, {"count": count}) for one in contenders], rounds=plan.rounds(12), chance=plan.chance, unit=MILLI
    )
    table = tabulate("From start to end", "ms a run", series)
    return Result(
        "cli-start",
        "Processes started one after the other and waited for, on an SQLite file that exists; CPU is that of the "
        "process and its children, in µs.",
        [table],
        [
            near_floor(table.lines[0].name, table.lines[0], 12.0, because="as 120 ms is to the 10 it once took"),
            at_most("`leased run KEY -- true`: ≤ 120 ms", table.lines[0].median, 120.0, unit=" ms"),
            near_floor(table.lines[1].name, table.lines[1], 5.0, because="as 50 ms is to the 10 it once took"),
            at_most("`leased --version`: ≤ 50 ms", table.lines[1].median, 50.0, unit=" ms"),
        ],
    )
