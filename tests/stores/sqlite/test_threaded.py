"""A blocking store for event loops: order, cancellation, time-outs, loops that come and go."""

import asyncio
import gc
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from leased.clocks import BlockingClock
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Claim, Contended, Held, Released
from leased.stores._threaded import ThreadedStore
from leased.stores.memory import MemoryStore
from leased.stores.sqlite import SqliteStore

_T = TypeVar("_T")


class Gated(MemoryStore):
    """A store whose calls for some keys wait, in their thread, until the gate is opened; it logs all calls."""

    def __init__(self) -> None:
        super().__init__(BlockingClock())
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.log: list[str] = []
        self.timeouts: list[float] = []

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        self.log.append(f"acquire {claim.key}")
        self.timeouts.append(timeout)
        if claim.key.startswith("slow"):
            self.begun.set()
            assert self.gate.wait(10.0)
        if claim.key == "broken":
            raise StoreUnavailable("no answer", applied=None)
        if claim.key == "suspends":
            await asyncio.sleep(0)
        return await super().acquire(claim, timeout=timeout)

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        self.log.append(f"abandon {key}")
        await super().abandon(key, token, heard=heard, timeout=timeout)


def claim(key: str, token: str = "token") -> Claim:
    """A claim of half a minute."""
    return Claim(key, token, 30.0)


_others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Workers of stores that live longer than one test are not counted."""
    _others.clear()
    _others.update(threading.enumerate())


def workers() -> int:
    """Worker threads that run now and did not before this test."""
    return sum(thread.name == "leased-store" and thread not in _others for thread in threading.enumerate())


def no_workers_but(count: int) -> bool:
    """Whether the others ended within some seconds."""
    give_up_at = time.monotonic() + 5.0
    while workers() != count:
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.001)
    return True


async def begun(store: Gated) -> None:
    """Wait until the worker is inside a slow call."""
    await asyncio.to_thread(store.begun.wait, 5.0)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """In a loop of its own."""
    return asyncio.run(work)


def test_a_cancelled_acquire_is_cleaned_up_behind_it() -> None:
    """An abandon made after a cancelled acquire runs after it, so whatever it got is handed back at once (C001)."""
    inner = Gated()

    async def scenario() -> Held | Contended:
        store = ThreadedStore(inner)
        lost = asyncio.create_task(store.acquire(claim("slow"), timeout=5.0))
        await begun(inner)
        lost.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lost
        undo = asyncio.create_task(store.abandon("slow", "token", timeout=5.0))
        await asyncio.sleep(0)
        inner.gate.set()
        await undo
        try:
            return await store.acquire(claim("slow", "third"), timeout=5.0)
        finally:
            await store.close()

    assert isinstance(run(scenario()), Held)
    assert inner.log == ["acquire slow", "abandon slow", "acquire slow"]


def test_calls_run_in_the_order_of_their_making() -> None:
    """However many tasks call, the store sees their calls in the order in which they were made."""
    inner = Gated()

    async def scenario() -> None:
        store = ThreadedStore(inner)
        await asyncio.gather(*(store.acquire(claim(f"key-{number}"), timeout=5.0) for number in range(100)))
        await store.close()

    run(scenario())
    assert inner.log == [f"acquire key-{number}" for number in range(100)]


def test_waiting_for_the_worker_counts() -> None:
    """A call that has not begun by its time-out never does, and says so; one that has begun is not cut off."""
    inner = Gated()

    async def scenario() -> None:
        store = ThreadedStore(inner)
        slow = asyncio.create_task(store.acquire(claim("slow"), timeout=0.05))
        await begun(inner)
        with pytest.raises(StoreUnavailable, match="busy") as caught:
            await store.acquire(claim("key"), timeout=0.05)
        assert caught.value.applied is False
        assert not slow.done()
        inner.gate.set()
        assert isinstance(await slow, Held)
        assert isinstance(await store.acquire(claim("other"), timeout=5.0), Held)
        await store.close()

    run(scenario())
    assert inner.log == ["acquire slow", "acquire other"]


def test_the_store_gets_the_time_that_is_left() -> None:
    """The time that a call waited for the worker is taken off its time-out."""
    inner = Gated()

    async def scenario() -> None:
        store = ThreadedStore(inner)
        calls = [asyncio.create_task(store.acquire(claim(key), timeout=5.0)) for key in ("slow", "next")]
        await begun(inner)
        began = time.monotonic()
        while time.monotonic() - began < 0.05:
            await asyncio.sleep(0)
        inner.gate.set()
        await asyncio.gather(*calls)
        await store.close()

    run(scenario())
    assert inner.timeouts[1] <= 5.0 - 0.05


def test_errors_come_through() -> None:
    """What the store raises is raised to the caller, and a store that cannot run in a thread is named as that."""
    inner = Gated()

    async def scenario() -> None:
        store = ThreadedStore(inner)
        with pytest.raises(StoreUnavailable, match="no answer"):
            await store.acquire(claim("broken"), timeout=5.0)
        with pytest.raises(RuntimeError):
            await store.acquire(claim("suspends"), timeout=5.0)
        assert isinstance(await store.acquire(claim("key"), timeout=5.0), Held)
        await store.close()

    run(scenario())


def test_loops_one_after_the_other_and_at_once() -> None:
    """One store serves a loop, then another, then several in threads, and a loop that ended early harms none."""
    inner = Gated()
    store = ThreadedStore(inner)

    async def leave_early() -> None:
        asyncio.create_task(store.acquire(claim("slow"), timeout=5.0))  # noqa: RUF006 - nobody waits for it
        await begun(inner)

    run(leave_early())
    inner.gate.set()
    found: list[object] = []

    def in_a_thread(number: int) -> None:
        found.append(run(store.acquire(claim(f"key-{number}"), timeout=5.0)))

    in_a_thread(0)
    threads = [threading.Thread(target=in_a_thread, args=(number,)) for number in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(answer) for answer in found] == [Held] * 6
    assert workers() == 1
    run(store.close())
    assert no_workers_but(0)


def test_closing_ends_the_worker() -> None:
    """What was asked before the close still runs; afterwards the store refuses and no thread is left."""
    inner = Gated()

    async def scenario() -> None:
        store = ThreadedStore(inner)
        last = asyncio.create_task(store.acquire(claim("key"), timeout=5.0))
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        assert isinstance(await last, Held)
        with pytest.raises(StoreNotUsable, match="closed"):
            await store.acquire(claim("key"), timeout=5.0)
        with pytest.raises(StoreNotUsable, match="closed"):
            await inner.status("key", timeout=5.0)

    run(scenario())
    assert no_workers_but(0)


@pytest.mark.real_clock
def test_closing_does_not_wait_for_ever() -> None:
    """A call that hangs delays a close by a second at most; the store is closed behind it."""
    inner = Gated()

    async def scenario() -> float:
        store = ThreadedStore(inner)
        stuck = asyncio.create_task(store.acquire(claim("slow"), timeout=9.0))
        await begun(inner)
        began = time.monotonic()
        await store.close()
        took = time.monotonic() - began
        inner.gate.set()
        await stuck
        return took

    assert run(scenario()) < 3.0
    assert no_workers_but(0)


def test_a_forgotten_store_ends_its_worker() -> None:
    """A store that nobody refers to any more leaves no thread behind."""

    async def scenario() -> None:
        await ThreadedStore(MemoryStore(BlockingClock())).status("key", timeout=5.0)

    run(scenario())
    gc.collect()
    assert no_workers_but(0)


def test_nothing_runs_before_the_first_call() -> None:
    """A store that was only made has no thread."""
    assert no_workers_but(0)
    store = ThreadedStore(MemoryStore(BlockingClock()))
    assert store.assurance().exclusive == "process"
    assert workers() == 0


@pytest.mark.parametrize("when", ["before it runs", "when it has run", "after its loop"])
def test_a_watch_that_reaches_nobody_ends(tmp_path: Path, when: str) -> None:
    """A watch is ended for a caller who was cancelled at any moment, or whose loop is gone: he could not end it."""
    inner = SqliteStore(str(tmp_path / "locks.db"))
    bells = tmp_path / "locks.db-bells"
    store = ThreadedStore(inner)

    async def scenario() -> None:
        watch = asyncio.create_task(store.watch("key", lambda: None))
        await asyncio.sleep(0)
        if when == "after its loop":
            return
        if when == "when it has run":  # and its answer is on the way, but not there
            thread = threading.Thread(target=lambda: run(store.status("key", timeout=5.0)))
            thread.start()
            thread.join()
        asyncio.get_running_loop().call_soon(watch.cancel)
        with pytest.raises(asyncio.CancelledError):
            await watch

    run(scenario())
    run(store.status("key", timeout=5.0))
    assert [name for name in bells.rglob("*") if name.is_fifo()] == []
    run(store.close())


def test_a_watch_ends_although_its_loop_ends_before_it_could_be_told(tmp_path: Path) -> None:
    """The answer is handed to the caller's loop, which closes without running what it was handed: the watch of a caller
    who was cancelled meanwhile ends all the same."""
    store = ThreadedStore(SqliteStore(str(tmp_path / "locks.db")))

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        handed = threading.Event()

        def never_run(*_: object, **__: object) -> None:
            handed.set()

        setattr(loop, "call_soon_threadsafe", never_run)  # noqa: B010 - a method, so no assignment
        watch = asyncio.create_task(store.watch("key", lambda: None))
        await asyncio.sleep(0)
        assert handed.wait(5.0)
        watch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watch

    run(scenario())
    run(store.status("key", timeout=5.0))
    assert [name for name in (tmp_path / "locks.db-bells").rglob("*") if name.is_fifo()] == []
    run(store.close())


def test_releases_are_seen_by_every_face(tmp_path: Path) -> None:
    """What one loop takes and frees is taken and free for the others: it is one store."""
    store = ThreadedStore(SqliteStore(str(tmp_path / "locks.db")))
    assert isinstance(run(store.acquire(claim("key"), timeout=5.0)), Held)
    assert isinstance(run(store.acquire(claim("key", "other"), timeout=5.0)), Contended)
    assert run(store.release("key", "token", timeout=5.0)) == Released()
    store.offset = 5.0
    assert store.offset == 5.0
    run(store.close())


def test_a_call_that_hangs_once_it_has_begun_does_not_hold_its_caller() -> None:
    """S4, W2: a store that does not come back itself leaves its caller without an answer soon after the time-out."""

    async def main() -> None:
        gated = Gated()
        store = ThreadedStore(gated)
        claim = Claim("slow", "t" * 32, 30.0)
        try:
            with pytest.raises(StoreUnavailable, match="did not come back") as raised:
                await store.acquire(claim, timeout=0.01)
            assert raised.value.applied is None
        finally:
            gated.gate.set()
        await store.close()

    asyncio.run(main())
