"""The row `service-client`."""

from __future__ import annotations

from bench import services
from bench.contender import one_cpu
from bench.measure import MICRO, Result, at_least, at_most, near_floor
from bench.plan import Plan
from bench.rows.sides import Sides, compare

_CLIENTS = 50
_ROUNDS = 12
_BLOCK = 0.2
_TASKS = Sides(ours={"leased": "pairs:tasks"}, floors={"requests, one by one": "http_load:connections"})
_ONE = Sides(ours={"leased": "pairs:blocking"}, floors={"bare connection": "http_load:connection"})


def run(plan: Plan) -> Result:
    """Pairs through the service by its own client, of fifty tasks and of one thread."""
    clients, cpu = plan.count(_CLIENTS), services.other_cpu()
    with services.lock_service("memory:", cpu=one_cpu()) as url:
        tasks, _ = compare(
            plan,
            _TASKS,
            title=f"{clients} tasks",
            rounds=_ROUNDS,
            block=_BLOCK,
            at_least=clients,
            cpu=cpu,
            url=url,
            clients=clients,
        )
        one, _ = compare(plan, _ONE, title="One caller", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
    each = tasks.line("leased").median / 2
    return Result(
        "service-client",
        "Pairs through the service over its memory store, by the client of leased; the service is bound to one CPU and "
        "those who ask to another. The floor sends prepared requests over bare connections, one operation a request.",
        [tasks, one],
        [
            near_floor(f"{clients} tasks", tasks.line("leased"), 1.85, because="as 50 µs is to the 27 it once took"),
            at_least(f"{clients} tasks: ≥ 20,000 operations a second", MICRO / each, 20_000),
            near_floor("one caller", one.line("leased"), 2.94, because="as 350 µs is to the 119 it once took"),
            at_most("one caller: ≤ 350 µs a call", one.line("leased").median / 2, 350.0, unit=" µs"),
        ],
    )
