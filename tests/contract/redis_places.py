"""Redis and Valkey as places for the contract suite: one shared server, a namespace of its own for each world."""

import itertools
import os
from collections.abc import Callable
from typing import Any

from leased.stores.redis import open as open_redis
from leased.targets import Options
from leased.testing import Face, Place, World
from tests.contract.real_time import clock_of, moved_world

_numbers = itertools.count()


def redis(face: Face, url: Callable[[], str], *, name: str = "redis") -> Place:
    """The Redis store in real time, on the server at that URL (asked for when a world is opened)."""

    def open_world() -> World:
        prefix = f"{os.getpid()}.{next(_numbers)}"

        def connect(namespace: str) -> Any:
            options = Options(clock=clock_of(face), namespace=f"{prefix}{namespace}")
            return open_redis(url(), face=face.name, options=options)

        return moved_world(face, connect, numbers="key", marks="key")

    return Place(name, face, open_world)
