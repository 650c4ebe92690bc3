"""The contract of stores on SQLite files, in both journal modes and through both faces."""

import tempfile
from itertools import product
from pathlib import Path

import pytest

from leased.store import Store
from leased.stores._sqlite_driver import Driver
from leased.stores._threaded import ThreadedStore
from leased.stores.sqlite import SqliteStore
from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Async, Blocking, Face, Place, World
from tests.stores.sqlite.conftest import libraries


def sqlite_place(face: Face, library: Driver) -> Place:
    """A new file for each world, and clients that are stores of their own on it."""

    def open_world() -> World:
        folder = tempfile.TemporaryDirectory()
        clients: list[SqliteStore | ThreadedStore] = []
        moved = 0.0

        def connect(namespace: str) -> Store:
            store: SqliteStore | ThreadedStore
            store = SqliteStore(str(Path(folder.name) / "locks.db"), namespace=namespace, library=library)
            if face.name == "async":
                store = ThreadedStore(store)
            store.offset = moved
            clients.append(store)
            return store

        def move(seconds: float) -> None:
            nonlocal moved
            moved += seconds
            for client in clients:
                client.offset = moved

        return World(face=face, connect=connect, move=move, end=folder.cleanup)

    return Place(f"sqlite-{library.name}", face, open_world)


FACES: tuple[Face, ...] = (Blocking(), Async())


@pytest.mark.parametrize("place", [sqlite_place(*pair) for pair in product(FACES, libraries())], ids=str)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Check, place: Place) -> None:
    """The store keeps this promise of the contract."""
    result = run_check(check, place)
    if result.error:
        raise result.error
    assert result.outcome == "passed", result.message
