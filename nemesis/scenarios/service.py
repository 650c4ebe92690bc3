"""A lock service, alone over a file or two replicas behind nginx, broken in all ways: nothing is excused."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from random import Random

from nemesis.history import Recorder
from nemesis.scenarios.redis_network import FAULTS
from nemesis.scenarios.redis_server import pause
from nemesis.stage import Scenario, Stage, broken
from tests.servers import lock_service, nginx, postgres, valkey
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


def _replicas(*services: Server) -> Iterator[Stage]:
    """Two services with an nginx before them that asks the other one where one does not answer."""
    with nginx.start(*services, retries=nginx.REPEATS) as front:
        stalls, crashes = ([partial(fault, one) for one in services] for fault in (_stall, _crash))
        yield Stage(front.url, [*stalls, *crashes, partial(_roll, services)])


@contextmanager
def _on_file() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory() as directory:
        store = f"sqlite:{Path(directory) / 'locks.db'}"
        with lock_service.start(store=store) as one, lock_service.start(store=store) as other:
            yield from _replicas(one, other)


def _on_server(start: Callable[[], Server]) -> Callable[[], AbstractContextManager[Stage]]:
    @contextmanager
    def open_stage() -> Iterator[Stage]:
        with (
            start() as server,
            lock_service.start(store=server.url) as one,
            lock_service.start(store=server.url) as other,
        ):
            yield from _replicas(one, other)

    return open_stage


def _roll(services: Sequence[Server], recorder: Recorder, chance: Random) -> None:
    """An update: one after the other is restarted."""
    with broken(recorder, "restarted one after the other"):
        for server in services:
            server.restart()


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


_FRONT = "behind nginx: paused, killed, restarted one after the other"
_REPLICAS = {"faults": 6}

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
    Scenario("service-sqlite", f"two lock services over one file, {_FRONT}", _on_file, _REPLICAS),
    Scenario(
        "service-redis",
        f"two lock services over a Valkey, {_FRONT}",
        _on_server(lambda: valkey.start(settings=valkey.append_only("always"))),
        _REPLICAS,
    ),
    Scenario(
        "service-postgres",
        f"two lock services over a PostgreSQL, {_FRONT}",
        _on_server(lambda: postgres.start(settings=postgres.DURABLE)),
        _REPLICAS,
    ),
)
