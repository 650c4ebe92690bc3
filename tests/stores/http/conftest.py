"""Callers of the store over HTTP, blocking and in an event loop, for tests that are written once for both."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock
from leased.model import Claim, Held
from leased.stores.http import HttpStore
from leased.stores.http import open as open_http
from leased.targets import Options, read_url
from leased.testing.worlds import Async, Blocking, Driver, Face
from tests.server.running import Running, running
from tests.stores.http.peers import Behaviour, Peer

T = TypeVar("T")
TIMEOUT = 5.0
TOKEN = "0123456789abcdef"


class Caller:
    """Opens stores and runs their coroutines, from one thread or in one loop."""

    def __init__(self, face: Face, driver: Driver) -> None:
        self.face = face
        self.driver = driver
        self.stores: list[HttpStore] = []
        self.events: list[Any] = []

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work to its end."""
        return self.driver.run(work)

    def open(self, url: str, **options: Any) -> HttpStore:
        """A store, closed at the end of the test; the URL may have options of its own."""
        clock = BlockingClock() if self.face.name == "blocking" else LoopClock()
        target = read_url(url, Options(clock, observer=self.events.append), **options)
        store = open_http(target.url, face=self.face.name, options=target.options)
        self.stores.append(store)
        return store

    def take(self, store: HttpStore, key: str, token: str = TOKEN, **more: Any) -> int:
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


@pytest.fixture
def service() -> Iterator[Running]:
    """A service of this test alone, over a memory of its own."""
    from leased.stores.memory import MemoryStore

    with running(MemoryStore(BlockingClock())) as found:
        yield found


@pytest.fixture
def peer(closing: ExitStack) -> Callable[[Behaviour], Peer]:
    """Somebody else who listens where a service should, and behaves as told."""
    return lambda behaviour: closing.enter_context(Peer(behaviour))
