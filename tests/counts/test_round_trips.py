"""How often a pair goes to its server and back, and what the server has to do for it: exact numbers, on real servers.

A round trip is most of what a pair costs. Each bound is what has to be said and answered; none depends on a clock.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median_low
from typing import Any

import pytest

import leased
from leased import aio
from tests.servers.process import Server
from tests.servers.proxy import Proxy

KEYS = 5
CALLERS = 50

TRIPS = {
    "valkey": (2, 2),
    "redis": (2, 2),
    "postgres": (2, 3),
    "wheel_postgres": (2, 3),
    "mariadb": (2, 3),
    "etcd": (2, 3),
    "nats": (2, 4),
    "dynalite": (2, 4),
    "service": (2, 2),
}
"""Round trips of a pair of a key that is new or that this process used last, and of one that another process used last.

One question and one answer for each of both. Where the server cannot decide by itself the store assumes that what it
saw last still stands; if it does not, it has to look and to ask again. On etcd the refusal brings what stands there,
on NATS and DynamoDB that is one more request.
"""

TOGETHER = {"valkey": 4, "postgres": 5, "mariadb": 14, "etcd": 6, "nats": 6, "service": 4}
"""Round trips for fifty pairs that tasks begin at once: the first leaves alone, then all others leave as one, and so do
their releases; a second batch of each forms where answers come in two parts. MariaDB has no statement that grants many
and says which: a batch is a transaction of a few. DynamoDB has no batches, and is not here."""


class _Blocking:
    def __init__(self, url: str) -> None:
        self._locks = leased.connect(url)

    def pair(self, key: str) -> None:
        self._locks.lock(key, owner="counted").acquire().release()

    def close(self) -> None:
        self._locks.close()


class _Async:
    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._locks = aio.connect(url)

    def pair(self, key: str) -> None:
        self._runner.run(self._pair(key))

    def pairs(self, count: int) -> None:
        """So many at once."""

        async def all_of_them() -> None:
            await asyncio.gather(*(self._pair(secrets.token_hex(8)) for _ in range(count)))

        self._runner.run(all_of_them())

    async def _pair(self, key: str) -> None:
        handle = await self._locks.lock(key, owner="counted").acquire()
        await handle.release()

    def close(self) -> None:
        self._runner.run(self._locks.close())
        self._runner.close()


FACES: dict[str, type[_Blocking | _Async]] = {"blocking": _Blocking, "async": _Async}


@contextmanager
def opened(face: str, url: str) -> Iterator[Any]:
    """Locks that have spoken with their server before."""
    locks = FACES[face](url)
    locks.pair("first")
    try:
        yield locks
    finally:
        locks.close()


def within(url: str, namespace: str) -> str:
    """The same store, in a namespace of the test's own."""
    return f"{url}{'&' if '?' in url else '?'}leased_namespace={namespace}"


@pytest.fixture
def way(request: pytest.FixtureRequest, kind: str, proxy_to: Callable[[Server], Proxy]) -> Proxy:
    """A way to the server on which turns are counted."""
    return proxy_to(request.getfixturevalue(f"{kind}_server"))


def turns(way: Proxy, work: Callable[[], object]) -> int:
    """How often a client speaks and its server answers while the work is done."""
    before = way.traffic.turns
    work()
    return way.traffic.turns - before


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("kind", TRIPS)
def test_a_pair_takes_as_many_round_trips_as_it_must(kind: str, face: str, way: Proxy) -> None:
    """Acquire and release are one round trip each; a key that somebody else used meanwhile takes more where the server
    cannot decide alone. What most pairs took counts: now and then one also asks for the time."""
    url, mine, theirs = within(way.url, secrets.token_hex(8)), [], []
    with opened(face, url) as locks, opened("blocking", url) as others:
        for number in range(KEYS):
            mine.append(turns(way, partial(locks.pair, f"mine-{number}")))
            mine.append(turns(way, partial(locks.pair, f"mine-{number}")))
            others.pair(f"theirs-{number}")
            theirs.append(turns(way, partial(locks.pair, f"theirs-{number}")))
    assert (median_low(mine), median_low(theirs)) == TRIPS[kind], (mine, theirs)


@pytest.mark.parametrize("kind", TOGETHER)
def test_fifty_callers_leave_as_a_few_batches(kind: str, way: Proxy) -> None:
    """What tasks of a loop ask at once goes together: fifty pairs take hardly more round trips than one."""
    with opened("async", within(way.url, secrets.token_hex(8))) as locks:
        locks.pairs(CALLERS)  # the connection grows what it needs
        found = [turns(way, lambda: locks.pairs(CALLERS)) for _ in range(3)]
    assert min(found) <= TOGETHER[kind], found
