"""The built-in stores on the real clock, moved by their `offset`: the only way for stores that run elsewhere."""

import os
import tempfile
from pathlib import Path
from typing import Any

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock, now
from leased.stores._threaded import ThreadedStore
from leased.stores.memory import MemoryStore
from leased.stores.sqlite import SqliteStore
from leased.testing import Face, Place, World

QUICK = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""A directory in memory, where there is one: nothing in these worlds has to survive."""


def memory(face: Face) -> Place:
    """The memory store in real time."""

    def open_world() -> World:
        stores: dict[str, Any] = {}
        return moved_world(
            face, lambda namespace: stores.setdefault(namespace, MemoryStore(BlockingClock())), lasting=False
        )

    return Place("memory-in-real-time", face, open_world)


def sqlite(face: Face) -> Place:
    """The SQLite store in real time."""

    def open_world() -> World:
        directory = tempfile.TemporaryDirectory(dir=QUICK)
        path = str(Path(directory.name) / "locks.db")

        def connect(namespace: str) -> Any:
            store = SqliteStore(path, namespace=namespace)
            return store if face.name == "blocking" else ThreadedStore(store)

        return moved_world(face, connect, end=directory.cleanup)

    return Place("sqlite-in-real-time", face, open_world)


def clock_of(face: Face) -> Any:
    """The clock that `connect` would give a store for this face."""
    return BlockingClock() if face.name == "blocking" else LoopClock()


def moved_world(face: Face, connect: Any, **more: Any) -> World:
    """A world whose `move` changes the offset of all its clients, later ones included."""
    clients: list[Any] = []
    moved = 0.0

    def connect_moved(namespace: str) -> Any:
        client = connect(namespace)
        client.offset = moved
        clients.append(client)
        return client

    def move(seconds: float) -> None:
        nonlocal moved
        moved += seconds
        for client in clients:
            client.offset = moved

    return World(face=face, connect=connect_moved, move=move, now=lambda: now() + moved, **more)
