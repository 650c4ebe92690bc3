"""The row `dynamodb-pair`."""

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
    floors={"put and delete, boto3": "dynamodb_raw:pair"},
    peers={"python-dynamodb-lock": "dynamodb_raw:python_dynamodb_lock"},
)
_ASYNC = Sides(
    ours={"leased": "pairs:asynchronous"},
    floors={"put and delete, boto3": "dynamodb_raw:pair"},
    peers={"put and delete, aiobotocore": "dynamodb_raw:pair_async"},
)


def run(plan: Plan) -> Result:
    """One acquire and one release on an emulated DynamoDB, by both faces."""
    cpu = one_cpu()
    with servers.dynamodb(cpu=cpu) as server_url:
        url = f"{server_url}&leased_timeout=60"  # the first call makes the table, and imports what signs requests
        blocking, absent = compare(plan, _BLOCKING, title="Blocking", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
        tasks, also_absent = compare(plan, _ASYNC, title="Async", rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
    return Result(
        "dynamodb-pair",
        "One acquire and one release of a new key on DynamoDB as dynalite emulates it, in memory: what the emulation "
        "costs is the larger part of each number. The floor, of both faces, is boto3 with its settings as they are: a "
        "conditional put of a token, a fencing token, an owner and an expiry, and a conditional delete; the same by "
        "aiobotocore is shown beside it. Blocks of about "
        f"{_BLOCK * 1000:.0f} ms of the floor; each contender is a process of its own, and all of them and the server "
        f"are on one CPU.{absent}{also_absent}",
        [blocking, tasks],
        [
            at_most("blocking: ≤ 1.1x the floor", blocking.line("leased").to_floor or 0.0, 1.1, unit="x"),
            at_most("async: ≤ 1.1x the floor", tasks.line("leased").to_floor or 0.0, 1.1, unit="x"),
        ],
    )
