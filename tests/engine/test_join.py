"""Joining: what is asked at the same time leaves as one batch, runs to its end, and nobody waits too long."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from leased.errors import AccessDenied, StoreUnavailable
from leased.join import Joined
from leased.model import Contended, Held, Released
from leased.timeline import Cancelled, Task
from tests.engine.rig import Rig, claim_on


class Bench:
    """A joined store whose every request takes so long, with faults on order."""

    def __init__(self, *, seconds: float = 1.0) -> None:
        self.rig = Rig()
        if seconds:
            self.rig.store.delay("acquire", seconds, times=float("inf"))
        self.joined = Joined(self.rig.store, self.rig.clock)

    def ask(self, key: str, *, timeout: float = 30.0, token: str | None = None) -> Task:
        """Begin an acquire."""
        return self.rig.start(self.joined.acquire(claim_on(key, token=token, ttl=100), timeout=timeout))

    def run(self, seconds: float = 0.0) -> None:
        """Let time pass."""
        self.rig.pass_time(seconds)

    @property
    def requests(self) -> int:
        """How many requests the store has got."""
        return self.rig.store.requests


def test_a_single_caller_goes_at_once_and_alone() -> None:
    """Nobody waits for company: the first caller's operation leaves at once, by the store's own method."""
    bench = Bench()
    task = bench.ask("k")
    bench.run(1.01)
    assert isinstance(task.result(), Held)
    assert [(call.at, call.batched) for call in bench.rig.store.calls] == [(0.0, False)]


def test_those_who_come_meanwhile_leave_together() -> None:
    """While one request is on its way the others gather, and leave as one after it."""
    bench = Bench(seconds=0.0)
    bench.rig.store.delay("acquire", 1.0, key="first")
    first = bench.ask("first")
    bench.run(0.5)
    others = [bench.ask(f"k{n}") for n in range(50)]
    bench.run(0.4)
    assert bench.requests == 1
    bench.run(0.2)
    assert bench.requests == 2
    assert isinstance(first.result(), Held)
    assert all(isinstance(task.result(), Held) for task in others)


def test_each_caller_gets_the_outcome_of_its_own_operation() -> None:
    """Grants, refusals, releases and errors of one batch reach who asked for them, and only them."""
    bench = Bench(seconds=0.0)
    rig = bench.rig
    rig.occupied("taken")
    rig.store.delay("look", 1.0)
    blocker = rig.start(bench.joined.look("x", "token", timeout=9))
    bench.run(0.1)
    rig.store.fail("acquire", AccessDenied("no"), key="denied")
    tasks = [bench.ask(key) for key in ("free", "taken", "denied", "other")]
    released = rig.start(bench.joined.release("free", "nobodys-token", timeout=9))
    bench.run(2)
    assert isinstance(tasks[0].result(), Held)
    assert isinstance(tasks[1].result(), Contended)
    with pytest.raises(AccessDenied):
        tasks[2].result()
    assert isinstance(tasks[3].result(), Held)
    assert released.result() == Released("not_holder")
    assert blocker.done


def test_an_error_of_the_whole_batch_is_told_to_all_of_it() -> None:
    """A request that breaks leaves every member of it unknown; the next batch is not touched."""
    bench = Bench()
    first = bench.ask("first")
    bench.run(0.5)
    others = [bench.ask(f"k{n}") for n in range(3)]
    bench.rig.store.fail("many", StoreUnavailable("the connection broke"))

    async def broken(*args: object, **kwargs: object) -> None:
        raise StoreUnavailable("the connection broke")

    whole: Any = bench.rig.store
    original, whole.many = whole.many, broken
    bench.run(0.6)
    whole.many = original
    assert isinstance(first.result(), Held)
    for task in others:
        with pytest.raises(StoreUnavailable):
            task.result()
    last = bench.ask("last")
    bench.run(1.1)
    assert isinstance(last.result(), Held)


def test_a_caller_cancelled_before_sending_is_taken_out() -> None:
    """A member that has not left yet never leaves once its caller has gone; the others do."""
    bench = Bench()
    bench.ask("first")
    bench.run(0.5)
    gone, stays = bench.ask("gone"), bench.ask("stays")
    bench.run(0.1)
    gone.cancel()
    bench.run(3)
    assert isinstance(gone.error, Cancelled)
    assert isinstance(stays.result(), Held)
    assert bench.rig.store.asked("acquire", key="gone") == 0


def test_a_caller_cancelled_after_sending_only_stops_listening() -> None:
    """What has left runs to its end; its companions are answered."""
    bench = Bench()
    bench.ask("first")
    bench.run(0.5)
    gone, stays = bench.ask("gone"), bench.ask("stays")
    bench.run(1.0)
    gone.cancel()
    bench.run(5)
    assert isinstance(gone.error, Cancelled)
    assert isinstance(stays.result(), Held)
    assert bench.rig.held("gone")


def test_a_cancelled_leader_takes_nobody_down() -> None:
    """Whoever leads a batch and is cancelled at any moment: its followers are answered all the same."""
    for moment in (0.0, 0.5, 1.0, 1.2, 1.9):
        bench = Bench(seconds=0.4)
        first = bench.ask("first")
        bench.run(0.2)
        followers = [bench.ask(f"k{n}") for n in range(4)]
        bench.run(moment)
        for task in (first, followers[0]):
            task.cancel()
        bench.run(10)
        assert all(isinstance(task.result(), Held) for task in followers[1:])
        late = bench.ask("late")
        bench.run(1)
        assert isinstance(late.result(), Held)


def test_nobody_waits_beyond_his_own_time_out() -> None:
    """W2: a caller behind a hung request is back at his time-out; unsent means not applied, sent means unknown."""
    bench = Bench()
    bench.ask("alone")
    bench.rig.store.hang("acquire", key="stuck", past_timeout=True)
    bench.rig.store._faults.insert(0, bench.rig.store._faults.pop())
    stuck = bench.ask("stuck", timeout=60)
    bench.run(1.1)
    unsent = bench.ask("unsent", timeout=2)
    bench.run(2.01)
    with pytest.raises(StoreUnavailable) as raised:
        unsent.result()
    assert raised.value.applied is False
    assert not stuck.done
    assert bench.rig.store.asked("acquire", key="unsent") == 0
    bench.run(60)
    with pytest.raises(StoreUnavailable) as unknown:
        stuck.result()
    assert unknown.value.applied is None


def test_a_batch_has_the_time_of_its_most_patient_member() -> None:
    """The time-out of a batch is what the most patient of its members has left."""
    bench = Bench()
    bench.ask("first")
    bench.run(0.5)
    for timeout in (5.0, 9.0, 7.0):
        bench.ask(f"k{timeout}", timeout=timeout)
    bench.run(3)
    timeouts = [call.timeout for call in bench.rig.store.calls if call.batched]
    assert timeouts == pytest.approx([8.5] * 3)


def test_a_batch_has_a_largest_size() -> None:
    """More than a batch can hold leave in several, in order, and all are answered."""
    bench = Bench(seconds=0.0)
    bench.rig.store.delay("acquire", 1.0, key="first")
    bench.ask("first")
    bench.run(0.5)
    tasks = [bench.ask(f"k{n}") for n in range(1_100)]
    bench.run(2)
    assert all(isinstance(task.result(), Held) for task in tasks)
    assert bench.requests == 1 + 3


def test_what_is_not_joined_goes_straight_through() -> None:
    """Status, list, forced releases, watches and batches do not wait for others."""
    bench = Bench()
    bench.rig.store.hang("acquire", past_timeout=True)
    bench.rig.store._faults.insert(0, bench.rig.store._faults.pop())
    bench.ask("stuck")
    rig, joined = bench.rig, bench.joined
    rang: list[Callable[[], None] | str] = []
    assert rig.run(joined.status("k", timeout=1), until=rig.timeline.now).state == "free"
    assert rig.run(joined.list("", after="", limit=9, timeout=1), until=rig.timeline.now) == []
    assert rig.run(joined.force_release("k", timeout=1), until=rig.timeline.now) is False
    unwatch = rig.run(joined.watch("k", lambda: rang.append("rang")), until=rig.timeline.now)
    unwatch()
    assert rig.run(joined.many([], timeout=1), until=rig.timeline.now) == []
    assert joined.assurance() == rig.memory.assurance()
    assert joined.mode == "any"
    rig.store.let_go()


@pytest.mark.parametrize("keeps_line", [True, False])
def test_a_claim_that_waits_in_the_line_of_the_store_holds_up_nobody(*, keeps_line: bool) -> None:
    """A store with a line of its own gets waiting claims one by one, beside whatever else is asked; others are asked in
    batches as ever."""
    rig = Rig()
    joined = Joined(rig.store, rig.clock, keeps_line=keeps_line)
    rig.store.delay("acquire", 5.0, key="waiting")
    waiting = rig.start(joined.acquire(replace(claim_on("waiting"), wait=5.0), timeout=30.0))
    rig.pass_time(1.0)
    other = rig.start(joined.acquire(claim_on("other"), timeout=30.0))
    rig.pass_time(1.0)
    assert other.done is keeps_line
    rig.pass_time(10.0)
    assert isinstance(waiting.result(), Held)
    assert isinstance(other.result(), Held)
