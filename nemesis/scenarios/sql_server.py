"""One PostgreSQL or MariaDB that keeps every answer, paused, killed and restarted: nothing may be lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from random import Random

from nemesis.history import Recorder
from nemesis.scenarios.redis_server import pause
from nemesis.stage import Scenario, Stage, broken
from tests.servers import mariadb, postgres
from tests.servers.process import Server


def _on(start: Callable[[], Server]) -> Callable[[], AbstractContextManager[Stage]]:
    @contextmanager
    def open_stage() -> Iterator[Stage]:
        with start() as server:
            yield Stage(server.url, [partial(fault, server) for fault in (_stall, _crash, _restart)])

    return open_stage


def _stall(server: Server, recorder: Recorder, chance: Random) -> None:
    pause(server, recorder, seconds=chance.uniform(0.1, 3.0))


def _crash(server: Server, recorder: Recorder, chance: Random) -> None:
    with broken(recorder, "killed and restarted"):
        server.kill()
        time.sleep(chance.uniform(0.0, 1.0))
        server.start()


def _restart(server: Server, recorder: Recorder, chance: Random) -> None:
    with broken(recorder, "restarted"):
        server.restart()


_GATES = {"faults": 6, "unknown outcomes": 3}
_ABOUT = "that keeps every answer, paused, killed and restarted"

SCENARIOS = (
    Scenario(
        "postgres-server", f"one PostgreSQL {_ABOUT}", _on(lambda: postgres.start(settings=postgres.DURABLE)), _GATES
    ),
    Scenario("mysql-server", f"one MariaDB {_ABOUT}", _on(lambda: mariadb.start(settings=mariadb.DURABLE)), _GATES),
)
