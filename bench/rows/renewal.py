"""The row `renewal`."""

from __future__ import annotations

from functools import partial

from bench.contender import Worker
from bench.measure import MICRO, Result, Series, at_most, tabulate
from bench.plan import Plan
from bench.rows.sqlite_modes import modes
from bench.rows.starting import started

_LEASES = 10_000
_TTL = 15.0
_SECONDS = 8.0


def run(plan: Plan) -> Result:
    """Ten thousand leases kept by one process."""

    def worker(name: str, kind: str, ttl: float) -> Worker:
        return Worker(name, "bench.contenders.renewal:tasks", directory=plan.directory / kind, kind=kind, ttl=ttl)

    names = {"memory": "memory", f"SQLite {modes()[0].upper()}": modes()[0]}
    count, ttl = plan.count(_LEASES), max(1.0, plan.scale * _TTL)
    cost, verdicts = [], []
    for name, kind in names.items():
        with started(partial(worker, name, kind, ttl)) as (one,):
            told = one.ask(count=count, seconds=plan.seconds(_SECONDS)).told
        each = told["wall"] / max(1, told["renewals"]) * MICRO
        cpu = told["cpu"] / max(1, told["renewals"]) * MICRO
        cost.append(Series(name, "leased", [each], [cpu]))
        share = told["cpu"] / told["wall"] * 100
        verdicts += [
            at_most(f"{name}: ≤ 4 % of a core", share, 4.0, unit=" %"),
            at_most(f"{name}: ≤ 20 µs CPU a renewal", cpu, 20.0, unit=" µs"),
            at_most(f"{name}: none over 50 ms late", told["late"] * 1000, 50.0, unit=" ms"),
            at_most(f"{name}: none lost", told["lost"], 0),
        ]
    return Result(
        "renewal",
        f"{count:,} leases with a ttl of {ttl:.0f} s that began evenly spread, renewed at a third, for "
        f"{plan.seconds(_SECONDS):.0f} s, by the asyncio face. The targets are those set for Redis.",
        [tabulate("Renewals", "µs between two", cost)],
        verdicts,
    )
