"""The part of the row `idle-wait` that is on Redis: its contenders, each with a server of its own that counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

from bench import servers
from bench.contender import Worker
from bench.measure import Role, Series, Table, tabulate
from bench.plan import Plan
from bench.redis_clients import Clients
from bench.rows.starting import able

_KINDS: dict[str, tuple[str, Role]] = {
    "Redis, threads": ("waiting:threads", "leased"),
    "Redis, tasks": ("waiting:tasks", "leased"),
    "redis-py Lock, one waiter": ("redis_waiting_peers:idle_redis_py", "peer"),
    "python-redis-lock, one waiter": ("redis_waiting_peers:idle_python_redis_lock", "peer"),
}


class OnRedis:
    """What starts the workers, and what their servers see."""

    def __init__(self, kinds: Sequence[tuple[str, Role, str, Callable[[], Worker]]], *, absent: str) -> None:
        self.absent = absent
        self._kinds = kinds

    @property
    def starters(self) -> list[Callable[[], Worker]]:
        """One for each contender."""
        return [start for _, _, _, start in self._kinds]

    def commands(self, seconds: float) -> Table:
        """The commands that come in within so many seconds from now."""
        with ExitStack() as stack:
            clients = [stack.enter_context(closing(Clients(url))) for _, _, url, _ in self._kinds]
            time.sleep(seconds)
            series = [
                Series(name, role, [one.commands() / seconds])
                for (name, role, _, _), one in zip(self._kinds, clients, strict=True)
            ]
        return tabulate("What comes to the server", "commands a second", series)


@contextmanager
def on_redis(plan: Plan) -> Iterator[OnRedis]:
    """The contenders, and their servers for as long as the block lasts."""
    with ExitStack() as stack:
        kinds: list[tuple[str, Role, str, Callable[[], Worker]]] = []
        absent = ""
        for name, (spec, role) in _KINDS.items():
            if role == "peer" and plan.peers is None:
                continue
            url = stack.enter_context(servers.redis())
            where: dict[str, Any] = {"kind": url} if role == "leased" else {"url": url}
            python = plan.peers if role == "peer" else None
            place = f"bench.contenders.{spec}"
            start = partial(Worker, name, place, directory=plan.directory, role=role, python=python, **where)
            if role == "peer":
                working, sentence = able([start], seconds=0.1, waiters=1)
                absent += sentence
                if not working:
                    continue
            kinds.append((name, role, url, start))
        yield OnRedis(kinds, absent=absent)
