"""The DynamoDB store in real time, moved by its `offset`: one table, a namespace of its own for each world."""

import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

from leased.stores import dynamodb as store
from leased.targets import Options, read_url
from leased.testing import Face, Place, World
from tests.contract.real_time import clock_of, moved_world
from tests.servers import dynamodb as servers
from tests.servers.process import Server

_numbers = itertools.count()


def dynamodb(face: Face, server: Callable[[], Server]) -> Place:
    """The store on that server, which is asked for when a world is opened; all clients share one clock."""

    def open_world() -> World:
        prefix = f"{os.getpid()}.{next(_numbers)}"
        made: list[Any] = []

        def connect(namespace: str) -> Any:
            options = Options(clock=clock_of(face), namespace=f"{prefix}{namespace}", skew_margin=0.0)
            target = read_url(server().url, options)
            made.append(store.open(target.url, face=face.name, options=target.options))
            return made[-1]

        def size() -> int:
            """What stays once DynamoDB has removed what is over, as it does by itself some time later."""
            now = time.time() + made[0].offset
            mine = [item for item in servers.rows(server()) if item["namespace"]["S"].startswith(f"leased:{prefix}")]
            kept = [item for item in mine if float(item["forgetAt"]["N"]) > now]
            return sum(1 + len(json.loads(item["value"]["S"]).get("ended", {})) for item in kept)

        return moved_world(face, connect, numbers="key", marks="key", size=size, unit=30.0)

    return Place("dynamodb", face, open_world)
