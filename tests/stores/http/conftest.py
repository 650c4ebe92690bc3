"""Callers of the store over HTTP, blocking and in an event loop, for tests that are written once for both."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest

from leased.clocks import BlockingClock
from leased.stores.http import HttpStore
from leased.stores.http import open as open_http
from leased.targets import Options, read_url
from leased.testing.worlds import Async, Blocking
from tests.server.running import Running, running
from tests.stores import callers
from tests.stores.http.peers import Behaviour, Peer

TIMEOUT = callers.TIMEOUT
TOKEN = "0123456789abcdef"
Caller: TypeAlias = callers.Caller[HttpStore]


def open_read(url: str, *, face: Any, options: Options) -> HttpStore:
    """A store at a URL that may have options of its own."""
    target = read_url(url, options)
    return open_http(target.url, face=face, options=target.options)


@pytest.fixture(params=[Blocking(), Async()], ids=lambda face: face.name)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    """A caller of either kind."""
    with callers.calling(request.param, open_store=open_read, token=TOKEN) as made:
        yield made


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
