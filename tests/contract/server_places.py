"""Redis and Valkey as places for the contract suite: one shared server, a namespace of its own for each world."""

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock
from leased.stores.redis import RedisStore
from leased.stores.redis import open as open_redis
from leased.targets import Options
from leased.testing import Face, Place, World

_numbers = itertools.count()


def redis(face: Face, url: Callable[[], str], *, name: str = "redis") -> Place:
    """The Redis store in real time, on the server at that URL (asked for when a world is opened)."""

    def open_world() -> World:
        clients: list[RedisStore] = []
        moved = 0.0
        prefix = f"{os.getpid()}.{next(_numbers)}"

        def connect(namespace: str) -> Any:
            clock = BlockingClock() if face.name == "blocking" else LoopClock()
            options = Options(clock=clock, namespace=f"{prefix}{namespace}")
            client = open_redis(url(), face=face.name, options=options)
            client.offset = moved
            clients.append(client)
            return client

        def move(seconds: float) -> None:
            nonlocal moved
            moved += seconds
            for client in clients:
                client.offset = moved

        return World(
            face=face, connect=connect, move=move, now=lambda: time.monotonic() + moved, numbers="key", marks="key"
        )

    return Place(name, face, open_world)
