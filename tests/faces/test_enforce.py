"""Enforced leases: a fixed end, at which the body is interrupted and the block raises `LeaseDeadlineExceeded`."""

# ruff: noqa: PT012 (what a whole block raises at its end is what these tests are about)

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import leased
from leased import LeaseDeadlineExceeded, LockLost, LockNotAcquired, LockTimeout, sync_lock
from leased.clocks import BlockingClock
from leased.stores.memory import MemoryStore
from tests.faces.world import Async, Blocking, World, block, done


def spin(*, until: Callable[[], object] = lambda: False, seconds: float = 8.0) -> None:
    """Work in Python that never ends by itself."""
    give_up_at = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < give_up_at, "nobody interrupted the body"


async def test_a_body_that_ends_in_time_is_left_alone(world: World) -> None:
    """H5: nothing happens to a body within its lease; it is not renewed, and the key is free afterwards."""
    async with block(world.locks.lock("k", ttl=10, enforce=True)) as held:
        world.move(5)
        assert 4 < held.remaining() < 5
        await world.face.breathe()
    assert world.store.asked("renew") == 0
    assert not await world.held("k")


async def test_the_lease_counts_from_the_moment_of_asking(world: World) -> None:
    """H5: the time waited is used up: each attempt asks the store for what is left of the lease."""
    held = await world.occupy("k", ttl=100)
    seen: list[Any] = []

    async def work() -> None:
        async with block(world.locks.lock("k", ttl=20, wait=15, enforce=True)) as mine:
            seen.append(mine.remaining())

    worker = world.start(work)
    await world.waiting("k")
    world.move(10)
    await done(held.release())
    await worker.result()
    assert 8 < seen[0] < 10


async def test_an_enforced_lock_that_is_refused_is_refused(world: World) -> None:
    """H5, L2: contention is as with any other lock."""
    await world.occupy("k")
    with pytest.raises(LockNotAcquired):
        async with block(world.locks.lock("k", ttl=10, enforce=True)):
            pytest.fail("entered")


def enforced(world: World, **terms: Any) -> leased.Lock:
    """An enforced lock of the blocking face."""
    lock: leased.Lock = world.locks.lock("k", **{"ttl": 10, "enforce": True, **terms})
    return lock


def by_block(lock: leased.Lock, body: Callable[[], None]) -> None:
    """`with lock:`."""
    with lock:
        body()


def by_hold(lock: leased.Lock, body: Callable[[], None]) -> None:
    """`with lock.hold():`."""
    with lock.hold():
        body()


def by_run(lock: leased.Lock, body: Callable[[], None]) -> None:
    """`run`."""
    lock.run(body)


def by_decorator(lock: leased.Lock, body: Callable[[], None]) -> None:
    """As a decorator."""
    lock(body)()


def by_stack(lock: leased.Lock, body: Callable[[], None]) -> None:
    """Through an exit stack."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock)
        body()


def by_manager(lock: leased.Lock, body: Callable[[], None]) -> None:
    """Through a context manager made of a generator."""

    @contextlib.contextmanager
    def locked() -> Iterator[None]:
        with lock:
            yield

    with locked():
        body()


WAYS = [by_block, by_hold, by_run, by_decorator, by_stack, by_manager]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_blocking_body_is_interrupted_and_cannot_swallow_it(way: Callable[..., None]) -> None:
    """H5: at the end of its lease a body is interrupted, again until the block exits, however the block was entered;
    `except Exception` does not stop that, and what comes out is `LeaseDeadlineExceeded`."""
    world = World(Blocking())
    caught: list[str] = []

    def body() -> None:
        world.move(11)
        while True:
            try:
                spin()
            except Exception as error:  # noqa: BLE001 - this is what bodies do
                caught.append(type(error).__name__)
            finally:
                caught.append("cleaned up")

    with pytest.raises(LeaseDeadlineExceeded) as raised:
        way(enforced(world), body)
    assert isinstance(raised.value, LockLost)
    assert (raised.value.key, raised.value.reason) == ("k", "expired")
    assert raised.value.__cause__ is None
    assert caught == ["cleaned up"]
    assert leased.current() is None
    spin_a_while()


def spin_a_while() -> None:
    """Give a strike that should not come time to come."""
    time.sleep(0.12)
    for _ in range(20_000):
        sys.getrefcount(None)


def test_a_body_that_swallows_even_base_exceptions_is_struck_again() -> None:
    """H5: it is injected again until the block exits: a body that swallows it once is struck a second time."""
    world = World(Blocking())
    swallowed: list[str] = []
    with pytest.raises(LeaseDeadlineExceeded), enforced(world):
        world.move(11)
        for _ in range(3):
            try:
                spin()
            except BaseException as error:  # noqa: BLE001 - this is what the worst bodies do
                swallowed.append(type(error).__name__)
    assert swallowed == ["BodyInterrupted"] * 3
    spin_a_while()


def test_a_call_inside_c_code_ends_first() -> None:
    """H5: what runs inside C cannot be cut: the interruption comes as it returns."""
    world = World(Blocking())
    with pytest.raises(LeaseDeadlineExceeded), enforced(world):
        world.move(11)
        started = time.monotonic()
        try:
            time.sleep(0.15)
        finally:
            assert time.monotonic() - started >= 0.15
        spin()


def test_nothing_is_ever_injected_after_the_block() -> None:
    """H5: a body that ends just as its lease does either raises at the exit or not; nothing comes afterwards."""
    for number in range(60):
        world = World(Blocking())
        with contextlib.suppress(LeaseDeadlineExceeded), enforced(world):
            world.move(9.76)  # the strike begins, and the block is left at once
            for _ in range(number * 40):
                pass
        for _ in range(2_000):
            sys.getrefcount(None)
    spin_a_while()


def test_a_thread_that_leaves_a_block_is_not_struck() -> None:
    """H5: a strike that falls due while the block is being left, for instance in a slow release, is not delivered."""
    world = World(Blocking())
    lock = enforced(world)
    world.store.hang("release")
    left = threading.Event()

    def work() -> BaseException | None:
        try:
            with lock:
                world.move(9.7)
        except BaseException as error:  # noqa: BLE001 - whatever comes out is looked at
            return error
        finally:
            left.set()
        return None

    worker = world.start(work)

    async def main() -> None:
        await world.until(lambda: world.store.asked("release"))
        world.move(0.2)
        time.sleep(0.15)
        world.store.let_go()
        outcome = await worker.result()
        assert outcome is None or isinstance(outcome, LeaseDeadlineExceeded)

    world.run(main)


_TRACED = """
import sys, time, leased
try:
    with leased.connect("memory:").lock("k", ttl=0.12, enforce=True):
        while True:
            time.sleep(0.001)
except leased.LeaseDeadlineExceeded:
    pass
sys.settrace(lambda *event: None)
(lambda: None)()
sys.settrace(None)
print("traced")
"""


def test_a_thread_that_was_struck_can_be_traced_afterwards() -> None:
    """H5: nothing stays behind in the interpreter: a debugger or a measurement of coverage works after such a block."""
    ended = subprocess.run([sys.executable, "-c", _TRACED], capture_output=True, text=True, timeout=9, check=True)
    assert ended.stdout == "traced\n"


def test_a_thread_on_its_way_out_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    """H5: nothing is injected between the end of the body and the moment in which the block takes strikes back."""
    world = World(Blocking())
    leaving, go_on = threading.Event(), threading.Event()
    interrupters: list[Any] = []
    original: Any = vars(sync_lock)["being_left"]

    def slowly(*arguments: Any, **names: Any) -> Any:
        scope: Any = original(*arguments, **names)
        interrupters.append(scope._interrupter)
        leaving.set()
        go_on.wait(5)
        return scope

    monkeypatch.setattr(sync_lock, "being_left", slowly)
    worker = world.start(lambda: by_block(enforced(world), lambda: None))

    async def main() -> None:
        await world.until(leaving.is_set)
        world.move(11)
        await world.until(lambda: world.named("lost"))
        spin_a_while()
        assert not interrupters[0].struck
        go_on.set()
        with pytest.raises(LeaseDeadlineExceeded):
            await worker.result()
        assert not interrupters[0].struck

    world.run(main)


def test_nested_enforced_blocks_end_from_the_inside() -> None:
    """H5: the outer lease ends in the inner block: the inner one is left normally, the outer one raises."""
    world = World(Blocking())
    inner = world.locks.lock("inner", ttl=60, enforce=True)
    released: list[bool] = []
    with pytest.raises(LeaseDeadlineExceeded) as raised, enforced(world):
        try:
            with inner:
                world.move(11)
                spin()
        finally:
            released.append(not world.locks.status("inner").held)
    assert raised.value.key == "k"
    assert released == [True]


def test_a_body_that_waits_for_another_lock_is_interrupted() -> None:
    """H5: a body that stands in another line when its lease ends leaves it; nothing of that wait is left."""
    world = World(Blocking())
    elsewhere = world.elsewhere()
    held = elsewhere.lock("other").acquire()
    with pytest.raises(LeaseDeadlineExceeded), enforced(world):
        world.hands.move(11)
        world.locks.lock("other", wait=60).acquire()
    assert world.locks._client().env.lines.waiting("other") == 0
    held.release()


def test_other_threads_are_never_struck() -> None:
    """H5: only the thread that entered the block is interrupted."""
    world = World(Blocking())
    ended = threading.Event()
    outcome: list[BaseException] = []

    def bystander() -> None:
        try:
            spin(until=ended.is_set)
        except BaseException as error:  # noqa: BLE001 - whatever comes out is looked at
            outcome.append(error)

    thread = threading.Thread(target=bystander)
    thread.start()
    with pytest.raises(LeaseDeadlineExceeded), enforced(world):
        world.move(11)
        spin()
    ended.set()
    thread.join(5)
    assert outcome == []


def test_a_generator_that_rests_is_not_struck_in_its_consumer() -> None:
    """H5: while a decorated generator is suspended its consumer runs, which is not its body: nothing is injected there.
    When it goes on it is interrupted."""
    world = World(Blocking())

    @enforced(world)
    def steps() -> Iterator[int]:
        yield 1
        spin()
        yield 2

    generator = steps()
    assert next(generator) == 1
    world.move(11)
    spin_a_while()
    with pytest.raises(LeaseDeadlineExceeded):
        next(generator)
    assert not world.locks.status("k").held


def test_the_bodys_own_error_after_the_end_gives_way_to_the_deadline() -> None:
    """H5: an enforced lease that ran out raises `LeaseDeadlineExceeded`, from the body's own error if it had one."""
    world = World(Blocking())
    error = ValueError("mine")
    with pytest.raises(LeaseDeadlineExceeded) as raised, enforced(world):
        world.hands._moved += 11  # so that nobody has noticed yet
        raise error
    assert raised.value.__cause__ is error


def test_if_lost_return_does_not_hide_an_enforced_end() -> None:
    """H5: `if_lost="return"` is about losses; an enforced end always raises."""
    world = World(Blocking())
    with pytest.raises(LeaseDeadlineExceeded), enforced(world, if_lost="return"):
        world.move(11)
        spin()
    with pytest.raises(LeaseDeadlineExceeded):
        enforced(world).run(overrun, world)


def overrun(world: World) -> None:
    """Let the lease run out, and go on."""
    world.move(11)
    spin()


def test_a_body_interrupted_after_closing_raises_what_callers_know() -> None:
    """H5, L11: the deadline of a lease whose locks were closed interrupts the body as any other, and what was injected
    never comes out, whatever `if_lost` says."""
    locks = leased.connect("memory:closed-and-enforced")
    lock = locks.lock("k", ttl=0.2, enforce=True, if_lost="return")
    with pytest.raises(LockLost) as raised, lock:
        locks.close()
        spin()
    assert raised.value.reason == "closed"


class Suspended(BlockingClock):
    """A clock of a machine that sleeps for ten minutes as soon as anybody waits, and wakes him then."""

    def __init__(self) -> None:
        self.slept = 0.0
        self.now = lambda: BlockingClock.now() + self.slept

    def signal(self) -> Any:
        """One that is set by waking up."""
        return self

    def set(self) -> None:
        """Nobody sleeps for that."""

    async def wait(self, seconds: float) -> bool:
        """Sleep much longer than asked to."""
        self.slept += 600
        return True


def test_a_lease_that_ran_out_while_waiting_is_not_asked_for() -> None:
    """H5, M9: who wakes after the end of his fixed lease gets nothing, and closes the key to nobody."""
    clock = Suspended()
    locks = leased.connect(MemoryStore(clock), clock=clock)
    held = locks.lock("k", ttl=60).acquire()
    with pytest.raises(LockTimeout), locks.lock("k", ttl=20, wait=10, enforce=True, hold_at_least=3600):
        pytest.fail("the body ran")
    assert held.lost
    assert locks.status("k").state == "free"


def test_an_async_body_is_cancelled_at_the_end() -> None:
    """H5: an async body is cancelled where it waits; its block raises `LeaseDeadlineExceeded`."""
    world = World(Async())

    async def main() -> None:
        lock = world.locks.lock("k", ttl=10, enforce=True)
        task = asyncio.current_task()
        assert task is not None

        async def body() -> None:
            asyncio.get_running_loop().call_soon(world.move, 11)
            await asyncio.sleep(60)

        async def by_block() -> None:
            async with lock:
                await body()

        async def by_hold() -> None:
            async with lock.hold():
                await body()

        async def by_stack() -> None:
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(lock)
                await body()

        for way in (by_block, by_hold, by_stack, lambda: lock.run(body), lock(body)):
            with pytest.raises(LeaseDeadlineExceeded) as raised:
                await way()
            assert (raised.value.key, raised.value.reason) == ("k", "expired")
            assert task.cancelling() == 0
            assert not await world.held("k")

    world.run(main)


def test_an_async_body_that_never_waits_ends_late_and_says_so() -> None:
    """H5: a body that does not give the loop a chance cannot be cancelled; its block still raises."""
    world = World(Async())

    async def main() -> None:
        with pytest.raises(LeaseDeadlineExceeded):
            async with world.locks.lock("k", ttl=10, enforce=True):
                world.move(11)

    world.run(main)


def test_max_hold_ends_an_enforced_lease_too() -> None:
    """H5, M8: the earlier of both ends counts."""
    world = World(Blocking())
    with pytest.raises(LeaseDeadlineExceeded) as raised, enforced(world, ttl=30, max_hold=10):
        world.move(11)
        spin()
    assert raised.value.reason == "max_hold"
