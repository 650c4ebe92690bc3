"""The row `nats-pair`."""

from __future__ import annotations

from bench import servers
from bench.contender import one_cpu
from bench.measure import Result, at_most
from bench.plan import Plan
from bench.rows.sides import Sides, compare

_ROUNDS = 15
_BLOCK = 0.1
_BLOCKING = Sides(
    ours={"leased": "pairs:blocking", "leased, `with`": "pairs:blocking_block"},
    floors={"put and delete, nats-py in a loop of its own": "nats_raw:pair"},
)
_ASYNC = Sides(
    ours={"leased": "pairs:asynchronous"},
    floors={"put and delete, nats-py": "nats_raw:pair_async"},
)


def run(plan: Plan) -> Result:
    """One acquire and one release on NATS JetStream, by both faces."""
    cpu = one_cpu()
    with servers.nats(cpu=cpu) as url:
        blocking, _ = compare(plan, _BLOCKING, title="Blocking", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
        tasks, _ = compare(plan, _ASYNC, title="Async", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
    return Result(
        "nats-pair",
        "One acquire and one release of a new key on one NATS server, with file storage as it is by default. The floor "
        "is the key-value store of nats-py: `create` of a token, a fencing token, an owner and times, and `delete` "
        f"with its revision. Blocks of about {_BLOCK * 1000:.0f} ms of the floor; each contender is a process of its "
        "own, and all of them and the server are on one CPU. No other library with leases on NATS was found.",
        [blocking, tasks],
        [
            at_most("blocking: ≤ 1.2x the floor", blocking.line("leased").to_floor or 0.0, 1.2, unit="x"),
            at_most("async: ≤ 1.2x the floor", tasks.line("leased").to_floor or 0.0, 1.2, unit="x"),
        ],
    )
