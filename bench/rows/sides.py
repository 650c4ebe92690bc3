"""Contenders of a row on one server, by name and function, and the measuring of all of them in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.contender import Worker
from bench.measure import Role, Table, fitting, per_operation, tabulate
from bench.plan import Plan
from bench.rows.starting import able, started


@dataclass(frozen=True, slots=True)
class Sides:
    """Contenders by the name that a table gives them; each is `MODULE:FUNCTION` in `bench.contenders`."""

    ours: Mapping[str, str]
    floors: Mapping[str, str]
    peers: Mapping[str, str] = field(default_factory=dict)


def compare(
    plan: Plan,
    sides: Sides,
    *,
    title: str,
    rounds: int,
    block: float,
    at_least: int = 4,
    cpu: int | None,
    **options: Any,
) -> tuple[Table, str]:
    """The table, and a sentence about peers that cannot run.

    Every contender does blocks of about so many seconds, by the number of operations that the first floor needs; peers
    do a quarter of it.
    """

    def worker(name: str, spec: str, role: Role, python: str | None = None) -> Worker:
        place = f"bench.contenders.{spec}"
        return Worker(name, place, directory=plan.directory, role=role, python=python, cpu=cpu, **options)

    theirs = sides.peers.items() if plan.peers is not None else ()
    working, absent = able([partial(worker, name, spec, "peer", plan.peers) for name, spec in theirs], count=at_least)
    with started(
        *(partial(worker, name, spec, "leased") for name, spec in sides.ours.items()),
        *(partial(worker, name, spec, "floor") for name, spec in sides.floors.items()),
        *working,
    ) as workers:
        floor = next(one for one in workers if one.role == "floor")
        count = fitting(floor, seconds=plan.scale * block, at_least=at_least)
        counts = {"leased": count, "floor": count, "peer": max(at_least, count // 4)}
        requests = [(one, {"count": counts[one.role] // at_least * at_least}) for one in workers]
        series = per_operation(requests, rounds=plan.rounds(rounds), chance=plan.chance)
    return tabulate(title, "µs a pair", series), absent
