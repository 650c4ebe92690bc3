"""The memory store beyond the contract: times, what is forgotten and what is not, and which URLs share a store."""

from __future__ import annotations

from typing import Any

import pytest

from leased.clocks import BlockingClock, step
from leased.errors import InvalidRequest
from leased.model import Claim, Contended, Held, Lost, Released, Terms
from leased.policy import REPLAY_WINDOW
from leased.stores import memory
from leased.stores.memory import MemoryStore
from leased.targets import Options
from leased.testing import MovableClock

LIMIT = 1.0


def ask(store: MemoryStore, key: str, token: str, *, ttl: float = 10.0, **terms: Any) -> Held | Contended:
    """One attempt."""
    return step(store.acquire(Claim(key, token, ttl, terms=Terms(**terms)), timeout=LIMIT))


def look(store: MemoryStore, key: str, token: str) -> Held | Lost:
    """Whether the token holds the key."""
    return step(store.look(key, token, timeout=LIMIT))


def abandon(store: MemoryStore, key: str, token: str, *, heard: int | None = None) -> None:
    """Withdraw a claim."""
    step(store.abandon(key, token, heard=heard, timeout=LIMIT))


def still() -> tuple[MovableClock, MemoryStore]:
    """A store on a clock that stands still until it is moved."""
    clock = MovableClock(flowing=False)
    return clock, MemoryStore(clock)


def test_times_are_those_of_the_clock_and_the_offset() -> None:
    """M11, M4: without an offset every instant is that of the clock; an offset moves leases, shown times and fencing
    tokens alike."""
    clock, store = still()
    assert store.offset == 0.0
    answer = ask(store, "k", "t", lock_delay=5.0)
    assert isinstance(answer, Held)
    assert answer.lease.fencing_token == int(clock.wall() * 1e6)
    assert (answer.lease.left, answer.lease.waited) == (10.0, 0.0)
    clock.move(4)
    seen = step(store.status("k", timeout=LIMIT))
    assert (seen.expires_in, seen.free_in) == (6.0, 11.0)
    shown = (seen.acquired_at, seen.expires_at, seen.free_at)
    assert shown == pytest.approx((clock.wall() - 4, clock.wall() + 6, clock.wall() + 11), abs=1e-3)
    store.offset = 20.0
    assert look(store, "k", "t") == Lost("expired")
    later = ask(store, "other", "t2")
    assert isinstance(later, Held)
    assert later.lease.fencing_token == int((clock.wall() + 20) * 1e6)
    other = step(store.status("other", timeout=LIMIT))
    assert other.expires_at == pytest.approx(clock.wall() + 30, abs=1e-3)


def test_a_closed_key_is_not_held_by_anybody_else() -> None:
    """A token that never had the key is told that it ran out, not that somebody took it, while the key is closed."""
    _, store = still()
    ask(store, "k", "t", hold_at_least=60.0)
    assert look(store, "k", "other") == Lost("taken")
    assert step(store.release("k", "t", timeout=LIMIT)) == Released()
    assert step(store.status("k", timeout=LIMIT)).state == "closed"
    assert look(store, "k", "other") == Lost("expired")


@pytest.mark.parametrize("beyond", [0.0, 5.0])
def test_a_mark_ends_with_its_window(beyond: float) -> None:
    """O5: at the end of the replay window a token may be granted again, and what ends it then is what is told."""
    clock, store = still()
    abandon(store, "k", "t")
    clock.move(REPLAY_WINDOW - 1.0)
    assert ask(store, "k", "t") == Contended(None, ended=True)
    clock.move(1.0 + beyond)
    assert isinstance(ask(store, "k", "t"), Held)
    assert step(store.force_release("k", timeout=LIMIT)) is True
    assert look(store, "k", "t") == Lost("force_released")


def test_an_abandon_of_what_is_not_held_is_always_remembered() -> None:
    """L12: a count protects a token that holds the key: beside another holder the claim is withdrawn."""
    _, store = still()
    ask(store, "k", "holder")
    abandon(store, "k", "gone", heard=5)
    assert step(store.release("k", "holder", timeout=LIMIT))
    assert ask(store, "k", "gone") == Contended(None, ended=True)


def test_a_forced_release_of_nothing_says_so() -> None:
    """L7: an open key, and a number that is not the holder's, are plain `False`."""
    _, store = still()
    assert step(store.force_release("k", timeout=LIMIT)) is False
    ask(store, "k", "t")
    assert step(store.force_release("k", fencing_token=1, timeout=LIMIT)) is False
    ask(store, "lapsed", "t2")
    store.offset = 30.0
    assert step(store.force_release("lapsed", timeout=LIMIT)) is False


def test_lapsed_records_do_not_pile_up_behind_one_that_lives() -> None:
    """M4, LIVE7: the oldest record lives for long; a thousand others lapse, and go as other keys are granted."""
    clock, store = still()
    ask(store, "long", "t", ttl=1e6)
    for n in range(1_000):
        ask(store, f"k{n}", f"t{n}")
    clock.move(10 + REPLAY_WINDOW + 1)
    for n in range(1_000):
        ask(store, "one", f"again{n}")
        step(store.release("one", f"again{n}", timeout=LIMIT))
    assert set(store._records) == {"long"}
    assert isinstance(look(store, "long", "t"), Held)


def test_only_marks_whose_window_is_over_are_forgotten() -> None:
    """O5, LIVE7: old marks go as keys are granted; a newer one stays and is still refused."""
    clock, store = still()
    for n in range(100):
        abandon(store, "k", f"old{n}")
    clock.move(REPLAY_WINDOW + 1)
    abandon(store, "k", "new")
    for n in range(64):
        ask(store, f"k{n}", f"t{n}")
    assert len(store._marks) == 1
    assert ask(store, "k", "new") == Contended(None, ended=True)


def test_a_watch_that_ended_leaves_nothing() -> None:
    """LIVE7: the last bell of a key takes its entry along; the others go on ringing."""
    _, store = still()
    rung: list[str] = []
    first = step(store.watch("k", lambda: rung.append("first")))
    second = step(store.watch("k", lambda: rung.append("second")))
    first()
    first()
    ask(store, "k", "t")
    step(store.release("k", "t", timeout=LIMIT))
    assert rung == ["second"]
    second()
    assert store._bells == {}


def test_what_it_says_of_itself() -> None:
    """A lease of this store does not end early."""
    _, store = still()
    assert store.assurance().early_loss is False
    assert store.assurance().exclusive == "process"


def test_a_forked_child_begins_anew() -> None:
    """L13: every memory store of the parent is empty in the child, and its waiters are not rung."""
    _, store = still()
    ask(store, "k", "t", ttl=60.0)
    step(store.watch("k", lambda: None))
    memory._forget_parents()  # what the child runs first
    assert (store._records, store._bells) == ({}, {})
    assert isinstance(ask(store, "k", "childs"), Held)


def opened(url: str, *, clock: MovableClock | None = None, namespace: str = "") -> MemoryStore:
    """The store of this URL, for real time or for a test clock."""
    return memory.open(url, face="blocking", options=Options(clock=clock or BlockingClock(), namespace=namespace))


def test_who_names_the_same_store_shares_it() -> None:
    """L8: by name, however it is spelled, namespace and test clock; closing it for one leaves it to the others."""
    store = opened("memory:test-shared")
    assert opened("memory://test-shared/") is store
    assert opened("memory:test-shared") is store
    for other in (opened("memory:test-other"), opened("memory:test-shared", namespace="n")):
        assert other is not store
    clock, second = MovableClock(), MovableClock()
    assert opened("memory:test-shared", clock=clock) is opened("memory:test-shared", clock=clock)
    assert opened("memory:test-shared", clock=clock) is not store
    assert opened("memory:test-shared", clock=clock) is not opened("memory:test-shared", clock=second)
    step(store.close())
    assert isinstance(ask(store, "k", "t", ttl=1.0), Held)


def test_a_memory_url_has_no_parameters() -> None:
    """L0: what follows a question mark would mean nothing: it is refused, and the error says what to do."""
    with pytest.raises(InvalidRequest, match="no parameters") as raised:
        opened("memory:name?size=3")
    assert raised.value.hint
    assert memory.place_of("memory://name/") == "name"
