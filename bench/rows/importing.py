"""The row `import`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

from bench.contender import Command, clean_environment
from bench.measure import MILLI, Result, Series, Verdict, at_most, per_operation, tabulate
from bench.plan import Plan

_LIMIT = 30.0
_TIMED = """
import json, sys, time
before = set(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
import leased
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
print(json.dumps([wall, cpu, sorted(set(sys.modules) - before), "asyncio" in sys.modules]))
"""


def run(plan: Plan) -> Result:
    """`import leased` in a fresh interpreter, from inside and as a whole process."""
    rounds = plan.rounds(15)
    commands = [
        Command("`import leased`", [sys.executable, "-c", "import leased"]),
        Command("`import leased.aio`", [sys.executable, "-c", "import leased.aio"]),
        Command("`python -c pass`", [sys.executable, "-c", "pass"], role="floor"),
    ]
    series = per_operation([(one, {"count": 1}) for one in commands], rounds=rounds, chance=plan.chance, unit=MILLI)
    inside = [_inside() for _ in range(rounds)]
    own = Series("`import leased`", "leased", [one[0] * MILLI for one in inside], [one[1] * 1e6 for one in inside])
    table = tabulate("The statement, timed inside the interpreter", "ms", [own])
    _, _, modules, asyncio = inside[0]
    foreign = _foreign(modules)
    return Result(
        "import",
        f"Fresh interpreters, with compiled modules on disk. The import loads {len(modules)} modules, "
        f"{sum(name.partition('.')[0] == 'leased' for name in modules)} of them its own.",
        [table, tabulate("Whole processes", "ms a run", series)],
        [
            at_most("`import leased`: ≤ 30 ms", table.lines[0].median, _LIMIT, unit=" ms"),
            Verdict("no third-party module loaded", ", ".join(foreign) or "none", not foreign),
            Verdict("asyncio only with `leased.aio`", "loaded" if asyncio else "not loaded", not asyncio),
        ],
    )


def _inside() -> tuple[float, float, list[str], bool]:
    code = [sys.executable, "-c", _TIMED]
    told = subprocess.run(code, env=clean_environment(), check=True, capture_output=True, text=True).stdout
    wall, cpu, modules, asyncio = json.loads(told)
    return wall, cpu, modules, asyncio


def _foreign(modules: Iterable[str]) -> list[str]:
    return sorted({name.partition(".")[0] for name in modules} - {"leased"} - sys.stdlib_module_names)
