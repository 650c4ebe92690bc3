"""The row `sqlite-pair`."""

from __future__ import annotations

from functools import partial

from bench.contender import Worker, one_cpu
from bench.measure import Result, Role, Table, at_most, fitting, per_operation, tabulate
from bench.plan import Plan
from bench.rows.sqlite_modes import in_words, modes
from bench.rows.starting import started

_LIMIT = 1.5


def run(plan: Plan) -> Result:
    """One acquire and one release in an SQLite file, in each journal mode, against the same statements raw."""
    tables = {journal: _measure(plan, journal) for journal in modes()}
    return Result(
        "sqlite-pair",
        f"One client; one acquire and one release of a new key, durable before each answer (`synchronous = FULL`). "
        f"The floor is the same upsert and delete, each in a transaction of its own, by the same SQLite. Blocks of "
        f"about {_BLOCK * 1000:.0f} ms; each contender is a process with a file of its own on one disk, all on one "
        "CPU.",
        list(tables.values()),
        [
            at_most(f"{journal}: ≤ 1.5x the floor", table.line("leased").to_floor or 0.0, _LIMIT, unit="x")
            for journal, table in tables.items()
        ],
    )


_BLOCK = 0.05


def _measure(plan: Plan, journal: str) -> Table:
    def ours(name: str, function: str, *, role: Role = "leased") -> Worker:
        spec = f"bench.contenders.sqlite_pair:{function}"
        directory = plan.directory / journal / function
        return Worker(name, spec, directory=directory, role=role, cpu=one_cpu(), journal=journal)

    def peer(name: str, function: str, *, python: str) -> Worker:
        spec = f"bench.contenders.filelocks:{function}"
        directory = plan.directory / journal / f"filelock-{function}"
        return Worker(name, spec, directory=directory, role="peer", python=python, cpu=one_cpu())

    starters = [
        partial(ours, "leased", "blocking"),
        partial(ours, "leased, `with`", "blocking_block"),
        partial(ours, "leased, async", "asynchronous"),
        partial(ours, "raw statements", "raw", role="floor"),
    ]
    if plan.peers is not None:
        starters += [
            partial(peer, "filelock", "file", python=plan.peers),
            partial(peer, "filelock's SQLite lock", "sqlite", python=plan.peers),
        ]
    with started(*starters) as workers:
        count = fitting(workers[3], seconds=plan.scale * _BLOCK)
        requests = [(worker, {"count": count}) for worker in workers]
        series = per_operation(requests, rounds=plan.rounds(25), chance=plan.chance)
    return tabulate(in_words(journal), "µs a pair", series)
