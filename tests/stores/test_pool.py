"""The pool of connections: its cap, its deadlines, whom it wakes, and what it does around loops and forks."""

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock, step
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._pool import Pool
from tests.faces.interrupts import Interrupts


class Line:
    """A connection that goes nowhere and remembers what became of it."""

    def __init__(self) -> None:
        self.good = True
        self.closings: list[int] = []

    def usable(self) -> bool:
        return self.good

    def close(self) -> None:
        self.closings.append(1)

    @property
    def closed(self) -> int:
        return len(self.closings)


class Exchange:
    """Opens lines, and counts them."""

    def __init__(self) -> None:
        self.opened: list[Line] = []
        self.fails = False

    async def connect(self, seconds: float) -> Line:
        if self.fails:
            raise StoreUnavailable("nobody answers", applied=False)
        line = Line()
        self.opened.append(line)
        return line


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


def blocking(exchange: Exchange, *, most: int = 2) -> Pool[Line]:
    return Pool(exchange.connect, clock=BlockingClock(), most=most)


def for_loops(exchange: Exchange, *, most: int = 2) -> Pool[Line]:
    return Pool(exchange.connect, clock=LoopClock(), most=most, loop=asyncio.get_running_loop)


def test_it_opens_nothing_before_it_is_used_and_then_uses_the_last_again(exchange: Exchange) -> None:
    """S4: connections open lazily, and one caller after the other needs one of them."""
    pool = blocking(exchange)
    assert not exchange.opened
    for _ in range(3):
        pool.give(step(pool.take(1.0)))
    assert len(exchange.opened) == 1


def test_a_dead_connection_is_replaced_before_it_is_used(exchange: Exchange) -> None:
    """S4: a store survives a restart of its server: what the server has closed is noticed, closed and replaced."""
    pool = blocking(exchange)
    first = step(pool.take(1.0))
    pool.give(first)
    first.good = False
    second = step(pool.take(1.0))
    assert second is not first
    assert first.closed == 1


def test_no_more_than_the_cap_and_a_deadline_for_those_who_wait(exchange: Exchange) -> None:
    """C063, C115: a full pool answers within the caller's own time, and says that nothing was applied."""
    pool = blocking(exchange)
    taken = [step(pool.take(1.0)) for _ in range(2)]
    with pytest.raises(StoreUnavailable, match="all 2 connections were in use") as caught:
        step(pool.take(0.02))
    assert caught.value.applied is False
    pool.give(taken[0])
    assert step(pool.take(1.0)) is taken[0]
    assert len(exchange.opened) == 2


@pytest.mark.parametrize("back", [Pool.give, Pool.drop], ids=["given", "dropped"])
def test_whoever_waits_gets_the_next_one(exchange: Exchange, back: Callable[[Pool[Line], Line], None]) -> None:
    """A thread that waits goes on when one comes back, also when that was broken."""
    pool = blocking(exchange, most=1)
    mine = step(pool.take(1.0))
    got: list[Line] = []
    thread = threading.Thread(target=lambda: got.append(step(pool.take(5.0))))
    thread.start()
    while not pool._places[None].waiting:
        pass
    back(pool, mine)
    thread.join(5.0)
    assert got


def test_who_waits_is_served_before_who_comes_later(exchange: Exchange) -> None:
    """S4: callers that take and give back in a loop starve nobody: those who wait get connections in their order."""

    async def scene() -> list[int]:
        pool = for_loops(exchange, most=2)
        served: list[int] = []
        done = False

        async def greedy() -> None:
            while not done:
                line = await pool.take(5.0)
                await asyncio.sleep(0)
                pool.give(line)

        async def once(number: int) -> None:
            line = await pool.take(5.0)
            served.append(number)
            pool.give(line)

        hungry = [asyncio.ensure_future(greedy()) for _ in range(6)]
        await asyncio.sleep(0)
        await asyncio.gather(*(once(number) for number in range(10)))
        done = True
        await asyncio.gather(*hungry)
        return served

    assert asyncio.run(asyncio.wait_for(scene(), 20.0)) == list(range(10))


def test_a_failed_opening_leaves_room_and_wakes_the_next(exchange: Exchange) -> None:
    """A server that refuses uses up no place."""
    pool = blocking(exchange, most=1)
    exchange.fails = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="nobody answers"):
            step(pool.take(1.0))
    exchange.fails = False
    assert step(pool.take(1.0)).usable()


def test_a_connection_lost_by_an_interrupted_caller_uses_up_no_place(exchange: Exchange) -> None:
    """C007: Ctrl-C between taking one and being able to give it back cannot use up the pool."""
    pool = blocking(exchange, most=1)
    for _ in range(3):
        lost = step(pool.take(1.0))
        exchange.opened.clear()
        del lost
        gc.collect()
    assert step(pool.take(1.0)).usable()


@pytest.mark.filterwarnings("ignore:coroutine")
def test_an_interrupt_at_any_point_of_taking_one_uses_up_no_place(exchange: Exchange) -> None:
    """C007: wherever `KeyboardInterrupt` strikes while a connection is taken or opened, there is room afterwards."""
    at = 0
    while True:
        pool = blocking(exchange, most=1)
        interrupts = Interrupts(at=at)
        with contextlib.suppress(KeyboardInterrupt):
            interrupts.run(partial(_take, pool))
        struck, where = interrupts.struck, interrupts.where
        if not struck:
            break
        del interrupts  # it keeps the frames that it has seen
        exchange.opened.clear()
        gc.collect()
        assert step(pool.take(2.0)).usable(), where
        at += 1
    assert at > 10


def _take(pool: Pool[Line]) -> None:
    step(pool.take(1.0))


def test_six_hundred_cancelled_waiters_take_nothing_with_them(exchange: Exchange) -> None:
    """Tasks that are cancelled while they wait for a connection leave all of them to others."""

    async def scene() -> None:
        pool = for_loops(exchange, most=2)
        taken = [await pool.take(1.0) for _ in range(2)]
        for round_number in range(600):
            waiter = asyncio.ensure_future(pool.take(5.0))
            await asyncio.sleep(0)
            if round_number % 2:  # cancelled in the same turn in which one becomes free for it
                pool.give(taken.pop())
                waiter.cancel()
            else:
                waiter.cancel()
            results = await asyncio.gather(waiter, return_exceptions=True)
            taken += [result for result in results if isinstance(result, Line)]
            if len(taken) < 2:
                taken.append(await pool.take(1.0))
        assert len(exchange.opened) == 2
        for line in taken:
            pool.give(line)
        assert len(pool._places[asyncio.get_running_loop()].idle) == 2

    asyncio.run(scene())


def test_every_loop_has_connections_of_its_own(exchange: Exchange) -> None:
    """A connection of one event loop is never used in another, and goes once its loop has ended."""
    pool = for_loops(exchange)

    async def use() -> list[int]:
        line = await pool.take(1.0)
        exchange.opened.clear()
        pool.give(line)
        return line.closings

    first, second = asyncio.run(use()), asyncio.run(use())
    assert first == [1], "nobody but the pool knew it, and it has to be closed all the same"
    assert second == []
    assert len(pool._places) == 1


def test_closing_from_another_thread_closes_in_the_loop_that_owns_the_connection(exchange: Exchange) -> None:
    """A connection of a running loop is touched by that loop's thread only."""
    closed_in: list[int] = []

    async def scene() -> None:
        pool = for_loops(exchange)
        line = await pool.take(1.0)
        line.close = lambda: closed_in.append(threading.get_ident())  # type: ignore[method-assign]  # noted
        pool.give(line)
        await asyncio.get_running_loop().run_in_executor(None, pool.close)
        while not closed_in:
            await asyncio.sleep(0)
        assert closed_in == [threading.get_ident()]

    asyncio.run(scene())


def test_a_loop_that_ends_before_it_could_close_one_leaves_none_open(exchange: Exchange) -> None:
    """A loop of another thread that was asked to close a connection, and ended instead, is not relied on."""
    pool = for_loops(exchange)
    loop = asyncio.new_event_loop()

    loop.run_until_complete(_use(pool))
    pool.close()
    loop.close()
    assert exchange.opened[0].closings == []
    other = for_loops(exchange)
    runner = asyncio.Runner()
    runner.run(_use(other))
    other.close()  # whoever closes next sees to it
    assert exchange.opened[0].closings == [1]
    runner.close()


async def _use(pool: Pool[Line]) -> None:
    pool.give(await pool.take(1))


def test_closing_ends_idle_ones_at_once_and_others_when_they_come_back(exchange: Exchange) -> None:
    """After close() nothing is opened any more, and nothing stays open."""
    pool = blocking(exchange)
    busy, idle = step(pool.take(1.0)), step(pool.take(1.0))
    pool.give(idle)
    pool.close()
    assert (idle.closed, busy.closed) == (1, 0)
    pool.give(busy)
    assert busy.closed == 1
    with pytest.raises(StoreNotUsable, match="closed"):
        step(pool.take(1.0))


def test_a_forked_child_has_none_of_them(exchange: Exchange) -> None:
    """L13, C130: what was inherited is neither used nor closed in the child; the parent goes on with it."""
    pool = blocking(exchange)
    idle, busy = step(pool.take(1.0)), step(pool.take(1.0))
    pool.give(idle)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            new = step(pool.take(1.0))
            pool.give(busy)
            os.write(writing, f"{new is not idle} {len(exchange.opened)} {idle.closed} {busy.closed}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"True 3 0 0"
    os.close(reading)
    os.close(writing)
    pool.give(busy)
    assert step(pool.take(1.0)) is busy


def test_threads_and_a_cap(exchange: Exchange) -> None:
    """Sixteen threads through two connections: never more than two at work, and everybody gets through."""
    pool = blocking(exchange, most=2)
    at_work: list[Line] = []
    most: list[int] = []

    def work(_: Any) -> None:
        for _ in range(50):
            line = step(pool.take(10.0))
            at_work.append(line)
            most.append(len(at_work))
            at_work.remove(line)
            pool.give(line)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert max(most) <= 2
    assert len(most) == 16 * 50
    assert len(exchange.opened) <= 2
