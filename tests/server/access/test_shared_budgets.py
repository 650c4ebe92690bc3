"""Budgets on a shelf that replicas share: never more than promised over all of them, whatever their clocks say."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leased.server import registry_postgres
from leased.server.limits import Budget
from leased.server.usage import SharedUsage, Use, use_of
from tests.server.access.registries import SHARED, Opener, emptied, opener, shared_registry
from tests.servers.moving_clock import MovingClock
from tests.servers.process import Server

SLOW = Budget(10, 3600.0)


@pytest.fixture(params=SHARED)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """An empty registry that replicas can share."""
    return opener(request.param, request, directory=tmp_path)


@asynccontextmanager
async def shelves(place: Opener, count: int) -> AsyncIterator[list[Any]]:
    """As many replicas' views of one shelf."""
    found = [place() for _ in range(count)]
    try:
        yield found
    finally:
        for one in found:
            await one.close()


async def test_all_replicas_together_get_one_budget(place: Opener) -> None:
    """R1, SEC6: of many who come at once, at any replica, as many pass as may come at once, and no more."""
    async with shelves(place, 3) as found:
        takes = [found[number % 3].take([use_of("p", SLOW, count=1)]) for number in range(60)]
        late = [one[0] for one in await asyncio.gather(*takes)]
        assert late.count(0) == 10
        step = 360_000_000
        assert all(0 < one <= step for one in late if one)


async def test_no_window_holds_more_than_burst_and_rate(place: Opener) -> None:
    """SEC6: over all replicas, while the budget refills, no more than burst + rate * t pass in the time they took."""
    budget = Budget(200, 1.0, burst=5)
    async with shelves(place, 2) as found:
        for shelf in found:
            await shelf.take([use_of("warm", budget, count=1)])
        began, passed = time.monotonic(), 0
        while time.monotonic() - began < 0.3:
            takes = [shelf.take([use_of("p", budget, count=1)]) for shelf in found for _ in range(4)]
            passed += sum(one[0] == 0 for one in await asyncio.gather(*takes))
        took = time.monotonic() - began
        assert 5 < passed <= 5 + 200 * took


async def test_two_budgets_are_used_both_or_neither(place: Opener) -> None:
    """R2: what one of two budgets refuses uses nothing of the other, and which one it was is told."""
    async with shelves(place, 1) as (shelf,):
        wide, narrow = Budget(10, 3600.0), Budget(2, 3600.0)
        both = [use_of("project", wide, count=1), use_of("member", narrow, count=1)]
        assert [list(await shelf.take(both)) == [0, 0] for _ in range(2)] == [True, True]
        for _ in range(20):
            first, second = await shelf.take(both)
            assert (first, second > 0) == (0, True)
        assert list(await shelf.take([use_of("project", wide, count=8)])) == [0]
        first, second = await shelf.take([use_of("project", wide, count=1), use_of("other", narrow, count=1)])
        assert (first > 0, second) == (True, 0)
        assert list(await shelf.take([use_of("other", narrow, count=2)])) == [0]


async def test_the_advice_when_to_come_again_is_right(place: Opener) -> None:
    """R2: after that time the same request passes."""
    async with shelves(place, 1) as (shelf,):
        use = use_of("p", Budget(10, 1.0, burst=1), count=1)
        assert list(await shelf.take([use])) == [0]
        (late,) = await shelf.take([use])
        assert 0 < late <= 100_000
        await asyncio.sleep(late / 1_000_000)
        assert list(await shelf.take([use])) == [0]


async def test_what_is_never_refused_leaves_a_debt_of_one_budget_at_most(place: Opener) -> None:
    """R2: releases are counted, but however many they are, the name is heard again after the usual time."""
    async with shelves(place, 2) as (one, other):
        await one.spend([use_of("p", SLOW, count=4), use_of("q", SLOW, count=10_000)])
        assert list(await other.take([use_of("p", SLOW, count=7)])) != [0]
        assert list(await other.take([use_of("p", SLOW, count=6)])) == [0]
        await other.spend([use_of("p", SLOW, count=10_000)])
        for name in ("p", "q"):
            (late,) = await one.take([use_of(name, SLOW, count=1)])
            assert 359_000_000 < late <= 360_000_000


async def test_names_may_be_anything(place: Opener) -> None:
    """SEC11: whatever an issuer of tokens calls its members, each has a budget of his own."""
    names = ["a", "A", "a ", "\u2603", "\ud800", "\x00", "%s", "'; --", "*", "x" * 600]
    async with shelves(place, 1) as (shelf,):
        for name in names:
            assert list(await shelf.take([use_of(name, Budget(1, 3600.0), count=1)])) == [0]
        for name in names:
            assert (await shelf.take([use_of(name, Budget(1, 3600.0), count=1)]))[0] > 0


async def test_spends_of_the_service_are_counted_soon(place: Opener) -> None:
    """R1: what a replica lets pass in any case counts for the others within a second, and at its end at once."""
    async with shelves(place, 2) as (one, other):
        mine, theirs = (SharedUsage(shelf, requests=SLOW, attempts=SLOW, now=time.monotonic) for shelf in (one, other))
        for _ in range(7):
            mine.spend("p")
        await mine.close()
        assert [(await theirs.take("p", None))[0] == 0 for _ in range(4)] == [True, True, True, False]
        theirs.spend("q", count=10)
        async with asyncio.timeout(5):
            while (await mine.take("q", None, count=10))[0] == 0:
                await asyncio.sleep(0.01)
        await theirs.close()


async def test_rows_that_are_full_are_removed(
    postgres_server: Server, valkey_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC6, C180: a flood of names leaves nothing: rows live as long as their budget takes to refill."""
    monkeypatch.setattr(registry_postgres, "SWEPT_EVERY", 0.0)
    quick = Budget(1_000_000, 1.0)
    for url in (emptied(postgres_server, "postgres"), emptied(valkey_server, "valkey")):
        registry: Any = shared_registry(url)
        for number in range(300):
            await registry.take([use_of(f"flood {number}", quick, count=1)])
        await registry.take([use_of("used", SLOW, count=1)])
        async with asyncio.timeout(5):
            while _rows(url) > 1:
                await registry.take([use_of("used", Budget(1, 3600.0), count=1)])
        await registry.close()


def _asked(url: str, statement: str, script: str) -> float:
    """What the server answers to one question, over a connection of its own."""
    if url.startswith("postgresql:"):
        with psycopg.connect(url) as connection:
            row = connection.execute(statement.encode()).fetchone()
            assert row is not None
            return float(row[0])
    import redis

    with redis.Redis.from_url(url) as client:
        return float(client.eval(script, 0))


def _rows(url: str) -> int:
    return int(_asked(url, "SELECT count(*) FROM leased_registry_budget", "return #redis.call('KEYS', '*:budget:*')"))


def _shown(url: str) -> float:
    """The time by the server's clock, as budgets are reckoned by it; in whole seconds."""
    clock = "SELECT floor(extract(epoch FROM clock_timestamp()))"
    return _asked(url, clock, "return tonumber(redis.call('TIME')[1])")


@pytest.mark.parametrize("kind", ["postgres", "valkey"])
async def test_a_clock_that_goes_back_stops_nobody_for_long(
    kind: str,
    private_postgres: Callable[..., Server],
    private_valkey: Callable[..., Server],
    moving_clock: MovingClock,
) -> None:
    """SEC6: after a step of the server's clock a budget is empty at the worst, and refills as always."""
    server = (private_postgres if kind == "postgres" else private_valkey)(clock=moving_clock)
    url = emptied(server, kind)
    registry: Any = shared_registry(url)
    use = use_of("p", Budget(5, 1000.0), count=1)

    def step(seconds: float) -> None:
        """Set the clock. A server may show the time as it was to one more question or two: they are asked here."""
        before = _shown(url)
        moving_clock.step(seconds)
        give_up_at = time.monotonic() + 20
        while abs(_shown(url) - before - seconds) > 60:
            assert time.monotonic() < give_up_at

    assert list(await registry.take([use])) == [0]
    step(-3600)
    (late,) = await registry.take([use])
    assert 0 < late <= use.cost
    step(use.cost / 1_000_000)
    assert list(await registry.take([use])) == [0]
    await registry.close()


def test_budgets_are_reckoned_in_whole_microseconds() -> None:
    """SEC6: rounding never lets more pass."""
    assert use_of("p", Budget(3, 1.0), count=2) == Use("p", 666_668, 1_000_002)
    assert use_of("p", Budget(600, 60.0, burst=5), count=1) == Use("p", 100_000, 500_000)
