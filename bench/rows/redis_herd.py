"""The part of the row `herd` that is on Redis."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from bench import servers
from bench.contender import Worker
from bench.measure import MICRO, Block, Role, Series, Table, Verdict, at_most, near_floor, tabulate
from bench.plan import Plan
from bench.redis_clients import Clients
from bench.rows.starting import able, started

_WAITERS = 1000
_ROUNDS = 3
_LOOKED_AT = 200
_PASS = 350.0
_COMMANDS = 3.0
_CONNECTIONS = {"Redis, tasks": 3, "Redis, threads": 5}
_KINDS: dict[str, tuple[str, Role]] = {
    "Redis, tasks": ("herd:tasks", "leased"),
    "Redis, threads": ("herd:threads", "leased"),
    "scripts and a line": ("redis_waiting:herd", "floor"),
    "python-redis-lock": ("redis_waiting_peers:herd", "peer"),
}


class _Seen:
    """One contender with a server of its own, what it did, and what its server saw of it."""

    def __init__(self, worker: Worker, url: str) -> None:
        self.worker = worker
        self.blocks: list[Block] = []
        self.commands = 0.0
        self.connections = 0
        self._url = url

    def serve(self, waiters: int) -> None:
        """One herd."""
        self.blocks.append(self.worker.ask(count=waiters))

    def look(self, waiters: int) -> None:
        """Another one, of which only what comes to the server counts: being seen takes time."""
        with closing(Clients(self._url)) as clients:
            self.worker.ask(count=waiters)
            self.connections, self.commands = clients.connections(), clients.commands() / waiters


def on_redis(plan: Plan) -> tuple[Table, list[Verdict], str]:
    """Table, verdicts, and a sentence about a peer that cannot run."""
    waiters, absent = plan.count(_WAITERS), ""
    with ExitStack() as stack:
        starters, urls = [], []
        for name, (spec, role) in _KINDS.items():
            url = stack.enter_context(servers.redis())
            if role == "peer" and plan.peers is None:
                continue
            where: dict[str, Any] = {"kind": url} if role == "leased" else {"url": url}
            python = plan.peers if role == "peer" else None
            place = f"bench.contenders.{spec}"
            start = partial(Worker, name, place, directory=plan.directory, role=role, python=python, **where)
            if role == "peer":
                working, absent = able([start], count=2)
                if not working:
                    continue
            starters.append(start)
            urls.append(url)
        workers = stack.enter_context(started(*starters))
        seen = [_Seen(worker, url) for worker, url in zip(workers, urls, strict=True)]
        for _ in range(plan.rounds(_ROUNDS)):
            for one in plan.chance.sample(seen, len(seen)):
                one.serve(waiters)
        for one in seen:
            if one.worker.role == "leased":
                one.look(plan.count(_LOOKED_AT))
    table = tabulate(f"Valkey: a pass, {waiters:,} waiters", "µs a pass", [_series(one, waiters) for one in seen])
    return table, [verdict for one in seen if one.worker.role == "leased" for verdict in _judged(one, table)], absent


def _series(one: _Seen, waiters: int) -> Series:
    return Series(
        one.worker.name,
        one.worker.role,
        [block.told["wall"] / waiters * MICRO for block in one.blocks],
        [block.told["cpu"] / waiters * MICRO for block in one.blocks],
    )


def _judged(one: _Seen, table: Table) -> list[Verdict]:
    name = one.worker.name
    in_order = all(block.told["in_order"] for block in one.blocks)
    return [
        near_floor(name, table.line(name), 3.5, because="as 0.35 ms is to the 0.1 it once took"),
        at_most(f"{name}: ≤ 0.35 ms a pass", table.line(name).median, _PASS, unit=" µs"),
        at_most(f"{name}: ≤ 3 commands a pass", one.commands, _COMMANDS),
        at_most(f"{name}: ≤ {_CONNECTIONS[name]} connections", one.connections, _CONNECTIONS[name]),
        Verdict(f"{name}: served in order", "in order" if in_order else "out of order", in_order),
    ]
