"""The row `idle-wait`."""

from __future__ import annotations

import time
from functools import partial

from bench.contender import Worker
from bench.measure import Result, Role, Series, at_most, tabulate
from bench.plan import Plan
from bench.rows.redis_idle_wait import on_redis
from bench.rows.sqlite_modes import modes
from bench.rows.starting import started

_WAITERS = 50
_SECONDS = 8.0
_LIMIT = 1.0


def run(plan: Plan) -> Result:
    """What those ask who wait for a key that somebody else keeps."""

    def ours(name: str, function: str, kind: str) -> Worker:
        directory = plan.directory / f"{function}-{kind}"
        return Worker(name, f"bench.contenders.waiting:{function}", directory=directory, kind=kind)

    def peer(python: str) -> Worker:
        spec = "bench.contenders.filelocks:waiting"
        return Worker("filelock, one waiter", spec, directory=plan.directory / "peer", role="peer", python=python)

    starters = [
        partial(ours, f"{'memory' if kind == 'memory' else f'SQLite {kind.upper()}'}, {function}", function, kind)
        for kind in ("memory", *modes())
        for function in ("threads", "tasks")
    ]
    if plan.peers is not None:
        starters.append(partial(peer, plan.peers))
    seconds = plan.seconds(_SECONDS)
    with on_redis(plan) as redis, started(*starters, *redis.starters) as workers:
        for worker in workers:
            worker.send(seconds=seconds, waiters=_WAITERS if worker.role == "leased" else 1)
        time.sleep(seconds * 0.35)  # they count from the end of the first quarter
        commands = redis.commands(seconds * 0.8)
        roles: list[tuple[str, Role, dict[str, float]]] = [
            (worker.name, worker.role, worker.receive().told) for worker in workers
        ]
    calls = tabulate(
        "Checks", "calls of the store a second", [Series(n, r, [t["calls"]]) for n, r, t in roles if r == "leased"]
    )
    cpu = tabulate("CPU", "% of a core", [Series(n, r, [t["cpu"] * 100]) for n, r, t in roles])
    return Result(
        "idle-wait",
        f"{_WAITERS} waiters of one key in one process, for {seconds:.0f} s in which its holder keeps it; all "
        "contenders at the same time, since they have nothing to do. Counted are calls of the store, of all waiters "
        f"together, and for Redis also what comes to a Valkey that each contender has for itself.{redis.absent}",
        [calls, commands, cpu],
        [at_most(f"{line.name}: ≤ 1 check a second", line.median, _LIMIT, unit=" a second") for line in calls.lines],
    )
