"""Databases of one test each on the shared MariaDB, and sessions there on both faces."""

from __future__ import annotations

import itertools
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from leased.model import Claim
from leased.stores import mysql
from leased.stores._mysql_async import open_async_link
from leased.stores._mysql_link import open_link
from leased.stores._mysql_place import Place, place
from leased.targets import Options
from leased.testing.worlds import Async, Blocking, Driver, Face
from tests.contract.mysql_places import Admin
from tests.contract.real_time import clock_of
from tests.servers.process import Server

FACES: tuple[Face, ...] = (Blocking(), Async())

Open: TypeAlias = Callable[..., Any]
Make: TypeAlias = Callable[..., Any]
_numbers = itertools.count()


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


@pytest.fixture
def make(face: Face, driver: Driver) -> Iterator[Make]:
    """Opens stores of this face at a URL; they are closed at the end."""
    made: list[Any] = []

    def make_store(url: str, *, namespace: str = "", own: dict[str, str] | None = None, **more: Any) -> Any:
        options = Options(clock=clock_of(face), namespace=namespace, own=own or {}, **more)
        made.append(mysql.open(url, face=face.name, options=options))
        return made[-1]

    yield make_store
    for store in made:
        driver.run(store.close())


def resolve(monkeypatch: pytest.MonkeyPatch, name: str, addresses: list[str]) -> None:
    """Let this name of a host lead to these addresses, in this order."""
    plain = socket.getaddrinfo

    def look_up(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        hosts = addresses if host == name else [host]
        return [entry for one in hosts for entry in plain(one, port, *more, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def claim(key: str, *, token: str = "", ttl: float = 30.0, **more: Any) -> Claim:
    """A claim with a token of its own."""
    return Claim(key, token or f"token-{next(_numbers)}", ttl, **more)
