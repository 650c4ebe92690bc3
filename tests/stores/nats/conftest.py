"""Callers of the NATS store, blocking and in an event loop, for tests that are written once for both."""

from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock
from leased.model import Claim, Held
from leased.stores._cas_store import CasStore
from leased.stores.nats import open as open_nats
from leased.targets import Options
from leased.testing.worlds import Async, Blocking, Driver, Face

T = TypeVar("T")
TIMEOUT = 5.0


class Caller:
    """Opens stores and runs their coroutines, from one thread or in one loop."""

    def __init__(self, face: Face, driver: Driver) -> None:
        self.face = face
        self.driver = driver
        self.stores: list[CasStore] = []
        self.events: list[Any] = []

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work to its end."""
        return self.driver.run(work)

    def open(self, url: str, **options: Any) -> CasStore:
        """A store, closed at the end of the test."""
        clock = BlockingClock() if self.face.name == "blocking" else LoopClock()
        asked = Options(clock=clock, observer=self.events.append, **options)
        store = open_nats(url, face=self.face.name, options=asked)
        self.stores.append(store)
        return store

    def take(self, store: CasStore, key: str, token: str = "token", **more: Any) -> int:
        """Acquire, which must succeed; the fencing token."""
        found = self(store.acquire(Claim(key, token, more.pop("ttl", 30.0), **more), timeout=TIMEOUT))
        assert isinstance(found, Held), found
        return found.lease.fencing_token


@pytest.fixture(params=[Blocking(), Async()], ids=lambda face: face.name)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    """A caller of either kind."""
    face: Face = request.param
    driver = face.driver()
    made = Caller(face, driver)
    try:
        yield made
        for store in made.stores:
            made(store.close())
    finally:
        driver.close()
