"""Places in the line: what leaving undoes, what a late or failed watch does, and what waiting costs."""

from contextlib import suppress
from typing import Any

import pytest

from leased.errors import StoreUnavailable
from leased.hold import Hold
from leased.model import Contended
from leased.queue import Place
from leased.timeline import Task
from tests.engine.rig import Rig, claim_on
from tests.faces.interrupts import Interrupts


def waiter(rig: Rig, *, wait: float = 600.0, **how: Any) -> Task:
    """Somebody of this process who waits for the key, and has stood in line for a moment."""
    task = rig.start(rig.acquire(claim_on(**how), wait=wait))
    rig.pass_time(0.001)
    return task


def place_in(rig: Rig, *, waiting: bool = True, owner: str | None = None, cancelled: bool | None = None) -> Place:
    """A place of its own, in the line if it waits."""
    ended = None if cancelled is None else (lambda: cancelled)
    place = Place(rig.env.lines, claim_on(owner=owner), clock=rig.clock, waiting=waiting, cancelled=ended)
    if waiting:
        place.join()
    return place


def takes_over(rig: Rig, *, owner: str | None) -> None:
    """Another process takes the key, without anybody here being told."""
    rig.memory._records.clear()
    rig.occupied(owner=owner, ttl=10_000)


def test_leaving_again_frees_nobody_elses_reservation() -> None:
    """O1, L12: a place that has left may be left again, as after an interrupt: the owner is another's by then."""
    rig = Rig()
    first, second = (place_in(rig, waiting=False, owner="run-7") for _ in range(2))
    assert first.may_ask() is True
    assert second.may_ask() is False
    first.leave()
    assert second.may_ask() is True
    first.leave()
    assert place_in(rig, waiting=False, owner="run-7").may_ask() is False


def test_an_interrupt_as_one_leaves_frees_nobody_elses_reservation() -> None:
    """O1, L12: wherever an interrupt strikes who leaves, he leaves again, and by then another claim of the owner may be
    asking: that one keeps the owner to itself, and if nobody took it, the owner is free."""
    for taken, waiting in ((True, False), (False, False), (True, True), (False, True)):
        at, struck = 0, True
        while struck:
            rig = Rig()
            first = place_in(rig, waiting=waiting, owner="run-7")
            assert first.may_ask() is True
            interrupts = Interrupts(at=at)
            with suppress(KeyboardInterrupt):
                interrupts.run(first.leave)
            struck, at = interrupts.struck, at + 1
            second = place_in(rig, waiting=False, owner="run-7")
            free = taken and second.may_ask()
            first.leave()
            assert place_in(rig, waiting=False, owner="run-7").may_ask() is not free, interrupts.where
            assert rig.env.lines.waiting("k") == 0
        assert at > 4


def test_leaving_again_leaves_a_newer_line_alone() -> None:
    """L12: the line of a place that has left is another line than the one that begins after it."""
    rig = Rig()
    first = place_in(rig)
    first.leave()
    second = place_in(rig)
    first.leave()
    assert rig.env.lines.waiting("k") == 1
    assert second.may_ask() is True
    assert first.seen is None


def test_who_never_asked_gives_nobody_elses_owner_back() -> None:
    """O1: a waiter whose owner is reserved by another claim leaves: the owner stays reserved."""
    rig = Rig()
    asks, waits = place_in(rig, waiting=False, owner="run-7"), place_in(rig, owner="run-7")
    assert asks.may_ask() is True
    assert waits.may_ask() is False
    waits.leave()
    assert place_in(rig, owner="run-7").may_ask() is False


def test_a_block_that_begins_under_a_bare_hold_keeps_its_owner_out() -> None:
    """O1: from `block_began` to `block_ended` of that hold other claims of the owner are not asked; those of others,
    and claims without an owner, are."""
    rig = Rig()
    hold, other = object(), object()
    rig.env.lines.block_began("k", "run-7", hold=hold)
    rig.env.lines.block_began("k", "run-7", hold=other)
    rig.env.lines.block_began("k", None, hold=hold)
    assert place_in(rig, waiting=False, owner="run-7").may_ask() is False
    assert place_in(rig, waiting=False, owner="run-8").may_ask() is True
    assert place_in(rig, waiting=False).may_ask() is True
    rig.env.lines.block_ended("k", "run-7", hold=other)
    assert place_in(rig, waiting=False, owner="run-7").may_ask() is False
    rig.env.lines.block_ended("k", "run-7", hold=hold)
    assert place_in(rig, waiting=False, owner="run-7").may_ask() is True


def test_single_tries_of_one_owner_are_not_asked_together() -> None:
    """O1: of two single tries of an owner that come together one is asked; the other is contention without asking."""
    rig = Rig()
    rig.store.delay("acquire", 0.5, times=9)
    tasks = [rig.start(rig.acquire(claim_on(owner="run-7"), wait=0)) for _ in range(2)]
    rig.pass_time(1)
    assert sorted(type(task.result()).__name__ for task in tasks) == ["Contended", "Hold"]
    assert len(rig.asked("acquire")) == 1


def test_the_owner_of_a_new_holder_is_called_from_the_middle_of_the_line() -> None:
    """W4, O3: the front learns of a new holder: whoever waits with its owner asks in the same instant."""
    rig = Rig()
    rig.store.deaf = True
    rig.occupied(owner="other", ttl=10_000)
    front, mine = waiter(rig), waiter(rig, owner="run-7")
    rig.pass_time(10)
    takes_over(rig, owner="run-7")
    before = len(rig.asked("acquire"))
    while len(rig.asked("acquire")) == before:
        rig.pass_time(0.01)
    rig.pass_time(0.0)
    assert isinstance(mine.result(), Hold)
    assert not front.done


def test_who_was_called_for_a_holder_that_went_waits_its_turn_again() -> None:
    """W4: a waiter called for its owner is refused, for the key went to a stranger meanwhile: only the front goes on
    asking."""
    rig = Rig()
    rig.store.deaf = True
    rig.occupied(owner="run-7", ttl=10_000)
    waiter(rig)
    rig.store.delay("acquire", 0.2)
    mine = waiter(rig, owner="run-7")
    takes_over(rig, owner="other")
    rig.pass_time(2)
    calls = [call.token for call in rig.store.calls if call.operation == "acquire"]
    rig.pass_time(60)
    later = [call.token for call in rig.store.calls if call.operation == "acquire"][len(calls) :]
    assert not mine.done
    assert len(set(later)) == 1


def test_who_leaves_from_the_middle_wakes_nobody() -> None:
    """W4: waiters behind the front give up: the front asks no more often for that."""
    rig = Rig()
    rig.occupied(ttl=10_000)
    waiter(rig)
    behind = [waiter(rig) for _ in range(10)]
    rig.pass_time(5.5)
    before = len(rig.asked("acquire"))
    for task in behind:
        task.cancel()
        rig.pass_time(0.001)
    assert all(task.done for task in behind)
    assert len(rig.asked("acquire")) <= before + 1


@pytest.mark.parametrize("wait", [0.3, 2.6, 10.0])
def test_a_wait_behind_the_front_ends_in_time(wait: float) -> None:
    """W2: a waiter that never reaches the front waits neither shorter nor longer than it was to."""
    rig = Rig()
    rig.occupied(ttl=10_000)
    waiter(rig)
    started = rig.timeline.now
    behind = rig.start(rig.acquire(claim_on(), wait=wait))
    rig.pass_time(wait - 0.001)
    assert not behind.done
    rig.pass_time(0.002)
    assert isinstance(behind.result(), Contended)
    assert rig.timeline.now == pytest.approx(started + wait, abs=0.002)


def test_the_callers_event_ends_a_wait_behind_the_front() -> None:
    """L4: `cancelled` is looked at also by those who may not ask yet."""
    rig = Rig()
    rig.occupied(ttl=10_000)
    waiter(rig)
    stopped = False
    behind = rig.start(rig.acquire(claim_on(), wait=600, cancelled=lambda: stopped))
    rig.pass_time(10)
    assert not behind.done
    stopped = True
    rig.pass_time(0.06)
    assert isinstance(behind.result(), Contended)


def test_the_store_may_keep_a_claim_for_what_is_left_or_between_two_looks() -> None:
    """W1, L4: in a store's own line a claim stays for what is left of its wait, and at most two seconds where the
    caller's event may end it; never less than nothing."""
    rig = Rig()
    plain, watched = place_in(rig), place_in(rig, cancelled=False)
    assert [plain.patience(left) for left in (-1.0, 0.5, 30.0)] == [0.0, 0.5, 30.0]
    assert [watched.patience(left) for left in (-1.0, 0.5, 30.0)] == [0.0, 0.5, 2.0]


def test_a_watch_that_failed_is_tried_again() -> None:
    """W3: after a watch that could not be begun the next rest begins another, whose bell is heard."""
    rig = Rig()
    held = rig.occupied(ttl=10_000)
    rig.store.fail("watch", StoreUnavailable("refused", applied=False))
    task = waiter(rig, ttl=60)
    rig.pass_time(10)
    assert rig.store.watches == 2
    rig.run(rig.memory.release("k", held.token, timeout=1), until=rig.timeline.now)
    rig.pass_time(0.0)
    assert isinstance(task.result(), Hold)


def test_a_watch_that_fails_after_its_line_has_gone_harms_nothing() -> None:
    """W3: there is nothing to end then, and nothing is left behind."""
    rig = Rig()
    rig.occupied(ttl=10_000)
    rig.store.delay("watch", 30)
    rig.store.lose_answer("watch")
    task = waiter(rig, wait=5)
    rig.pass_time(60)
    assert task.done
    assert rig.env.lines._lines == {}


def test_a_watch_that_hangs_is_not_begun_twice() -> None:
    """W3: polling goes on beside a watch that has not been answered; no other is begun."""
    rig = Rig()
    rig.occupied(ttl=10_000)
    rig.store.delay("watch", 30)
    waiter(rig)
    rig.pass_time(25)
    assert len(rig.asked("acquire")) >= 20
    assert rig.store.watches == 1


def test_a_nap_is_one_wait() -> None:
    """The front sleeps between two questions: it takes a few steps for each of them, however long the nap."""
    rig = Rig()
    rig.store.deaf = True
    rig.occupied(ttl=10_000)
    waiter(rig)
    rig.pass_time(5)
    asked, steps = len(rig.asked("acquire")), rig.timeline.steps
    rig.pass_time(60)
    assert rig.timeline.steps - steps <= 4 * (len(rig.asked("acquire")) - asked)
