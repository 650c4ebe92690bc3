"""Callers of the Redis store, blocking and in an event loop, for tests that are written once for both."""

from collections.abc import Iterator
from typing import TypeAlias

import pytest

from leased.stores.redis import RedisStore
from leased.stores.redis import open as open_redis
from leased.testing.worlds import Async, Blocking
from tests.stores import callers

TIMEOUT = callers.TIMEOUT
TOKEN = "token"
Caller: TypeAlias = callers.Caller[RedisStore]


@pytest.fixture(params=[Blocking(), Async()], ids=lambda face: face.name)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    """A caller of either kind."""
    with callers.calling(request.param, open_store=open_redis, token=TOKEN) as made:
        yield made
