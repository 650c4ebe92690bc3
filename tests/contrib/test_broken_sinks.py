"""Sinks that raise, block or take locks themselves harm no lock, wherever they are told: each kind on each face."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import threading
from collections.abc import Callable
from typing import TypeAlias

import pytest

import leased
from leased import aio
from leased.contrib.telemetry import Aside
from leased.observe import Event
from tests.until import until

_numbers = itertools.count()
OVER = (leased.LockNotHeld, leased.LockLost)
Sink: TypeAlias = Callable[[Event], object]


class Stops(BaseException):
    """What no `except Exception` catches."""


@pytest.fixture
def url() -> str:
    """A store of this test alone."""
    return f"memory:broken-sinks-{next(_numbers)}"


def renewed_in_spite_of(sink: Sink, url: str, *, face: str) -> None:
    """Hold a key for longer than its lease and release it, while the sink is told of everything."""
    renewed = threading.Event()

    def told(event: Event) -> None:
        try:
            sink(event)
        finally:
            if event.key == "kept" and event.name == "renewed":
                renewed.set()

    def renewed_anew() -> bool:
        renewed.clear()
        return renewed.wait(20) and renewed.wait(20)

    if face == "blocking":
        with leased.connect(url, observer=told) as locks:
            with locks.lock("kept", ttl=1.0) as kept:
                assert renewed_anew()
                assert renewed_anew()
                kept.ensure_held()
            assert locks.status("kept").state == "free"
        return

    async def main() -> None:
        async with aio.connect(url, observer=told) as locks:
            async with locks.lock("kept", ttl=1.0) as kept:
                for _ in range(2):
                    renewed.clear()
                    while not renewed.is_set():
                        await asyncio.sleep(0.005)
                kept.ensure_held()
            assert (await locks.status("kept")).state == "free"

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("face", ["blocking", "async"])
@pytest.mark.parametrize("raised", [RuntimeError, RecursionError, MemoryError, leased.LockLost, TimeoutError])
def test_a_sink_that_raises(url: str, face: str, raised: type[Exception]) -> None:
    """P3: whatever kind of `Exception`, at each event: acquire, renewals and release go on."""

    def sink(event: Event) -> None:
        raise raised("broken")

    renewed_in_spite_of(sink, url, face=face)


@pytest.mark.parametrize("face", ["blocking", "async"])
def test_a_sink_that_raises_what_ends_threads(url: str, face: str) -> None:
    """P3: where leases are renewed what is no `Exception` ends nothing either."""

    def sink(event: Event) -> None:
        if event.name == "renewed":
            raise Stops

    renewed_in_spite_of(sink, url, face=face)


@pytest.mark.parametrize("face", ["blocking", "async"])
def test_a_sink_that_uses_locks_of_the_same_store(url: str, face: str) -> None:
    """P3: told of an event it takes, asks for, renews and releases keys, also that of the event, by the same locks and
    in the thread that renews: nothing stands still, and nothing recurses beyond what it asked for."""
    done: list[str] = []
    within = contextvars.ContextVar("within", default=False)

    with leased.connect(url, observer=lambda event: sink(event)) as locks:

        def sink(event: Event) -> None:
            if within.get():
                return
            token = within.set(True)
            try:
                with locks.lock(f"other of {event.key}", ttl=1.0, wait=5):
                    locks.status(event.key)
                    locks.list("")
                assert event.name == "released" or locks.lock(event.key).try_acquire() is None
                done.append(event.name)
            finally:
                within.reset(token)

        if face == "blocking":
            with locks.lock("direct", ttl=1.0) as kept:
                until(lambda: done.count("renewed") >= 2, what="it is renewed")
                kept.ensure_held()
        renewed_in_spite_of(sink, url, face=face)
    assert "acquired" in done
    assert "renewed" in done
    assert "released" in done


def test_a_sink_that_asks_for_the_same_key_at_each_event(url: str) -> None:
    """P3: it is told of its own attempts, which ends as Python's recursion does: logged, and the block goes on."""
    with leased.connect(url, observer=lambda event: again(event)) as locks:

        def again(event: Event) -> None:
            if event.name == "contended":
                locks.lock("key").try_acquire()

        with locks.lock("key") as kept:
            locks.lock("key").try_acquire()
            kept.ensure_held()
        assert locks.status("key").state == "free"


def test_a_sink_that_closes_the_locks_or_releases_the_lease(url: str) -> None:
    """P3: in the thread that renews: what it ends is ended, and that is told; nothing waits for itself."""
    told: list[str] = []

    def sink(event: Event) -> None:
        told.append(event.name)
        if event.name == "renewed" and event.key == "released here":
            assert handles["released here"].release()
        if event.name == "renewed" and event.key == "closed here":
            locks.close()

    handles: dict[str, leased.Handle] = {}
    locks = leased.connect(url, observer=sink)
    for key in ("released here", "closed here"):
        handles[key] = locks.lock(key, ttl=0.6, renew=True).acquire()
        until(lambda: "released" in told or "lost" in told, what="its end is told")
        with leased.connect(url) as others, others.lock(key, wait=20), pytest.raises(OVER):
            handles[key].ensure_held()
        told.clear()


def test_a_sink_that_blocks_where_leases_are_renewed(url: str) -> None:
    """P3, H2: it costs leases and never exclusivity: the handle says in time that it is over, the next one gets the
    key, and neither closing nor other calls wait for the sink."""
    stuck, go_on = threading.Event(), threading.Event()
    before = _renewing()

    def sink(event: Event) -> None:
        if event.name == "renewed":
            stuck.set()
            go_on.wait(60)

    locks = leased.connect(url, observer=sink)
    try:
        many = [locks.lock(f"key-{number}", ttl=1.0, renew=True).acquire() for number in range(2)]
        assert stuck.wait(20)
        with leased.connect(url) as others:
            for handle in many:
                with others.lock(handle.key, wait=20):
                    assert handle.lost
        with locks.lock("another", ttl=60):
            pass
        locks.close()
    finally:
        go_on.set()
    until(lambda: _renewing() <= before, what="the threads that renewed have ended")
    gc.collect()  # what they had not begun would be warned of here


def _renewing() -> set[threading.Thread]:
    """The threads that renew leases; some may be those of other tests."""
    return {thread for thread in threading.enumerate() if thread.name == "leased-renewal-call"}


@pytest.mark.parametrize("face", ["blocking", "async"])
def test_a_sink_that_blocks_aside(url: str, face: str) -> None:
    """P3: with `Aside` it costs nothing: leases are renewed while it waits, and it is told everything afterwards, in
    order and in the context of each event."""
    go_on, told = threading.Event(), []
    where = contextvars.ContextVar("where", default="")

    def slow(event: Event) -> None:
        go_on.wait(60)
        told.append((event.name, where.get()))
        raise Stops

    aside = Aside(slow)
    token = where.set("here")
    renewed_in_spite_of(aside, url, face=face)
    where.reset(token)
    assert told == []
    assert not aside.close(within=0.01)
    go_on.set()
    assert aside.close()
    assert [name for name, _ in told][:2] == ["acquired", "renewed"]
    assert told[-1] == ("released", "here")
    assert aside.dropped == 0


def test_what_waits_for_a_slow_sink_is_bounded() -> None:
    """P3: of more the newest are dropped and counted; nobody waits."""
    go_on, told = threading.Event(), []

    def slow(event: Event) -> None:
        told.append(event.key)
        go_on.wait(60)

    aside = Aside(slow, most=3)
    assert aside.close()
    aside(Event("acquired", "first"))
    until(lambda: told, what="it is told of the first")
    for number in range(5):
        aside(Event("acquired", str(number)))
    assert aside.dropped == 2
    go_on.set()
    assert aside.close()
    assert told == ["first", "0", "1", "2"]
