"""NATS as a place for the contract suite: one shared server, a namespace of its own for each world."""

import itertools
import os
from collections.abc import Callable
from typing import Any

from leased.stores.nats import open as open_nats
from leased.targets import Options
from leased.testing import Face, Place, World
from tests.contract.real_time import clock_of, moved_world

_numbers = itertools.count()


def nats(face: Face, url: Callable[[], str], *, name: str = "nats") -> Place:
    """The NATS store in real time, on that server (asked for when a world is opened); its clients have one clock."""

    def open_world() -> World:
        prefix = f"{os.getpid()}.{next(_numbers)}."

        def connect(namespace: str) -> Any:
            options = Options(clock=clock_of(face), namespace=f"{prefix}{namespace}", skew_margin=0.0)
            return open_nats(url(), face=face.name, options=options)

        return moved_world(face, connect, numbers="key", marks="key")

    return Place(name, face, open_world)
