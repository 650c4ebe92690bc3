"""The row `cli-start`."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.contender import Command
from bench.measure import MILLI, Result, at_most, per_operation, tabulate
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
            at_most("`leased run KEY -- true`: ≤ 120 ms", table.lines[0].median, 120.0, unit=" ms"),
            at_most("`leased --version`: ≤ 50 ms", table.lines[1].median, 50.0, unit=" ms"),
        ],
    )
