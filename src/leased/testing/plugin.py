"""The pytest plugin: a memory store of its own for each test, as the process default, on a clock that the test moves.

| fixture | what it gives |
| --- | --- |
| `leased_memory` | blocking locks; `leased.lock(…)` and `leased.aio.lock(…)` use the same store inside the test |
| `leased_aio_memory` | the same locks for asyncio |
| `leased_clock` | the clock of both; `leased_clock.move(31)` lets 31 seconds pass at once |

With `leased_memory = true` in the ini file every test has them without asking. It imports nothing but pytest before a
test uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import leased
    import leased.aio
    from leased.testing.clocks import MovableClock


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option in the ini file."""
    parser.addini(
        "leased_memory",
        "give every test a memory store of its own as the default of leased.lock() and leased.aio.lock()",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the fixture that every test uses, only where it was asked for."""
    if config.getini("leased_memory"):
        config.pluginmanager.register(_EveryTest(), "leased-memory-for-every-test")


class _EveryTest:
    @pytest.fixture(autouse=True)
    def _leased_memory_for_every_test(self, leased_memory: leased.Locks) -> None:
        """Uses `leased_memory`."""


@pytest.fixture
def leased_clock() -> MovableClock:
    """The time of this test's locks: it goes on by itself, and `move(seconds)` lets more of it pass at once."""
    from leased.testing.clocks import MovableClock

    return MovableClock()


@pytest.fixture
def _leased_pair(leased_clock: MovableClock) -> Iterator[tuple[leased.Locks, leased.aio.Locks]]:
    """The locks of both faces on one new memory store, each the default of its face until the test is over."""
    import leased
    import leased.aio
    from leased.clocks import step
    from leased.stores.memory import MemoryStore

    store = MemoryStore(leased_clock)
    blocking = leased.connect(store, clock=leased_clock)
    for_loop = leased.aio.connect(store, clock=leased_clock.for_loop())
    with leased.using_default(blocking), leased.aio.using_default(for_loop):
        yield blocking, for_loop
    step(for_loop.close())
    blocking.close()


@pytest.fixture
def leased_memory(_leased_pair: tuple[leased.Locks, leased.aio.Locks]) -> leased.Locks:
    """Locks in a memory store of this test's own; also the default of `leased.lock()` and `leased.aio.lock()`."""
    return _leased_pair[0]


@pytest.fixture
def leased_aio_memory(_leased_pair: tuple[leased.Locks, leased.aio.Locks]) -> leased.aio.Locks:
    """The locks of `leased_memory` for asyncio."""
    return _leased_pair[1]
