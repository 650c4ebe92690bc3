"""The row `herd`."""

from __future__ import annotations

from functools import partial

from bench.contender import Worker
from bench.measure import MICRO, Result, Series, Verdict, at_most, interleave, tabulate
from bench.plan import Plan
from bench.rows.sqlite_modes import modes
from bench.rows.starting import started

_WAITERS = 1000
_CALLS = 3.0


def run(plan: Plan) -> Result:
    """A thousand waiters on one key in one process."""

    def worker(name: str, function: str, kind: str) -> Worker:
        directory = plan.directory / f"{function}-{kind}"
        return Worker(name, f"bench.contenders.herd:{function}", directory=directory, kind=kind)

    names = {
        f"{'memory' if kind == 'memory' else f'SQLite {kind.upper()}'}, {function}": (function, kind)
        for kind in ("memory", modes()[0])
        for function in ("tasks", "threads")
    }
    waiters = plan.count(_WAITERS)
    with started(*(partial(worker, name, *what) for name, what in names.items())) as workers:
        requests = [(one, {"count": waiters}) for one in workers]
        blocks = interleave(requests, rounds=plan.rounds(4), chance=plan.chance)
    series = [
        Series(
            name,
            "leased",
            [block.told["wall"] / waiters * MICRO for block in told],
            [block.told["cpu"] / waiters * MICRO for block in told],
        )
        for name, told in blocks.items()
    ]
    verdicts = []
    for name, told in blocks.items():
        calls = max(block.told["calls"] for block in told) / waiters
        verdicts.append(at_most(f"{name}: ≤ 3 calls of the store a pass", calls, _CALLS))
        in_order = all(block.told["in_order"] for block in told)
        verdicts.append(Verdict(f"{name}: served in order", "in order" if in_order else "out of order", in_order))
    return Result(
        "herd",
        f"{waiters:,} waiters on one key in one process; from the release of its holder until each of them has had it. "
        "The target for this release is the number of calls and the order; its time is set for Redis.",
        [tabulate("A pass", "µs a pass", series)],
        verdicts,
    )
