"""A process that may start no more threads for a while: nothing that was held before, or comes after, suffers."""

# ruff: noqa: PT012 (what a whole block raises at its end is what one of these tests is about)

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import leased
from leased import aio
from tests.until import until


class Exhausted:
    """Whether threads can be started now, and how often somebody tried in vain."""

    def __init__(self) -> None:
        self.now = False
        self.refused = 0


@pytest.fixture
def exhausted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exhausted]:
    """Refuses threads as the system does at its limit."""
    state = Exhausted()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if state.now:
            state.refused += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    yield state
    state.now = False


def renewals(events: list[leased.Event]) -> int:
    """How many leases were renewed."""
    return sum(event.name == "renewed" for event in list(events))


def test_after_a_renewal_thread_that_could_not_start_the_next_lease_is_renewed(exhausted: Exhausted) -> None:
    """H1: a block that nobody could renew does not begin, and its key is free; the next one is renewed again."""
    events: list[leased.Event] = []
    locks = leased.connect("memory:no-keeper", observer=events.append)
    exhausted.now = True
    with pytest.raises(RuntimeError, match="thread"), locks.lock("k", ttl=0.5):
        pytest.fail("the body ran")
    exhausted.now = False
    assert not locks.status("k").held
    with locks.lock("k", ttl=0.5) as held:
        until(lambda: renewals(events))
        held.ensure_held()
    locks.close()


def test_leases_outlive_a_moment_without_threads(exhausted: Exhausted) -> None:
    """H1, H3: neither a renewal nor a hook for which there is no thread ends the renewing of the others."""
    events: list[leased.Event] = []
    locks = leased.connect("memory:no-workers", observer=events.append)
    with locks.lock("k", ttl=3) as held:
        hooked = locks.lock("hooked", ttl=0.3).acquire()
        hooked.on_lost(lambda: None)
        exhausted.now = True
        until(lambda: exhausted.refused >= 2)  # the hook, and a renewal
        exhausted.now = False
        assert hooked.lost
        until(lambda: renewals(events))
        held.ensure_held()
    locks.close()


def test_an_enforced_body_is_interrupted_without_a_thread_too(exhausted: Exhausted) -> None:
    """H5: the one who keeps the lease strikes by himself, once."""
    locks = leased.connect("memory:no-striker")
    with pytest.raises(leased.LeaseDeadlineExceeded), locks.lock("k", ttl=0.2, enforce=True):
        exhausted.now = True
        until(lambda: False)
    exhausted.now = False
    locks.close()


def test_an_async_store_whose_thread_could_not_start_is_served_later(exhausted: Exhausted, tmp_path: Path) -> None:
    """S4: the call that found no thread says so, and that nothing was done; the next one is answered."""

    async def use() -> None:
        async with aio.connect(f"sqlite:{tmp_path}/locks.db") as locks:
            exhausted.now = True
            with pytest.raises(leased.StoreUnavailable, match="thread") as raised:
                await locks.status("k")
            assert raised.value.applied is False
            exhausted.now = False
            assert not (await locks.status("k")).held

    asyncio.run(use())


def test_a_waiter_without_a_doorbell_polls(
    exhausted: Exhausted, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """W3: where no thread can listen, the wait goes on by polling."""
    caplog.set_level(logging.DEBUG, "leased.sqlite")
    locks = leased.connect(f"sqlite:{tmp_path}/locks.db")
    held = locks.lock("k", ttl=0.3).acquire()
    exhausted.now = True
    assert locks.lock("k", wait=5).acquire().release()
    assert "no waking up between processes" in caplog.text
    assert held.lost
    exhausted.now = False
    locks.close()
