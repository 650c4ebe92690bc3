"""The memory store beyond the contract: times, what is forgotten and what is not, and which URLs share a store."""

from __future__ import annotations

import gc
from dataclasses import fields
from typing import Any

import pytest

from bench.counting import bytes_kept
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


def filled(count: int) -> tuple[MovableClock, MemoryStore]:
    """A store with so many leases that were all granted a while ago, and then laid to rest."""
    clock, store = still()
    for number in range(count):
        ask(store, f"key-{number}", f"t{number}", ttl=1e6)
    clock.move(memory._SETTLES_AFTER)
    for number in range(count):  # two rounds: what came after the first began has its turn in the second
        ask(store, "other", f"o{number}")
        step(store.release("other", f"o{number}", timeout=LIMIT))
    return clock, store


def test_the_collector_does_not_look_at_what_is_held_for_long() -> None:
    """LIVE7, a million leases: of those that have been here for a while Python's collector sees none."""
    _, store = filled(2_000)
    gc.collect()
    assert sum(gc.is_tracked(record) for record in store._records.values()) == 0


def test_a_lease_at_rest_is_as_it_was() -> None:
    """L4, L7: whatever is asked of a lease that was laid to rest is answered as if it had not been, and it rests again
    after its renewal."""
    clock, store = filled(100)
    seen = step(store.status("key-7", timeout=LIMIT))
    assert isinstance(store._records["key-8"], tuple)
    assert (seen.state, seen.owner, seen.key) == ("held", None, "key-7")
    assert [one.key for one in step(store.list("key-7", after="", limit=3, timeout=LIMIT))] == [
        "key-7",
        "key-70",
        "key-71",
    ]
    renewed = step(store.renew("key-8", "t8", ttl=5.0, number=1, timeout=LIMIT))
    assert isinstance(renewed, Held)
    assert isinstance(store._records["key-8"], tuple)
    clock.move(6.0)
    assert isinstance(look(store, "key-8", "t8"), Lost)
    assert isinstance(look(store, "key-9", "t9"), Held)
    assert step(store.release("key-9", "t9", timeout=LIMIT))
    assert "key-9" not in store._records
    assert step(store.force_release("key-10", timeout=LIMIT)) is True
    assert isinstance(look(store, "key-10", "t10"), Lost)


def test_what_a_holder_said_of_itself_outlives_the_rest() -> None:
    """L7: terms, owner and texts of a lease that was laid to rest are those of its claim, all that there are."""
    assert {field.name for field in fields(Terms)} == {
        "max_hold", "hold_at_least", "lock_delay", "held_by", "metadata",
    }  # fmt: skip
    clock, store = still()
    terms = Terms(max_hold=500.0, hold_at_least=1.0, lock_delay=20.0, held_by="import@host:7", metadata='{"a":1}')
    assert isinstance(step(store.acquire(Claim("k", "t", 100.0, "owner", terms=terms), timeout=LIMIT)), Held)
    before = step(store.status("k", timeout=LIMIT))
    clock.move(memory._SETTLES_AFTER)
    store._settle("k", store._find("k"), clock.now())  # type: ignore[arg-type]  # it is there
    assert isinstance(store._records["k"], tuple)
    (shown,) = step(store.list("", after="", limit=1, timeout=LIMIT))
    assert (shown.owner, shown.held_by, shown.metadata) == ("owner", "import@host:7", {"a": 1})
    assert shown.expires_in == pytest.approx(before.expires_in - memory._SETTLES_AFTER)  # type: ignore[operator]
    assert shown.free_in == pytest.approx(shown.expires_in + 20.0)  # type: ignore[operator]
    record = store._find("k")
    assert record is not None
    assert record.terms == terms


def test_a_lease_takes_up_little() -> None:
    """A million held leases: 700 bytes each with owner, metadata and their order in the store, as it may be."""
    _, store = still()

    def hold(number: int) -> None:
        terms = Terms(held_by=f"import@host-17:{number}", metadata=f'{{"customer":"{number}"}}')
        claim = Claim(f"key-{number:09}", f"token-{number:026}", 1e6, f"task-{number}", terms=terms)
        assert isinstance(step(store.acquire(claim, timeout=LIMIT)), Held)

    assert bytes_kept(hold, count=20_000) <= 800
