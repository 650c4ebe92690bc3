"""The row `herd`."""

from __future__ import annotations

from functools import partial

from bench.contender import Worker
from bench.measure import MICRO, Result, Series, Verdict, at_most, interleave, tabulate
from bench.plan import Plan
from bench.rows.redis_herd import on_redis
from bench.rows.sqlite_modes import modes
from bench.rows.starting import started

_WAITERS = 1000
_CALLS = 3.0
_SECONDS = 3.0


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
    with started(*(partial(worker, name, *what) for name, what in names.items())) as workers:
        requests = [(one, {"count": _fitting(one, plan)}) for one in workers]
        blocks = interleave(requests, rounds=plan.rounds(4), chance=plan.chance)
    waiters = {one.name: request["count"] for one, request in requests}
    series = [
        Series(
            f"{name}, {waiters[name]:,} waiters",
            "leased",
            [block.told["wall"] / waiters[name] * MICRO for block in told],
            [block.told["cpu"] / waiters[name] * MICRO for block in told],
        )
        for name, told in blocks.items()
    ]
    verdicts = []
    for name, told in blocks.items():
        calls = max(block.told["calls"] for block in told) / waiters[name]
        verdicts.append(at_most(f"{name}: ≤ 3 calls of the store a pass", calls, _CALLS))
        in_order = all(block.told["in_order"] for block in told)
        verdicts.append(Verdict(f"{name}: served in order", "in order" if in_order else "out of order", in_order))
    on_valkey, judged, absent = on_redis(plan)
    return Result(
        "herd",
        f"Up to {_WAITERS:,} waiters on one key in one process (fewer where the disk is slow); from the release of its "
        "holder until each of them has had it. For Redis each contender has a Valkey for itself, which counts "
        "connections and commands; the floor is a script to take the key and one to free it for each waiter of a line "
        f"in the process. Other peers' waiters are not woken: a thousand of them never finish.{absent}",
        [tabulate("A pass", "µs a pass", series), on_valkey],
        verdicts + judged,
    )


def _fitting(worker: Worker, plan: Plan) -> int:
    """How many waiters are served in a few seconds."""
    trial = plan.count(50)
    each: float = worker.ask(count=trial).told["wall"] / trial
    return min(plan.count(_WAITERS), max(trial, round(_SECONDS / each)))
