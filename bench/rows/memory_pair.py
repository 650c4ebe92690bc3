"""The row `memory-pair`."""

from __future__ import annotations

from bench.contender import Worker, one_cpu
from bench.measure import Result, Role, at_most, per_operation, tabulate
from bench.plan import Plan
from bench.rows.starting import started

_LIMIT = 12.0


def run(plan: Plan) -> Result:
    """One acquire and one release in memory, by both faces, against a dictionary of mutexes."""

    def contender(name: str, function: str, *, floor: bool = False) -> Worker:
        role: Role = "floor" if floor else "leased"
        directory = plan.directory / function
        return Worker(name, f"bench.contenders.memory:{function}", directory=directory, role=role, cpu=one_cpu())

    many = plan.count(1000)
    with started(
        lambda: contender("blocking", "blocking"),
        lambda: contender("blocking, one recipe", "blocking_recipe"),
        lambda: contender("blocking, `with`", "blocking_block"),
        lambda: contender("async", "asynchronous"),
        lambda: contender("async, one recipe", "asynchronous_recipe"),
        lambda: contender("async, `async with`", "asynchronous_block"),
        lambda: contender("dict of mutexes", "dictionary", floor=True),
        lambda: contender("a random token alone", "token", floor=True),
    ) as workers:
        requests = [(worker, {"count": many}) for worker in workers]
        series = per_operation(requests, rounds=plan.rounds(25), chance=plan.chance)
    table = tabulate("Memory", "µs a pair", series)
    return Result(
        "memory-pair",
        f"One acquire and one release of a key nobody else wants, with owner; a new key each time unless the line says "
        f"otherwise. Blocks of {many:,} pairs; each contender is a process of its own, all of them on one CPU.",
        [table],
        [
            at_most(f"{name}: ≤ 12 µs CPU", table.line(name).cpu or 0.0, _LIMIT, unit=" µs")
            for name in ("blocking", "blocking, one recipe", "async", "async, one recipe")
        ],
    )
