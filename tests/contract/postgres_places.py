"""The PostgreSQL store in real time, moved by its `offset`: each world has tables of its own on a server that runs."""

import itertools
import os
from collections.abc import Callable
from typing import Any

from leased.stores import postgres as store
from leased.targets import Options
from leased.testing import Face, Place, World
from tests.contract.real_time import clock_of, moved_world

_numbers = itertools.count()


def postgres(face: Face, url: Callable[[], str]) -> Place:
    """The store on the server at this URL, which is asked for when a world is opened."""

    def open_world() -> World:
        import psycopg

        table = f"w{os.getpid()}_{next(_numbers)}"
        names = [f"{table}_record", f"{table}_mark"]
        address = url()

        def connect(namespace: str) -> Any:
            options = Options(clock=clock_of(face), namespace=namespace, own={"table": table})
            return store.open(address, face=face.name, options=options)

        def size() -> int:
            with psycopg.connect(address, autocommit=True) as connection:
                if connection.execute("SELECT to_regclass(%s)", [f"{table}_record"]).fetchone() == (None,):
                    return 0
                rows = [connection.execute(f"SELECT count(*) FROM {name}".encode()).fetchone() for name in names]
            return sum(row[0] for row in rows if row)

        def end() -> None:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f"DROP TABLE IF EXISTS {', '.join(names)}".encode())

        return moved_world(face, connect, numbers="key", size=size, end=end)

    return Place("postgres", face, open_world)
