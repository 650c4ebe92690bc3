"""The clock that tests move: what it shows, and who wakes up."""

import asyncio
import threading

import pytest

from leased.clocks import step
from leased.testing import MovableClock
from leased.testing.clocks import MovableSignal
from leased.testing.loop_clock import MovableLoopSignal


@pytest.fixture
def still() -> MovableClock:
    """A clock that only moves when it is moved."""
    return MovableClock(flowing=False)


def test_a_still_clock_shows_what_it_was_moved_by(still: MovableClock) -> None:
    """Both hands move alike and exactly; without a move no time passes."""
    now, wall = still.now(), still.wall()
    assert (still.now(), still.wall()) == (now, wall)
    still.move(0.125)
    still.move(3_600)
    assert (still.now() - now, still.wall() - wall) == (3_600.125, 3_600.125)


def test_a_flowing_clock_goes_on_by_itself() -> None:
    """Unless it is told to stand still, time passes as it does outside, and moves come on top."""
    clock = MovableClock()
    now = clock.now()
    step(clock.sleep(0.001))
    assert clock.now() - now >= 0.001
    clock.move(100)
    assert 100 < clock.now() - now < 130


def test_setting_the_wall_clock_lets_no_time_pass(still: MovableClock) -> None:
    """The wall clock goes where it is set, back as well, and on from there; the other hand does not notice."""
    now = still.now()
    still.set_wall(1_000_000_000.0)
    assert (still.now(), still.wall()) == (now, 1_000_000_000.0)
    still.move(5)
    assert still.wall() == 1_000_000_005.0


def test_time_does_not_run_back(still: MovableClock) -> None:
    """A negative move is refused and changes nothing."""
    now = still.now()
    with pytest.raises(ValueError, match="-1"):
        still.move(-1)
    assert still.now() == now


def test_a_waiting_thread_wakes_when_its_time_has_come(still: MovableClock) -> None:
    """A thread that sleeps goes on when the clock has been moved far enough, not before."""
    woke = threading.Event()

    def sleep() -> None:
        step(still.sleep(10))
        woke.set()

    thread = threading.Thread(target=sleep)
    thread.start()
    while not still._waiting:
        pass
    still.move(9)
    assert not woke.is_set()
    still.move(1)
    assert woke.wait(5)
    thread.join()
    assert not still._waiting


def test_a_signal_stays_set_until_a_wait_has_seen_it(still: MovableClock) -> None:
    """A signal between threads that was set before wakes the next wait at once, and only that one."""
    signal = still.signal()
    assert isinstance(signal, MovableSignal)
    signal.set()
    signal.set()
    assert step(signal.wait(10)) is True
    assert step(signal.wait(0)) is False


def test_a_task_waits_by_the_same_clock(still: MovableClock) -> None:
    """Tasks sleep until the clock was moved far enough, from any thread; a signal wakes them before."""

    async def use() -> None:
        clock = still.for_loop()
        assert clock.now() == still.now()
        sleeping = asyncio.create_task(clock.sleep(10))
        signal = clock.signal()
        assert isinstance(signal, MovableLoopSignal)
        signalled = asyncio.create_task(signal.wait(10))
        while len(still._waiting) < 2:
            await asyncio.sleep(0)

        def wake_and_move() -> None:
            signal.set()
            still.move(9)

        mover = threading.Thread(target=wake_and_move)
        mover.start()
        assert await asyncio.wait_for(signalled, 5) is True
        mover.join()
        assert not sleeping.done()
        still.move(1)
        await asyncio.wait_for(sleeping, 5)
        assert await signal.wait(0) is False
        await clock.sleep(0)
        signal.set()
        assert await signal.wait(10) is True

    asyncio.run(use())


def test_started_work_ends_whatever_becomes_of_the_caller(still: MovableClock) -> None:
    """A blocking caller runs it here and now; a task goes on after its starter was cancelled."""
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append("task")

    async def blocking_work() -> None:
        done.append("thread")

    still.start(blocking_work())
    assert done == ["thread"]

    async def use() -> None:
        clock = still.for_loop()
        started: list[asyncio.Task[None]] = []

        async def starter() -> None:
            started.append(clock.start(work()))
            await asyncio.sleep(60)

        task = asyncio.create_task(starter())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait_for(started[0], 5)

    asyncio.run(use())
    assert done == ["thread", "task"]


def test_a_clock_may_be_moved_after_its_loop_is_gone(still: MovableClock) -> None:
    """A task that was cancelled in its sleep leaves nothing that a later move could stumble over."""

    async def use() -> None:
        task = asyncio.create_task(still.for_loop().sleep(10))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(use())
    assert not still._waiting
    still.move(20)
