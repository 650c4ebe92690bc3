"""Callers of one store, blocking and in an event loop, for tests that are written once for both faces and any store."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock
from leased.model import Claim, Held
from leased.store import Store
from leased.targets import Options
from leased.testing.worlds import Driver, Face

S = TypeVar("S", bound=Store)
T = TypeVar("T")
TIMEOUT = 5.0


class Caller(Generic[S]):
    """Opens stores and runs their coroutines, from one thread or in one loop."""

    def __init__(self, face: Face, driver: Driver, *, open_store: Callable[..., S], token: str) -> None:
        self.face = face
        self.driver = driver
        self.stores: list[S] = []
        self.events: list[Any] = []
        self._open_store = open_store
        self._token = token

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work to its end."""
        return self.driver.run(work)

    def open(self, url: str, **options: Any) -> S:
        """A store, closed at the end of the test."""
        clock = BlockingClock() if self.face.name == "blocking" else LoopClock()
        asked = Options(clock=clock, observer=self.events.append, **options)
        store = self._open_store(url, face=self.face.name, options=asked)
        self.stores.append(store)
        return store

    def take(self, store: S, key: str, token: str | None = None, **more: Any) -> int:
        """Acquire, which must succeed; the fencing token."""
        claim = Claim(key, token or self._token, more.pop("ttl", 30.0), **more)
        found = self(store.acquire(claim, timeout=TIMEOUT))
        assert isinstance(found, Held), found
        return found.lease.fencing_token


@contextmanager
def calling(face: Face, *, open_store: Callable[..., S], token: str) -> Iterator[Caller[S]]:
    """A caller, and its stores, until the block ends. `open_store` takes a URL, a `face` and `options`, as the function
    `open` of a store's module does; `token` is what claims have unless told otherwise."""
    driver = face.driver()
    made = Caller(face, driver, open_store=open_store, token=token)
    try:
        yield made
        for store in made.stores:
            made(store.close())
    finally:
        driver.close()
