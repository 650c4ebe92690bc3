"""The row `hand-off`."""

from __future__ import annotations

from functools import partial

from bench.contender import Worker
from bench.measure import Result, Role, Series, Table, at_most, tabulate
from bench.plan import Plan
from bench.rows.handing import Pair
from bench.rows.server_hand_off import on_etcd, on_postgresql, on_redis
from bench.rows.sqlite_modes import in_words, modes
from bench.rows.starting import started

_NOTICED = 1.0
_CPU = 0.1
_IDLE = 4.0


def run(plan: Plan) -> Result:
    """From a release in one process to the next holder in another, through SQLite, Redis, PostgreSQL and etcd."""
    tables: list[Table] = []
    verdicts = []
    for journal in modes():
        noticed, held = _measure(plan, journal)
        tables += [noticed, held]
        median = noticed.line("leased").median
        verdicts.append(at_most(f"{journal}: noticed ≤ 1 ms after the commit", median, _NOTICED, unit=" ms"))
    directory = plan.directory / "idle"
    spec = "bench.contenders.waiting:threads"
    with started(partial(Worker, "leased", spec, directory=directory, kind=modes()[0])) as (worker,):
        share = worker.ask(seconds=plan.seconds(_IDLE), waiters=1).told["cpu"] * 100
    verdicts.append(at_most("no measurable CPU while waiting (≤ 0.1 % of a core)", share, _CPU, unit=" %"))
    absent = ""
    for on_server in (on_redis, on_postgresql, on_etcd):
        table, judged, sentence = on_server(plan)
        tables.append(table)
        verdicts += judged
        absent += sentence
    return Result(
        "hand-off",
        "Two processes and one store: one holds, the other waits (for 20 to 80 ms, so that who polls is met in any "
        "phase), the first releases. Held is counted from the call of release; with SQLite, noticed is the moment when "
        "the one who waits begins to ask for the lock, counted from the end of the commit that freed it. Each "
        "contender once a round, in random order. The floors: for SQLite the same statements and a byte in an open "
        "named pipe; for Valkey two scripts, of which the one that frees also publishes to a waiting subscriber; for "
        "PostgreSQL (`fsync = on`, data on disk, every commit there before its answer) an upsert, and a delete that "
        f"also notifies a connection that listens; for etcd (data on disk) its own lock service.{absent}",
        tables,
        verdicts,
    )


def _measure(plan: Plan, journal: str) -> tuple[Table, Table]:
    kinds: list[tuple[str, Role, str, str | None]] = [
        ("leased", "leased", "hand_off:ours", None),
        ("statements and a pipe", "floor", "hand_off:raw", None),
    ]
    if plan.peers is not None:
        kinds.append(("filelock", "peer", "filelocks:hand_off", plan.peers))

    def worker(name: str, spec: str, python: str | None) -> Worker:
        directory = plan.directory / journal / spec.replace(":", "-")
        place = f"bench.contenders.{spec}"
        if python is not None:
            return Worker(name, place, directory=directory, python=python)
        return Worker(name, place, directory=directory, journal=journal)

    with started(*(partial(worker, kind[0], kind[2], kind[3]) for kind in kinds for _ in range(2))) as workers:
        pairs = [
            Pair(name, role, workers[2 * number], workers[2 * number + 1])
            for number, (name, role, _, _) in enumerate(kinds)
        ]
        for _ in range(plan.rounds(40)):
            for pair in plan.chance.sample(pairs, len(pairs)):
                pair.hand_off(0.02 + 0.06 * plan.chance.random())
    return (
        tabulate(f"{in_words(journal)}: commit to noticed", "ms", [Series(p.name, p.role, p.noticed) for p in pairs]),
        tabulate(f"{in_words(journal)}: release to held", "ms", [Series(p.name, p.role, p.held) for p in pairs]),
    )
