"""A lock service over a file, paused, killed and restarted, or behind a network that loses: nothing is excused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

from nemesis.history import Recorder
from nemesis.scenarios.redis_network import FAULTS
from nemesis.scenarios.redis_server import pause
from nemesis.stage import Scenario, Stage, broken
from tests.servers import lock_service
from tests.servers.process import Server
from tests.servers.proxy import Proxy


@contextmanager
def _process() -> Iterator[Stage]:
    with lock_service.start() as server:
        yield Stage(server.url, [partial(fault, server) for fault in (_stall, _crash, _restart)])


@contextmanager
def _network() -> Iterator[Stage]:
    with lock_service.start() as server, Proxy(server) as proxy:
        yield Stage(proxy.url, [partial(fault, proxy) for fault in FAULTS])


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


SCENARIOS = (
    Scenario(
        "service-process",
        "a lock service over a file, paused, killed and restarted",
        _process,
        {"faults": 6, "unknown outcomes": 3},
    ),
    Scenario(
        "service-network",
        "a lock service over a file, while replies are lost, requests come late and connections are cut",
        _network,
        {"faults": 10, "unknown outcomes": 10},
    ),
)
