"""The part of the row `hand-off` that is on servers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from bench import servers
from bench.contender import Worker
from bench.measure import Role, Series, Table, Verdict, at_most, tabulate
from bench.plan import Plan
from bench.rows.handing import Pair
from bench.rows.sides import Sides
from bench.rows.starting import able, started

_ROUNDS = 50
_LATEST = 5.0
_REDIS = Sides(
    ours={"leased, blocking": "hand_off:blocking", "leased, async": "hand_off:asynchronous"},
    floors={"scripts and pub/sub": "redis_waiting:hand_off"},
    peers={
        "redis-py Lock": "redis_waiting_peers:redis_py",
        "redis-py Lock, async": "redis_waiting_peers:redis_py_async",
        "python-redis-lock": "redis_waiting_peers:python_redis_lock",
    },
)
_POSTGRESQL = Sides(
    ours={"leased, blocking": "hand_off:blocking", "leased, async": "hand_off:asynchronous"},
    floors={"statements and NOTIFY": "postgres_raw:hand_off"},
    peers={
        "django-pglock": "sql_peers:hand_off_django_pglock",
        "sqlalchemy-dlock": "sql_peers:hand_off_sqlalchemy_dlock",
    },
)

_ETCD = Sides(
    ours={"leased, blocking": "hand_off:blocking", "leased, async": "hand_off:asynchronous"},
    floors={"etcd's own lock service": "etcd_raw:hand_off"},
    peers={"aetcd": "etcd_peers:hand_off_aetcd", "tooz": "etcd_peers:hand_off_tooz"},
)


class _Kind(NamedTuple):
    name: str
    spec: str
    role: Role


def on_redis(plan: Plan) -> tuple[Table, list[Verdict], str]:
    """Table, verdicts, and a sentence about peers that cannot run."""
    with servers.redis() as url:
        pairs, absent = _measure(plan, _REDIS, url)
    table = _tabulated("Valkey", pairs)
    verdicts = [
        at_most(f"Redis, {face}: ≤ {limit}x the floor", table.line(f"leased, {face}").to_floor or 0.0, limit, unit="x")
        for face, limit in {"blocking": 1.5, "async": 2.0}.items()
    ]
    for pair in pairs:
        if pair.role == "leased":
            name = pair.name.removeprefix("leased, ")
            verdicts.append(at_most(f"Redis, {name}: 99 of 100 within 5 ms", _late(pair.held), _LATEST, unit=" ms"))
    return table, verdicts, absent


def on_postgresql(plan: Plan) -> tuple[Table, list[Verdict], str]:
    """The same on PostgreSQL."""
    with servers.postgresql() as url:
        with started(*_two(plan, "leased", "hand_off:blocking", url)) as (giver, taker):
            Pair("leased", "leased", giver, taker).hand_off(0.05)
            listening = servers.listening(url)
        pairs, absent = _measure(plan, _POSTGRESQL, url)
    table = _tabulated("PostgreSQL", pairs)
    verdicts = [
        at_most(f"PostgreSQL, {face}: ≤ 1.2x the floor", table.line(f"leased, {face}").to_floor or 0.0, 1.2, unit="x")
        for face in ("blocking", "async")
    ]
    target = "PostgreSQL: one listening connection in the process that waits"
    verdicts.append(Verdict(target, f"{listening}", listening == 1))
    return table, verdicts, absent


def on_etcd(plan: Plan) -> tuple[Table, list[Verdict], str]:
    """The same on etcd."""
    with servers.etcd() as url:
        pairs, absent = _measure(plan, _ETCD, url)
    table = _tabulated("etcd", pairs)
    verdicts = [
        at_most(f"etcd, {face}: ≤ 1.1x the floor", table.line(f"leased, {face}").to_floor or 0.0, 1.1, unit="x")
        for face in ("blocking", "async")
    ]
    return table, verdicts, absent


def _measure(plan: Plan, sides: Sides, url: str) -> tuple[list[Pair], str]:
    absent = ""
    kinds = [_Kind(name, spec, "leased") for name, spec in sides.ours.items()]
    kinds += [_Kind(name, spec, "floor") for name, spec in sides.floors.items()]
    for name, spec in sides.peers.items() if plan.peers is not None else ():
        working, sentence = able(_two(plan, name, spec, url, python=plan.peers)[:1], action="take")
        absent += sentence
        kinds += [_Kind(name, spec, "peer")] if working else []
    starters = [
        start
        for kind in kinds
        for start in _two(plan, kind.name, kind.spec, url, python=plan.peers if kind.role == "peer" else None)
    ]
    with started(*starters) as workers:
        pairs = [
            Pair(kind.name, kind.role, workers[2 * number], workers[2 * number + 1])
            for number, kind in enumerate(kinds)
        ]
        for _ in range(plan.rounds(_ROUNDS)):
            for pair in plan.chance.sample(pairs, len(pairs)):
                pair.hand_off(0.02 + 0.06 * plan.chance.random())
    return pairs, absent


def _two(plan: Plan, name: str, spec: str, url: str, *, python: str | None = None) -> list[partial[Worker]]:
    one = partial(Worker, name, f"bench.contenders.{spec}", directory=plan.directory, python=python, url=url)
    return [one, one]


def _tabulated(server: str, pairs: Sequence[Pair]) -> Table:
    return tabulate(f"{server}: release to held", "ms", [Series(pair.name, pair.role, pair.held) for pair in pairs])


def _late(values: Sequence[float]) -> float:
    """What 99 of 100 do not exceed."""
    return sorted(values)[round(0.99 * (len(values) - 1))]
