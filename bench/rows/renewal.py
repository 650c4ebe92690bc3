"""The row `renewal`."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from bench import servers
from bench.contender import Worker
from bench.measure import MICRO, Result, Role, Series, Verdict, at_most, tabulate
from bench.plan import Plan
from bench.rows.sqlite_modes import modes
from bench.rows.starting import able, started

_LEASES = 10_000
_TTL = 15.0
_SECONDS = 6.0


def run(plan: Plan) -> Result:
    """Ten thousand leases kept by one process."""
    cost, verdicts, absent = [], [], ""
    for name, kind in {"memory": "memory", f"SQLite {modes()[0].upper()}": modes()[0]}.items():
        told = _kept(plan, name, "renewal:tasks", kind=kind)
        cost.append(_series(name, "leased", told))
        verdicts += _judged(name, told)
    with servers.redis() as url:
        told = _kept(plan, "Redis", "renewal:tasks", kind=url)
        verdicts += _judged("Redis", told)
        on_redis = [
            _series("leased", "leased", told),
            _series("one loop, joined writes", "floor", _kept(plan, "floor", "redis_renewal:raw", url=url)),
        ]
        if plan.peers is not None:
            peer, spec = "redis-py Lock, a task each", "redis_renewal:redis_py"
            start = partial(_worker, plan, peer, spec, url=url, ttl=0.5, python=plan.peers)
            working, absent = able([start], count=1, seconds=0.5)
            if working:
                told = _kept(plan, peer, spec, url=url, python=plan.peers)
                on_redis.append(_series(peer, "peer", told))
    count = plan.count(_LEASES)
    redis = tabulate("Renewals on Valkey", "µs between two", on_redis)
    share = redis.line("leased").cpu_to_floor or inf
    verdicts.append(at_most("Redis: ≤ 7.5x the floor's CPU, as 4 % is to the 0.53 % of a core", share, 7.5, unit="x"))
    return Result(
        "renewal",
        f"{count:,} leases with a ttl of {_ttl(plan):.0f} s that began evenly spread, renewed at a third, for "
        f"{plan.seconds(_SECONDS):.0f} s, by the asyncio face. The targets are those set for Redis. Not measured: "
        f"python-redis-lock, which would need a thread for each of them.{absent}",
        [tabulate("Renewals", "µs between two", cost), redis],
        verdicts,
    )


def _ttl(plan: Plan) -> float:
    return max(1.0, plan.scale * _TTL)


def _worker(plan: Plan, name: str, spec: str, **options: Any) -> Worker:
    return Worker(name, f"bench.contenders.{spec}", directory=plan.directory / name, **options)


def _kept(plan: Plan, name: str, spec: str, **options: Any) -> dict[str, Any]:
    with started(partial(_worker, plan, name, spec, ttl=_ttl(plan), **options)) as (one,):
        told: dict[str, Any] = one.ask(count=plan.count(_LEASES), seconds=plan.seconds(_SECONDS)).told
    return told


def _series(name: str, role: Role, told: dict[str, Any]) -> Series:
    renewals = max(1, told["renewals"])
    return Series(name, role, [told["wall"] / renewals * MICRO], [told["cpu"] / renewals * MICRO])


def _judged(name: str, told: dict[str, Any]) -> list[Verdict]:
    return [
        at_most(f"{name}: ≤ 4 % of a core", told["cpu"] / told["wall"] * 100, 4.0, unit=" %"),
        at_most(f"{name}: ≤ 20 µs CPU a renewal", told["cpu"] / max(1, told["renewals"]) * MICRO, 20.0, unit=" µs"),
        at_most(f"{name}: none over 50 ms late", told["late"] * 1000, 50.0, unit=" ms"),
        at_most(f"{name}: none lost", told["lost"], 0),
    ]
