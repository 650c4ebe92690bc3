"""The PostgreSQL store in real time, moved by its `offset`: each world has tables of its own on a server that runs."""

import itertools
import os
from collections.abc import Callable
from typing import Any

from leased.clocks import BlockingClock, now
from leased.stores import postgres as store
from leased.targets import Options
from leased.testing import Face, Place, World

_numbers = itertools.count()


def postgres(face: Face, url: Callable[[], str]) -> Place:
    """The store on the server at this URL, which is asked for when a world is opened."""

    def open_world() -> World:
        import psycopg

        table = f"w{os.getpid()}_{next(_numbers)}"
        names = [f"{table}_record", f"{table}_mark"]
        address = url()
        clients: list[Any] = []
        moved = 0.0

        def connect(namespace: str) -> Any:
            options = Options(clock=clock_of(face), namespace=namespace, own={"table": table})
            client = store.open(address, face=face.name, options=options)
            client.offset = moved
            clients.append(client)
            return client

        def move(seconds: float) -> None:
            nonlocal moved
            moved += seconds
            for client in clients:
                client.offset = moved

        def size() -> int:
            with psycopg.connect(address, autocommit=True) as connection:
                if connection.execute("SELECT to_regclass(%s)", [f"{table}_record"]).fetchone() == (None,):
                    return 0
                rows = [connection.execute(f"SELECT count(*) FROM {name}".encode()).fetchone() for name in names]
            return sum(row[0] for row in rows if row)

        def end() -> None:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f"DROP TABLE IF EXISTS {', '.join(names)}".encode())

        return World(
            face=face, connect=connect, move=move, now=lambda: now() + moved, numbers="key", size=size, end=end
        )

    return Place("postgres", face, open_world)


def clock_of(face: Face) -> Any:
    """The clock that `connect` would give such a store."""
    if face.name == "blocking":
        return BlockingClock()
    from leased.aio_clock import LoopClock

    return LoopClock()
