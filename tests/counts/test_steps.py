"""How much Python a pair takes: byte codes, calls and bytes. No clock is asked, so that a busy machine changes nothing.

The bounds are some ten per cent above what was counted when they were set. Who makes a pair cheaper lowers its bound;
who has to raise one says in the commit what is bought with it.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import leased
from bench.counting import Work, bytes_kept, most_bytes, steps
from leased import aio
from tests.servers.process import Server

PAIRS = 10
TASKS = 50
WARM = 10

Pairs = Callable[[int], Work]


@contextmanager
def blocking(url: str) -> Iterator[Pairs]:
    """Bare handles, with a new recipe for each."""
    numbers = itertools.count()
    with leased.connect(url) as locks:

        def pairs(count: int) -> Work:
            def work() -> None:
                for number in itertools.islice(numbers, count):
                    locks.lock(f"key-{number:06}", owner="counted").acquire().release()

            return work

        yield pairs


@contextmanager
def block(url: str) -> Iterator[Pairs]:
    """The same as blocks, which are renewed by default."""
    numbers = itertools.count()
    with leased.connect(url) as locks:

        def pairs(count: int) -> Work:
            def work() -> None:
                for number in itertools.islice(numbers, count):
                    with locks.lock(f"key-{number:06}", owner="counted"):
                        pass

            return work

        yield pairs


@contextmanager
def asynchronous(url: str) -> Iterator[Pairs]:
    """One task; what the loop does for it counts."""
    numbers = itertools.count()
    with asyncio.Runner() as runner:
        locks = aio.connect(url)

        async def work(count: int) -> None:
            for number in itertools.islice(numbers, count):
                handle = await locks.lock(f"key-{number:06}", owner="counted").acquire()
                await handle.release()

        yield lambda count: lambda: runner.run(work(count))
        runner.run(locks.close())


@contextmanager
def together(url: str) -> Iterator[Pairs]:
    """Fifty tasks at once, by which a pair becomes cheaper."""
    numbers = itertools.count()
    with asyncio.Runner() as runner:
        locks = aio.connect(url)

        async def one(number: int, count: int) -> None:
            for at in range(count):
                handle = await locks.lock(f"key-{number:06}-{at:06}", owner="counted").acquire()
                await handle.release()

        async def work(count: int) -> None:
            await asyncio.gather(*(one(next(numbers), count) for _ in range(TASKS)))

        yield lambda count: lambda: runner.run(work(max(count // 4, 1)))
        runner.run(locks.close())


FACES = {"blocking": blocking, "block": block, "asynchronous": asynchronous, "together": together}

COUNTED: dict[str, dict[str, tuple[int, int]]] = {
    "memory": {"blocking": (1612, 57), "block": (2500, 99), "asynchronous": (1792, 64), "together": (1842, 67)},
    "sqlite": {"blocking": (3611, 143), "block": (4499, 185), "asynchronous": (3588, 151), "together": (2500, 110)},
    "valkey": {"blocking": (2265, 76), "block": (3164, 118), "asynchronous": (3802, 153), "together": (2720, 118)},
    "postgres": {"blocking": (2760, 100), "block": (3834, 149), "asynchronous": (5268, 239), "together": (2913, 125)},
    "service": {"blocking": (4500, 157), "block": (5388, 199), "asynchronous": (6484, 263), "together": (3474, 142)},
}
"""Byte codes (of CPython 3.11) and calls of Python functions for a pair, as counted on 30 November 2026."""
ROOM = 1.1

MOST_BYTES = {"blocking": 2_600, "block": 3_700, "asynchronous": 4_900}
"""What one pair in memory has allocated at the most, at one moment."""

KEPT_BYTES = 2_400
"""A handle that is held: its recipe, its hold, its claim, what renews it, and its record in the store."""


@pytest.fixture(params=COUNTED)
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """A store of its own for each test, whose server starts with the first."""
    if request.param == "memory":
        return f"memory:{secrets.token_hex(8)}"
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/locks.db"
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return f"{server.url}{'&' if '?' in server.url else '?'}leased_namespace={secrets.token_hex(8)}"


@pytest.mark.parametrize("face", FACES)
def test_a_pair_takes_no_more_steps(url: str, face: str, request: pytest.FixtureRequest) -> None:
    """A pair of a new key executes no more byte codes, and calls no more functions, than when it was last counted.

    The least of three counts: now and then one pair does what is done for many, such as looking at the clock of a
    server.
    """
    codes, calls = COUNTED[request.node.callspec.params["url"]][face]
    number = PAIRS // 4 * TASKS if face == "together" else PAIRS
    with FACES[face](url) as pairs:
        pairs(WARM)()
        counted = [steps(pairs(PAIRS)) for _ in range(3)]
    found = min(one.calls.total() / number for one in counted)
    assert found <= calls * ROOM, f"calls: {counted[0].calls.most_common(20)}"
    if sys.version_info[:2] == (3, 11):  # every version of Python has byte codes of its own
        found = min(one.total / number for one in counted)
        assert found <= codes * ROOM, f"byte codes: {counted[0].codes.most_common(20)}"


@pytest.mark.parametrize("face", MOST_BYTES)
def test_a_pair_in_memory_allocates_little(face: str) -> None:
    """What one pair allocates fits in a few kilobytes; that it leaves nothing is another test's (C180)."""
    with FACES[face](f"memory:{secrets.token_hex(8)}") as pairs:
        pairs(WARM)()
        assert min(most_bytes(pairs(1)) for _ in range(3)) <= MOST_BYTES[face] * ROOM


def test_a_held_lease_keeps_little() -> None:
    """A held and renewed handle keeps a few kilobytes in its process, its record in memory included."""
    with leased.connect(f"memory:{secrets.token_hex(8)}") as locks:
        held: list[leased.Handle] = []

        def hold(number: int) -> None:
            held.append(locks.lock(f"key-{number:06}", owner="counted", ttl=3_600, renew=True).acquire())

        assert bytes_kept(hold, count=2_000) <= KEPT_BYTES * ROOM
        for handle in held:
            handle.release()
