"""The row `postgres-many`."""

from __future__ import annotations

from bench import servers
from bench.contender import Worker
from bench.measure import Result, at_least, at_most
from bench.plan import Plan
from bench.rows.sides import Sides, compare
from bench.rows.starting import started

_CLIENTS = 50
_ROUNDS = 12
_BLOCK = 0.15
_CONNECTIONS = 3
_PAIRS, _SHARE = 18_000, 0.58
_OURS = "pairs:tasks"
_SIDES = Sides(
    ours={"leased": _OURS},
    floors={"joined statements, libpq": "postgres_raw:tasks"},
    peers={
        "sqlalchemy-dlock": "sql_peers:sqlalchemy_dlock_async",
        "django-pglock, threads": "sql_peers:django_pglock",
    },
)


def run(plan: Plan) -> Result:
    """Fifty tasks of one process on PostgreSQL."""
    clients = plan.count(_CLIENTS)
    with servers.postgresql() as url:
        connections = _connections(plan, url, clients=clients)
        table, absent = compare(
            plan,
            _SIDES,
            title=f"{clients} tasks, every commit on disk",
            rounds=_ROUNDS,
            block=_BLOCK,
            at_least=clients,
            cpu=None,
            url=url,
            clients=clients,
        )
    ours = table.line("leased")
    share = 1 / (ours.to_floor or 1.0)
    return Result(
        "postgres-many",
        f"Pairs of {clients} tasks of one process on PostgreSQL, each a new key, with `fsync = on`, its data on disk "
        "and every commit there before its answer; time is that of all by the number of pairs. The floor is one "
        "connection on which all that is asked while a statement is on its way is the next statement. Nothing is "
        f"bound to a CPU.{absent}",
        [table],
        [
            at_least("≥ 0.58x the floor, as 18,000 is to the 31,000 that it once did", share, _SHARE, unit="x"),
            at_least("≥ 18,000 pairs/s", 1e6 / ours.median, _PAIRS, unit=" pairs/s"),
            at_most("≤ 3 connections", connections, _CONNECTIONS),
        ],
    )


def _connections(plan: Plan, url: str, *, clients: int) -> int:
    """How many connections the server has from a process of ours that has done some pairs."""
    spec = f"bench.contenders.{_OURS}"
    with started(lambda: Worker("leased", spec, directory=plan.directory, url=url, clients=clients)) as (one,):
        one.ask(count=4 * clients)
        return servers.connections(url)
