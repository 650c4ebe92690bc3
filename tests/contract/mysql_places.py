"""The MySQL store in real time, moved by its `offset`: each world has tables of its own on a server that runs."""

import itertools
import os
from collections.abc import Callable
from typing import Any

import pymysql

from leased.stores import mysql as store
from leased.stores._mysql_place import place
from leased.targets import Options
from leased.testing import Face, Place, World
from tests.contract.real_time import clock_of, moved_world

_numbers = itertools.count()


def mysql(face: Face, url: Callable[[], str]) -> Place:
    """The store on the server at this URL, which is asked for when a world is opened."""

    def open_world() -> World:
        table = f"w{os.getpid()}_{next(_numbers)}"
        names = [f"{table}_record", f"{table}_mark"]
        address = url()
        admin = Admin(address)

        def connect(namespace: str) -> Any:
            options = Options(clock=clock_of(face), namespace=namespace, own={"table": table})
            return store.open(address, face=face.name, options=options)

        def size() -> int:
            if not admin.run(f"SHOW TABLES LIKE '{names[0]}'"):
                return 0
            return sum(int(admin.run(f"SELECT COUNT(*) FROM {name}")[0][0]) for name in names)

        def end() -> None:
            admin.run(f"DROP TABLE IF EXISTS {', '.join(names)}")
            admin.close()

        return moved_world(face, connect, unit=30.0, numbers="key", size=size, end=end)

    return Place("mysql", face, open_world)


class Admin:
    """Somebody who asks the server in plain SQL, on one connection."""

    def __init__(self, url: str) -> None:
        """On the server and in the database of this URL."""
        where = place(url)
        self._connection: Any = pymysql.connect(
            host=where.host,
            port=where.port,
            user=where.user,
            password=where.password,
            database=where.database,
            autocommit=True,
            ssl_disabled=True,
        )

    def run(self, statement: str) -> tuple[tuple[Any, ...], ...]:
        """What the server answers to one statement, which is committed."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return tuple(cursor.fetchall())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
