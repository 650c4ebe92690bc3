"""The row `sqlite-many`."""

from __future__ import annotations

from functools import partial
from statistics import median

from bench.contender import Worker
from bench.measure import Block, Result, Role, Series, Table, Verdict, at_most, fitting, per_operation, shown, tabulate
from bench.plan import Plan
from bench.rows.sqlite_modes import in_words, modes
from bench.rows.starting import started

_CLIENTS = 50
_PROCESSES = 6
_BLOCK = 0.08
_SECONDS = 1.5
_SHARE = 0.7
_LONGEST = 0.5


def run(plan: Plan) -> Result:
    """Fifty clients of one process, by tasks and by threads, and six processes, on one SQLite file."""
    tables: list[Table] = []
    verdicts: list[Verdict] = []
    for journal in modes():
        for kind in ("tasks", "threads"):
            table = _fifty(plan, journal, kind=kind)
            share = 1 / (table.line("leased").to_floor or 1.0)
            measured = f"{shown(share)}x, {shown(1e6 / table.line('leased').median)} pairs/s"
            verdicts.append(Verdict(f"{journal}, {kind}: ≥ 0.7x the floor", measured, share >= _SHARE))
            tables.append(table)
    for journal in modes():
        table, longest = _six(plan, journal)
        tables.append(table)
        target = f"{journal}: worst wait with six processes ≤ 0.5 s"
        verdicts.append(at_most(target, longest, _LONGEST, unit=" s"))
    return Result(
        "sqlite-many",
        f"Durable pairs of {_CLIENTS} clients in one process, each with keys of its own; time is that of all by the "
        f"number of pairs. The floor is one writer that commits together whatever waits. Then {_PROCESSES} processes "
        f"of one blocking client each for {_SECONDS} s, against raw statements with SQLite's own busy handler; a wait "
        f"is one whole pair. Nothing is bound to a CPU.",
        tables,
        verdicts,
    )


def _fifty(plan: Plan, journal: str, *, kind: str) -> Table:
    clients = plan.count(_CLIENTS)

    def worker(name: str, function: str, *, role: Role = "leased") -> Worker:
        spec = f"bench.contenders.sqlite_many:{function}"
        directory = plan.directory / journal / function
        return Worker(name, spec, directory=directory, role=role, journal=journal, clients=clients)

    with started(
        partial(worker, "leased", kind), partial(worker, "one writer", f"raw_{kind}", role="floor")
    ) as workers:
        pairs = fitting(workers[1], seconds=plan.scale * _BLOCK, at_least=clients)
        requests = [(worker, {"count": pairs // clients * clients}) for worker in workers]
        series = per_operation(requests, rounds=plan.rounds(20), chance=plan.chance)
    return tabulate(f"{in_words(journal)}, {clients} {kind}", "µs a pair", series)


def _six(plan: Plan, journal: str) -> tuple[Table, float]:
    """Pairs a second of each process, and the longest wait in seconds of any of ours."""

    def worker(function: str, number: int) -> Worker:
        spec = f"bench.contenders.sqlite_many:{function}"
        directory = plan.directory / journal / f"six-{function}"
        return Worker(function, spec, directory=directory, journal=journal, own=f"{number}")

    blocks: dict[str, list[Block]] = {"process": [], "raw_process": []}
    seconds, processes = plan.seconds(_SECONDS), plan.count(_PROCESSES)
    with (
        started(*(partial(worker, "process", number) for number in range(processes))) as ours,
        started(*(partial(worker, "raw_process", number) for number in range(processes))) as theirs,
    ):
        for _ in range(plan.rounds(4)):
            for workers in plan.chance.sample([ours, theirs], 2):
                for one in workers:
                    one.send(seconds=seconds)
                blocks[workers[0].name] += [one.receive() for one in workers]
    longest = {name: [block.told["longest"] * 1000 for block in told] for name, told in blocks.items()}
    pairs = {name: sum(block.told["pairs"] for block in told) for name, told in blocks.items()}
    fewest = min(block.told["pairs"] for block in blocks["process"]) / seconds
    rounds = len(blocks["process"]) / processes
    rate = {name: number / rounds / seconds for name, number in pairs.items()}
    title = (
        f"{in_words(journal)}, {processes} processes: longest wait of each; leased {rate['process']:,.0f} pairs/s in "
        f"all (the slowest process {fewest:,.0f}), raw {rate['raw_process']:,.0f}"
    )
    series = [
        Series("leased", "leased", longest["process"]),
        Series("raw, SQLite's busy handler", "floor", longest["raw_process"]),
    ]
    assert median(longest["process"]) > 0
    return tabulate(title, "ms", series), max(longest["process"]) / 1000
