"""The row `service`."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from bench import services
from bench.contender import Worker, one_cpu
from bench.measure import (
    MICRO,
    Block,
    Line,
    Result,
    Role,
    Series,
    Verdict,
    at_least,
    at_most,
    fitting,
    interleave,
    near_floor,
    tabulate,
)
from bench.plan import Plan
from bench.rows.starting import started

_GUARDED = "leased, memory, API key and limits"
_CLIENTS = 64
_FLOOR = 34_000
_ROUNDS = 12
_BLOCK = 0.5


def run(plan: Plan) -> Result:
    """One operation a request, on 64 connections, of a service on one CPU."""
    cpu, clients = one_cpu(), plan.count(_CLIENTS)
    file = f"sqlite:{plan.directory / 'locks.db'}"
    with ExitStack() as stack:
        serve = stack.enter_context
        guarded = serve(services.guarded_service("memory:", directory=plan.directory, cpu=cpu))
        places: dict[str, tuple[Role, str, str]] = {
            _GUARDED: ("leased", *guarded),
            "leased, memory": ("leased", serve(services.lock_service("memory:", cpu=cpu)), ""),
            "leased, SQLite": ("leased", serve(services.lock_service(file, cpu=cpu)), ""),
            "plain ASGI": ("floor", serve(services.plain_asgi(cpu=cpu)), ""),
        }
        starters = [partial(_worker, plan, name, *of, clients=clients) for name, of in places.items()]
        with started(*starters) as workers:
            floor = next(one for one in workers if one.role == "floor")
            count = fitting(floor, seconds=plan.scale * _BLOCK, at_least=clients) // clients * clients
            requests = [(one, {"count": count}) for one in workers]
            blocks = interleave(requests, rounds=plan.rounds(_ROUNDS), chance=plan.chance)
    each = MICRO / count / 2
    series = [Series(one.name, one.role, [block.wall * each for block in blocks[one.name]]) for one in workers]
    table = tabulate(f"{clients} connections", "µs a request", series)
    return Result(
        "service",
        f"One operation a request: an acquire, then its release, over and over on {clients} connections with keys of "
        "their own. The service is bound to one CPU and those who ask to another, and counts all requests for its "
        "metrics. Where it says so it asks for an API key, and counts each request against the budgets of its project "
        "and its member, which are set so high that none is refused; else nobody is asked for credentials. SQLite "
        "answers once the commit is on disk. The floor is uvicorn with an application that answers the same to "
        "everything.",
        [table],
        [
            *_judged("memory, API key", table.line(_GUARDED), blocks[_GUARDED], least=20_000, late=8.0),
            *_judged("SQLite", table.line("leased, SQLite"), blocks["leased, SQLite"], least=12_000, late=10.0),
        ],
    )


def _worker(plan: Plan, name: str, role: Role, url: str, credential: str, *, clients: int) -> Worker:
    spec, cpu = "bench.contenders.http_load:connections", services.other_cpu()
    more: dict[str, Any] = {"url": url, "credential": credential, "clients": clients}
    return Worker(name, spec, directory=plan.directory, role=role, cpu=cpu, **more)


def _judged(name: str, line: Line, blocks: list[Block], *, least: int, late: float) -> list[Verdict]:
    slowest = sorted(block.told[1] for block in blocks)[len(blocks) // 2]
    return [
        near_floor(name, line, _FLOOR / least, because=f"as {least:,} is to the {_FLOOR:,} a second that it once did"),
        at_least(f"{name}: ≥ {least:,} requests a second", MICRO / line.median, least),
        at_most(f"{name}: p99 ≤ {late:g} ms", slowest, late, unit=" ms"),
    ]
