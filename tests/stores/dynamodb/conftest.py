"""Both faces, and stores on the shared servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from leased.stores import dynamodb
from leased.targets import Options, read_url
from leased.testing.worlds import Async, Blocking, Driver, Face
from tests.contract.real_time import clock_of

FACES: tuple[Face, ...] = (Blocking(), Async())


def open_read(url: str, *, face: Literal["blocking", "async"], options: Options) -> Any:
    """As `connect` opens it: with the parameters of the URL read."""
    target = read_url(url, options)
    return dynamodb.open(target.url, face=face, options=target.options)


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
def make(face: Face, driver: Driver) -> Iterator[Callable[..., Any]]:
    """Opens stores of this face at a URL; they are closed at the end."""
    made: list[Any] = []

    def make_store(url: str, **more: Any) -> Any:
        target = read_url(url, Options(clock=clock_of(face)), **more)
        made.append(dynamodb.open(target.url, face=face.name, options=target.options))
        return made[-1]

    yield make_store
    for store in made:
        driver.run(store.close())
