"""The row `redis-pair`."""

from __future__ import annotations

from bench import servers
from bench.contender import one_cpu
from bench.measure import Result, ahead, at_most, less_cpu
from bench.plan import Plan
from bench.rows.sides import Sides, compare

_ROUNDS = 20
_BLOCK = 0.02
_BLOCKING = Sides(
    ours={"leased": "pairs:blocking", "leased, `with`": "pairs:blocking_block"},
    floors={"bare socket": "redis_pair:raw", "redis-py's calls": "redis_pair:bare"},
    peers={
        "redis-py Lock": "redis_peers:redis_py",
        "valkey-py Lock": "redis_peers:valkey_py",
        "python-redis-lock": "redis_peers:python_redis_lock",
    },
)
_ASYNC = Sides(
    ours={"leased": "pairs:asynchronous"},
    floors={"bare transport": "redis_pair:raw_async", "redis-py's calls": "redis_pair:bare_async"},
    peers={
        "redis-py Lock": "redis_peers:redis_py_async",
        "valkey-py Lock": "redis_peers:valkey_py_async",
        "aioredlock": "redis_peers:aioredlock",
    },
)


def run(plan: Plan) -> Result:
    """One acquire and one release on Redis, by both faces."""
    cpu = one_cpu()
    with servers.redis(cpu=cpu) as url:
        blocking, absent = compare(plan, _BLOCKING, title="Blocking", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
        tasks, also_absent = compare(plan, _ASYNC, title="Async", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
    return Result(
        "redis-pair",
        "One acquire and one release of a new key on Valkey, which keeps nothing on disk. The floor is the two "
        "shortest scripts that give a key a token, a fencing token, an owner and an expiry, and take it back by its "
        "token, packed by hand; redis-py's calls are the same scripts by `evalsha`. Blocks of about "
        f"{_BLOCK * 1000:.0f} ms of the floor; each contender is a process of its own, and all of them and the server "
        f"are on one CPU.{absent}{also_absent}",
        [blocking, tasks],
        [
            at_most("blocking: ≤ 1.7x the floor", blocking.line("leased").to_floor or 0.0, 1.7, unit="x"),
            *ahead(blocking, "leased", "redis-py Lock", least=1.7),
            *less_cpu(blocking, "leased", "redis-py Lock", least=2.5),
            at_most("async: ≤ 1.8x the floor", tasks.line("leased").to_floor or 0.0, 1.8, unit="x"),
            *ahead(tasks, "leased", "redis-py Lock", least=2.0),
        ],
    )
