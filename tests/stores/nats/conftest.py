"""Callers of the NATS store, blocking and in an event loop, for tests that are written once for both."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from leased.stores._cas_store import CasStore
from leased.stores.nats import open as open_nats
from leased.targets import Options, read_url
from leased.testing.worlds import Async, Blocking
from tests.stores import callers

TIMEOUT = callers.TIMEOUT
TOKEN = "0123456789abcdef"
Caller: TypeAlias = callers.Caller[CasStore]


def open_read(url: str, *, face: Any, options: Options) -> CasStore:
    """A store at a URL that may have options of its own."""
    target = read_url(url, options)
    return open_nats(target.url, face=face, options=target.options)


@pytest.fixture(params=[Blocking(), Async()], ids=lambda face: face.name)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    """A caller of either kind."""
    with callers.calling(request.param, open_store=open_read, token=TOKEN) as made:
        yield made
