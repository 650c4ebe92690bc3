"""Where the time of a row goes: byte codes by what they buy, and system calls, of leased and of its floor.

What runs under a tracer is slow, and the machine may be busy: what is executed is the same then, times are not. Byte
codes are those of one thread; what C and the kernel do shows as system calls at most.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import servers, services
from bench.contender import ROOT, clean_environment
from bench.counting import steps

TOP = 12
_SHARES = {
    "the lock: key, terms and owner, checked and put together for each new one": (
        "sync aio sync_lock aio_lock recipe checks client targets default"
    ),
    "the handle: what its holder may believe and until when, told once, known to `current()`": (
        "sync_handle aio_handle handle hold hooks context scope"
    ),
    "the engine: turns in the line of a key, budgets of time, answers that never came, giving back": (
        "engine queue policy cleanup interrupt env"
    ),
    "telling observers": "observe",
    "joining with others who ask now": "join",
    "renewal": "keeper threads",
    "what is passed between these: claims, leases, answers": "model values store errors",
    "signals and clocks": "clocks aio_clock",
}
_STORE = "the store: packing and reading, whose connection it is (fork, loop, pool), whether it lives, until when"
_OTHERS = {
    "leased.stores.memory": "the store: the rules of a lease",
    "leased.stores": _STORE,
    "leased.wire": _STORE,
    **dict.fromkeys(
        ("leased.server.connections", "leased.server.known", "leased.server.heads"),
        "the connection: patience and room for it, its heads and answers",
    ),
    **dict.fromkeys(
        [f"leased.server.{name}" for name in ("gate", "keys", "limits", "principals", "rights", "access", "copies")],
        "who asks: the credential, what it may do, its budgets",
    ),
    **dict.fromkeys(
        [f"leased.server.{name}" for name in ("metrics", "usage", "audit", "contention", "holds", "journal", "events")],
        "metrics, and what is kept to look back at",
    ),
    "leased.server": "the route: the request checked, the outcome as JSON",
    "uvicorn": "uvicorn",
    "h11": "uvicorn",
    "dataclasses": "what is passed between these: claims, leases, answers",
    "asyncio": "the event loop",
    "bench": "the program that asks",
}
_DRIVERS = (
    "redis", "hiredis", "psycopg", "psycopg_binary", "pymysql", "asyncmy", "boto3", "botocore", "nats", "urllib3",
    "apsw", "httptools",
)  # fmt: skip
_LOOP = ("base_events", "events", "selector_events", "selectors", "runners", "tasks", "futures", "streams", "locks")


@dataclass(frozen=True, slots=True)
class Subject:
    """One line of a row, and its floor: contenders (`MODULE:FUNCTION`), and what they are asked for, less and more."""

    title: str
    ours: str
    floor: str | None
    server: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    little: Mapping[str, Any] = field(default_factory=lambda: {"count": 10})
    more: Mapping[str, Any] = field(default_factory=lambda: {"count": 30})


_FIFTY: dict[str, Any] = {"options": {"clients": 50}, "little": {"count": 100}, "more": {"count": 200}}
_RENEWED: dict[str, Any] = {
    "options": {"kind": "memory", "ttl": 9.0},
    "little": {"count": 60, "seconds": 3.5},
    "more": {"count": 60, "seconds": 9.5},
}
_WAL: dict[str, Any] = {**_FIFTY, "options": {"clients": 50, "journal": "wal"}}

_CONNECTIONS: dict[str, Any] = {"options": {"clients": 64}, "little": {"count": 256}, "more": {"count": 768}}
_GUARDED: dict[str, Any] = {**_CONNECTIONS, "options": {"clients": 64, "guarded": True}}

SUBJECTS: dict[str, tuple[Subject, ...]] = {
    "memory-pair": (
        Subject("blocking", "memory:blocking", "memory:dictionary"),
        Subject("async", "memory:asynchronous", "memory:dictionary"),
    ),
    "sqlite-many": (Subject("50 tasks, WAL", "sqlite_many:tasks", "sqlite_many:raw_tasks", **_WAL),),
    "redis-pair": (
        Subject("blocking", "pairs:blocking", "redis_pair:raw", "redis"),
        Subject("async", "pairs:asynchronous", "redis_pair:raw_async", "redis"),
    ),
    "redis-many": (Subject("50 tasks", "pairs:tasks", "redis_pair:raw_tasks", "redis", **_FIFTY),),
    "postgres-pair": (
        Subject("blocking", "pairs:blocking", "postgres_raw:pair", "postgresql"),
        Subject("async", "pairs:asynchronous", "postgres_raw:pair_async", "postgresql"),
    ),
    "postgres-many": (Subject("50 tasks", "pairs:tasks", "postgres_raw:tasks", "postgresql", **_FIFTY),),
    "mysql-pair": (
        Subject("blocking", "pairs:blocking", "mysql_raw:pair", "mysql"),
        Subject("async", "pairs:asynchronous", "mysql_raw:pair_async", "mysql"),
    ),
    "etcd-pair": (
        Subject("blocking", "pairs:blocking", "etcd_raw:pair", "etcd"),
        Subject("async", "pairs:asynchronous", "etcd_raw:pair_async", "etcd"),
    ),
    "nats-pair": (
        Subject("blocking", "pairs:blocking", "nats_raw:pair", "nats"),
        Subject("async", "pairs:asynchronous", "nats_raw:pair_async", "nats"),
    ),
    "renewal": (Subject("memory, a renewal, few due together", "renewal:tasks", None, **_RENEWED),),
    "service": (
        Subject("memory, API key", "service_inside:leased", "service_inside:plain", **_GUARDED),
        Subject("memory, nobody asked who he is", "service_inside:leased", "service_inside:plain", **_CONNECTIONS),
    ),
    "service-client": (Subject("one caller", "pairs:blocking", "http_load:connection", "service"),),
}
"""The rows that have missed a target and are a matter of code; `cli-start` is profiled by its modules."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What one operation took: byte codes by function, calls of functions, and system calls by name (if counted)."""

    codes: Mapping[str, float]
    calls: float
    system_calls: Mapping[str, float]


def profile(row: str, directory: Path) -> list[dict[str, Any]]:
    """The profiles of a row, as they are kept."""
    found = []
    for subject in SUBJECTS[row]:
        with _server(subject.server) as more:
            ours = _profile(subject, subject.ours, directory / "ours", more)
            floor = None if subject.floor is None else _profile(subject, subject.floor, directory / "floor", more)
        codes = Counter(dict(ours.codes))
        found.append(
            {
                "title": subject.title,
                "codes": round(codes.total()),
                "calls": round(ours.calls),
                "shares": {name: round(count) for name, count in shares(ours.codes).items() if round(count)},
                "top": {name: round(count) for name, count in codes.most_common(TOP)},
                "system calls": _noted(ours.system_calls),
                "floor": floor
                and {
                    "codes": round(sum(floor.codes.values())),
                    "calls": round(floor.calls),
                    "system calls": _noted(floor.system_calls),
                },
            }
        )
    return found


def shares(codes: Mapping[str, float]) -> dict[str, float]:
    """Byte codes by what they buy, the most first."""
    sums: Counter[str] = Counter()
    for name, count in codes.items():
        sums[bought(name)] += count  # type: ignore[assignment]  # a Counter counts fractions as well
    return dict(sums.most_common())


def bought(name: str) -> str:
    """What a function is for."""
    parts = name.split(".")
    for package, words in _OTHERS.items():
        if f"{name}.".startswith((f"{package}.", f"{package}_")):
            return words
    if parts[0] == "leased":
        return next((words for words, modules in _SHARES.items() if parts[1] in modules.split()), "the rest of leased")
    if parts[0] in _DRIVERS:
        return "the driver"
    if parts[0] in _LOOP:
        return "the event loop"
    return "Python's own library"


def _noted(counts: Mapping[str, float]) -> dict[str, float]:
    return {name: round(count, 1) for name, count in Counter(dict(counts)).most_common() if count >= 0.05}


@contextmanager
def _server(kind: str | None) -> Iterator[dict[str, Any]]:
    starting: AbstractContextManager[str] | None = None
    if kind == "service":
        starting = services.lock_service("memory:")
    elif kind is not None:
        starting = getattr(servers, kind)()
    with starting or nullcontext() as url:
        yield {} if url is None else {"url": url}


def _profile(subject: Subject, spec: str, directory: Path, more: Mapping[str, Any]) -> Profile:
    options = {**subject.options, **more}
    directory.mkdir(parents=True, exist_ok=True)
    module, _, name = spec.partition(":")
    operations = []
    with getattr(import_module(f"bench.contenders.{module}"), name)(directory, **options) as run:
        run(**subject.little)

        def ask(**request: Any) -> None:
            operations.append(_operations(run(**request), request))

        little, much = (steps(partial(ask, **request)) for request in (subject.little, subject.more))
    count = operations[1] - operations[0]
    codes = {name: (much.codes[name] - little.codes[name]) / count for name in much.codes}
    calls = (much.calls.total() - little.calls.total()) / count
    return Profile(codes, calls, _system_calls(subject, spec, directory / "traced", options))


def _operations(told: Any, request: Mapping[str, Any]) -> int:
    """How many there were: a contender of renewals tells, all others do what they are asked for."""
    return int(told["renewals"]) if isinstance(told, dict) and "renewals" in told else int(request["count"])


def _system_calls(subject: Subject, spec: str, directory: Path, options: Mapping[str, Any]) -> dict[str, float]:
    """System calls an operation, of all threads of a process of its own; nothing where `strace` is missing."""
    if shutil.which("strace") is None:
        return {}
    directory.mkdir(parents=True, exist_ok=True)
    counted: list[tuple[int, Counter[str]]] = []
    spec = f"bench.contenders.{spec}"
    for request in (subject.little, subject.more):
        worker = [sys.executable, "-m", "bench.worker", spec, str(directory), "-", json.dumps(options)]
        said, calls = traced(worker, directory / "calls", typed=f"{json.dumps(request)}\n")
        told = json.loads(said.splitlines()[-1])["told"]
        counted.append((_operations(told, request), calls))
    (few, fewer), (many, more) = counted
    return {name: (more[name] - fewer[name]) / (many - few) for name in more}


def traced(command: Sequence[str], table: Path, *, typed: str = "") -> tuple[str, Counter[str]]:
    """What a program says, and the system calls of it and of its children."""
    done = subprocess.run(
        ["strace", "-f", "-c", "-o", str(table), *command],
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(ROOT / "src")},
        input=typed,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) (?: *\d+)? +(\w+)$", table.read_text(), re.MULTILINE)
    return done.stdout, Counter({name: int(count) for count, name in lines if name != "total"})
