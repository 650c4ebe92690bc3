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
_USED = "from leased import connect; connect('memory:').lock('key').acquire().release()"
_TIMED = """
import sys, time
before = set(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
{statement}
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
loaded = sorted(set(sys.modules) - before)
import json  # not before: it would bring along much of what is measured
print(json.dumps([wall, cpu, loaded, "asyncio" in loaded]))
"""


def run(plan: Plan) -> Result:
    """`import leased` in a fresh interpreter, from inside and as a whole process."""
    rounds = plan.rounds(15)
    commands = [
        Command("`import leased`", [sys.executable, "-c", "import leased"]),
        Command("the same, and one lock in memory", [sys.executable, "-c", _USED]),
        Command("`import leased.aio`", [sys.executable, "-c", "import leased.aio"]),
        Command("`python -c pass`", [sys.executable, "-c", "pass"], role="floor"),
    ]
    series = per_operation([(one, {"count": 1}) for one in commands], rounds=rounds, chance=plan.chance, unit=MILLI)
    inside, used = zip(*((_inside("import leased"), _inside(_USED)) for _ in range(rounds)), strict=True)
    table = tabulate(
        "Timed inside the interpreter",
        "ms",
        [
            Series("`import leased`", "leased", [one[0] * MILLI for one in inside], [one[1] * 1e6 for one in inside]),
            Series(
                "the same, and one lock in memory", "leased", [u[0] * MILLI for u in used], [u[1] * 1e6 for u in used]
            ),
        ],
    )
    _, _, modules, asyncio = used[0]
    foreign = _foreign(modules)
    return Result(
        "import",
        f"Fresh interpreters, with compiled modules on disk. The import alone loads {len(inside[0][2])} modules, since "
        f"each name is fetched when it is first used; with one lock in memory there are {len(modules)}, "
        f"{sum(name.partition('.')[0] == 'leased' for name in modules)} of them of leased.",
        [table, tabulate("Whole processes", "ms a run", series)],
        [
            at_most("`import leased`: ≤ 30 ms", table.lines[0].median, _LIMIT, unit=" ms"),
            Verdict("no third-party module loaded", ", ".join(foreign) or "none", not foreign),
            Verdict("asyncio only with `leased.aio`", "loaded" if asyncio else "not loaded", not asyncio),
        ],
    )


def _inside(statement: str) -> tuple[float, float, list[str], bool]:
    code = [sys.executable, "-c", _TIMED.replace("{statement}", statement)]
    told = subprocess.run(code, env=clean_environment(), check=True, capture_output=True, text=True).stdout
    wall, cpu, modules, asyncio = json.loads(told)
    return wall, cpu, modules, asyncio


def _foreign(modules: Iterable[str]) -> list[str]:
    return sorted({name.partition(".")[0] for name in modules} - {"leased"} - sys.stdlib_module_names)
