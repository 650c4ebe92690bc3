"""The row `mysql-pair`."""

from __future__ import annotations

from bench import servers
from bench.contender import one_cpu
from bench.measure import Result, at_most
from bench.plan import Plan
from bench.rows.sides import Sides, compare

_ROUNDS = 15
_BLOCK = 0.05
_BLOCKING = Sides(
    ours={"leased": "pairs:blocking", "leased, `with`": "pairs:blocking_block"},
    floors={"two statements, PyMySQL": "mysql_raw:pair"},
    peers={"sqlalchemy-dlock": "sql_peers:sqlalchemy_dlock"},
)
_ASYNC = Sides(
    ours={"leased": "pairs:asynchronous"},
    floors={"two statements, asyncmy": "mysql_raw:pair_async"},
    peers={"sqlalchemy-dlock": "sql_peers:sqlalchemy_dlock_async"},
)


def run(plan: Plan) -> Result:
    """One acquire and one release on MariaDB, by both faces."""
    cpu = one_cpu()
    with servers.mysql(cpu=cpu) as url:
        blocking, absent = compare(plan, _BLOCKING, title="Blocking", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
        tasks, also_absent = compare(plan, _ASYNC, title="Async", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
    return Result(
        "mysql-pair",
        "One acquire and one release of a new key on MariaDB, with every commit on disk before its answer "
        "(`innodb_flush_log_at_trx_commit = 1`). The floor is an upsert and a delete. The peer takes locks of its "
        "session, which write nothing and have no expiry: it is shown, and waits for no disk. Blocks of about "
        f"{_BLOCK * 1000:.0f} ms of the floor; each contender is a process of its own, and all of them and the server "
        f"are on one CPU.{absent}{also_absent}",
        [blocking, tasks],
        [
            at_most("blocking: ≤ 1.2x the floor", blocking.line("leased").to_floor or 0.0, 1.2, unit="x"),
            at_most("async: ≤ 1.2x the floor", tasks.line("leased").to_floor or 0.0, 1.2, unit="x"),
        ],
    )
