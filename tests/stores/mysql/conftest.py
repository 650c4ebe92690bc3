"""Databases of one test each on the shared MariaDB, and sessions there on both faces."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from leased.stores._mysql_async import open_async_link
from leased.stores._mysql_link import open_link
from leased.stores._mysql_place import Place, place
from leased.testing.worlds import Async, Blocking, Driver, Face
from tests.contract.mysql_places import Admin
from tests.servers.process import Server

FACES: tuple[Face, ...] = (Blocking(), Async())

Open: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Database:
    """An empty database, and somebody who may do everything there."""

    server: Server
    name: str

    @property
    def url(self) -> str:
        """What `leased.connect` takes."""
        return f"{self.server.url.rpartition('/')[0]}/{self.name}"

    @property
    def place(self) -> Place:
        """The URL, read."""
        return place(self.url)

    def run(self, statement: str) -> tuple[tuple[Any, ...], ...]:
        """What the server answers to a statement, on a connection of its own."""
        with closing(Admin(self.url)) as admin:
            return admin.run(statement)


@pytest.fixture
def database(mariadb_server: Server) -> Iterator[Database]:
    """An empty database; it goes when the test ends."""
    found = Database(mariadb_server, f"test_{secrets.token_hex(6)}")
    with closing(Admin(mariadb_server.url)) as admin:
        admin.run(f"CREATE DATABASE {found.name}")
        yield found
        admin.run(f"DROP DATABASE {found.name}")


@pytest.fixture(params=FACES, ids=lambda face: face.name)
def face(request: pytest.FixtureRequest) -> Face:
    """Blocking callers, and an event loop."""
    found: Face = request.param
    return found


@pytest.fixture
def driver(face: Face) -> Iterator[Driver]:
    """What runs the coroutines of this face."""
    found = face.driver()
    yield found
    found.close()


@pytest.fixture
def open_here(face: Face) -> Open:
    """How this face opens a link."""
    return open_link if face.name == "blocking" else open_async_link
