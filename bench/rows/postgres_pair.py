"""The row `postgres-pair`."""

from __future__ import annotations

from bench import servers
from bench.contender import one_cpu
from bench.measure import Result, Table, Verdict, ahead, at_most
from bench.plan import Plan
from bench.rows.sides import Sides, compare

_ROUNDS = 15
_BLOCK = 0.03
_COMMITS = {"on": "every commit on disk", "off": "`synchronous_commit = off`"}
_BLOCKING = Sides(
    ours={"leased": "pairs:blocking", "leased, `with`": "pairs:blocking_block"},
    floors={"two statements, libpq": "postgres_raw:pair"},
    peers={"sqlalchemy-dlock": "sql_peers:sqlalchemy_dlock", "django-pglock": "sql_peers:django_pglock"},
)
_ASYNC = Sides(
    ours={"leased": "pairs:asynchronous"},
    floors={"two statements, libpq": "postgres_raw:pair_async"},
    peers={"sqlalchemy-dlock": "sql_peers:sqlalchemy_dlock_async"},
)


def run(plan: Plan) -> Result:
    """One acquire and one release on PostgreSQL, by both faces, with and without waiting for the disk."""
    tables: list[Table] = []
    verdicts: list[Verdict] = []
    reasons: set[str] = set()
    cpu = one_cpu()
    for commit, in_words in _COMMITS.items():
        with servers.postgresql(cpu=cpu, settings={"synchronous_commit": commit}) as url:
            for face, sides in {"blocking": _BLOCKING, "async": _ASYNC}.items():
                name = f"{face}, {in_words}"
                table, absent = compare(plan, sides, title=name, rounds=_ROUNDS, block=_BLOCK, cpu=cpu, url=url)
                tables.append(table)
                reasons.add(absent)
                ours = table.line("leased").to_floor or 0.0
                verdicts.append(at_most(f"{name}: ≤ 1.2x the floor", ours, 1.2, unit="x"))
                verdicts += [*ahead(table, "leased", "sqlalchemy-dlock", least=2.0)] if commit == "off" else []
    return Result(
        "postgres-pair",
        "One acquire and one release of a new key on PostgreSQL, with `fsync = on` and its data on disk; once with "
        "every commit on disk before its answer, once with `synchronous_commit = off`. The floor is an upsert and a "
        "delete, prepared, by libpq alone. The peers take locks of their session, which write nothing and have no "
        "expiry, so that only those who do not wait for the disk are compared with them. Blocks of about "
        f"{_BLOCK * 1000:.0f} ms of the floor; each contender is a process of its own, and all of them and the server "
        f"are on one CPU.{''.join(sorted(reasons))}",
        tables,
        verdicts,
    )
