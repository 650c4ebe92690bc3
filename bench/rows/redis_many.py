"""The row `redis-many`."""

from __future__ import annotations

from math import inf

from bench import servers
from bench.measure import Result, ahead, at_least, at_most, less_cpu
from bench.plan import Plan
from bench.rows.sides import Sides, compare

_CLIENTS = 50
_ROUNDS = 15
_BLOCK = 0.1
_SIDES = Sides(
    ours={"leased": "pairs:tasks"},
    floors={"joined writes": "redis_pair:raw_tasks"},
    peers={
        "redis-py Lock": "redis_peers:redis_py_async",
        "valkey-py Lock": "redis_peers:valkey_py_async",
        "aioredlock": "redis_peers:aioredlock",
    },
)


def run(plan: Plan) -> Result:
    """Fifty tasks of one process on Redis."""
    clients = plan.count(_CLIENTS)
    with servers.redis() as url:
        table, absent = compare(
            plan,
            _SIDES,
            title=f"{clients} tasks",
            rounds=_ROUNDS,
            block=_BLOCK,
            at_least=clients,
            cpu=None,
            url=url,
            clients=clients,
        )
    ours = table.line("leased")
    return Result(
        "redis-many",
        f"Pairs of {clients} tasks of one process on Valkey, each a new key; time is that of all by the number of "
        f"pairs. The floor is one connection on which all that is asked in one turn of the loop is one write. Nothing "
        f"is bound to a CPU.{absent}",
        [table],
        [
            at_least("≥ 0.6x the floor", 1 / (ours.to_floor or 1.0), 0.6, unit=f"x, {1e6 / ours.median:,.0f} pairs/s"),
            at_most("≤ 5x the floor's CPU, as 45 µs is to the 9 it once took", ours.cpu_to_floor or inf, 5.0, unit="x"),
            at_most("≤ 45 µs CPU a pair", ours.cpu or 0.0, 45.0, unit=" µs"),
            *ahead(table, "leased", "redis-py Lock", least=4.0),
            *less_cpu(table, "leased", "redis-py Lock", least=6.0),
        ],
    )
