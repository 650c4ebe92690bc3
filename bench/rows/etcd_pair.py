"""The row `etcd-pair`."""

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
    floors={"two transactions, socket": "etcd_raw:pair"},
    peers={"tooz": "etcd_peers:tooz"},
)
_ASYNC = Sides(
    ours={"leased": "pairs:asynchronous"},
    floors={"two transactions, streams": "etcd_raw:pair_async"},
    peers={"aetcd": "etcd_peers:aetcd"},
)


def run(plan: Plan) -> Result:
    """One acquire and one release on etcd, by both faces."""
    cpu = one_cpu()
    with servers.etcd(cpu=cpu) as url:
        blocking, absent = compare(plan, _BLOCKING, title="Blocking", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
        tasks, also_absent = compare(plan, _ASYNC, title="Async", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
    return Result(
        "etcd-pair",
        "One acquire and one release of a new key on an etcd of one member, whose data is on disk and safe there "
        "before each answer. The floor is two transactions over its JSON gateway on one bare connection, each of which "
        "compares a revision and puts a value of a token, a fencing token, an owner and times. Blocks of about "
        f"{_BLOCK * 1000:.0f} ms of the floor; each contender is a process of its own, and all of them and the server "
        f"are on one CPU. The peers make a lease of etcd for each lock, besides the two.{absent}{also_absent}",
        [blocking, tasks],
        [
            at_most("blocking: ≤ 1.2x the floor", blocking.line("leased").to_floor or 0.0, 1.2, unit="x"),
            at_most("async: ≤ 1.2x the floor", tasks.line("leased").to_floor or 0.0, 1.2, unit="x"),
        ],
    )
