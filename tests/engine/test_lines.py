"""The line of local waiters: who asks, who is woken, who is passed, and whose owner is reserved."""

from typing import Any

import pytest

from leased.errors import StoreUnavailable
from leased.hold import Hold
from leased.model import Contended
from leased.timeline import Cancelled, Task
from tests.engine.rig import Rig, claim_on


def waiter(rig: Rig, *, wait: float = 600.0, scoped: bool = False, **how: Any) -> Task:
    """Somebody of this process who waits for the key, and has stood in line for a moment."""
    task = rig.start(rig.acquire(claim_on(**how), wait=wait, scoped=scoped))
    rig.pass_time(0.001)
    return task


def asking(rig: Rig) -> set[str]:
    """The tokens that have asked the store."""
    return {call.token for call in rig.store.calls if call.operation == "acquire"}


def test_only_the_front_asks() -> None:
    """W4: of many waiters one asks, at least once a second; the others cost nothing."""
    rig = Rig()
    rig.store.deaf = True
    rig.occupied(ttl=10_000)
    for _ in range(200):
        waiter(rig)
    before = rig.store.requests
    rig.pass_time(60)
    assert len(asking(rig)) == 1
    assert 59 <= rig.store.requests - before <= 125
    assert rig.env.lines.waiting("k") == 200


def test_lines_of_different_keys_know_nothing_of_each_other() -> None:
    """C145: waiters of "job" and "job:1" each have a front of their own."""
    rig = Rig()
    for key in ("job", "job:1", "jobs"):
        rig.occupied(key, ttl=1_000)
        for _ in range(3):
            rig.start(rig.acquire(claim_on(key), wait=100))
    rig.pass_time(5)
    assert len(asking(rig)) == 3
    assert [rig.env.lines.waiting(key) for key in ("job", "job:1", "jobs", "jo")] == [3, 3, 3, 0]


def test_those_who_wait_are_served_in_order() -> None:
    """W4, W5: each release serves the next in line in the same instant, with about two requests a pass."""
    rig = Rig()
    held = rig.occupied(ttl=10_000)
    waiters = [waiter(rig, ttl=1_000) for _ in range(50)]
    rig.pass_time(5)
    before = rig.store.requests
    rig.run(rig.memory.release("k", held.token, timeout=1), until=rig.timeline.now)
    started = rig.timeline.now
    for task in waiters:
        rig.pass_time(0.0)
        hold = task.result()
        assert isinstance(hold, Hold)
        rig.run(rig.memory.release("k", hold.token, timeout=1), until=rig.timeline.now)
    assert rig.timeline.now == started
    assert rig.store.requests - before <= 3 * 50


def test_a_single_try_never_queues() -> None:
    """W4: with a line before it a single try asks the store all the same."""
    rig = Rig()
    rig.occupied(ttl=10_000)
    waiter(rig)
    assert isinstance(rig.run(rig.acquire(claim_on()), until=rig.timeline.now), Contended)
    assert len(asking(rig)) == 2


def test_a_waiter_that_never_reached_the_front_ends_without_asking() -> None:
    """W4: no attempt at the deadline."""
    rig = Rig()
    rig.occupied(ttl=10_000)
    waiter(rig)
    behind = waiter(rig, wait=10)
    rig.pass_time(11)
    outcome = behind.result()
    assert isinstance(outcome, Contended)
    assert outcome.status is not None
    assert len(asking(rig)) == 1


@pytest.mark.parametrize("moment", [0.0, 0.2, 1.0, 3.3])
def test_a_cancelled_front_lets_the_next_one_ask(moment: float) -> None:
    """L12, LIVE4: whenever the front is cancelled, the next one takes its place at once."""
    rig = Rig()
    held = rig.occupied(ttl=10_000)
    front, behind = waiter(rig), waiter(rig, ttl=1_000)
    rig.pass_time(moment)
    front.cancel()
    rig.pass_time(0.001)
    assert isinstance(front.error, Cancelled)
    assert len(asking(rig)) == 2
    rig.run(rig.memory.release("k", held.token, timeout=1), until=rig.timeline.now)
    rig.pass_time(1.01)
    assert isinstance(behind.result(), Hold)


def test_the_holders_owner_passes_the_line() -> None:
    """W4, O3: a waiter with the holder's owner asks at once, and takes over."""
    rig = Rig()
    rig.occupied(owner="run-7", ttl=10_000)
    stranger = waiter(rig, owner="other")
    mine = waiter(rig, owner="run-7")
    assert isinstance(mine.result(), Hold)
    assert not stranger.done


def test_an_owner_is_reserved_from_winning_to_the_blocks_end() -> None:
    """O1: while a claim of an owner is asked, and while its block runs, other claims of it are not."""
    rig = Rig()
    hold = rig.run(rig.acquire(claim_on(owner="run-7", ttl=60), scoped=True), until=rig.timeline.now)
    assert isinstance(hold, Hold)
    before = rig.store.requests
    assert isinstance(rig.run(rig.acquire(claim_on(owner="run-7")), until=rig.timeline.now), Contended)
    waiting = waiter(rig, owner="run-7")
    rig.pass_time(30)
    assert rig.store.requests == before
    assert not waiting.done
    rig.env.lines.block_ended("k", "run-7", hold=object())
    rig.pass_time(1)
    assert not waiting.done
    rig.env.lines.block_ended("k", "run-7", hold=hold)
    rig.pass_time(0.0)
    assert isinstance(waiting.result(), Hold)


def test_a_bare_grant_reserves_nothing() -> None:
    """O1: a bare hold can be taken over by its owner, here as anywhere."""
    rig = Rig()
    first = rig.granted(owner="run-7")
    second = rig.granted(owner="run-7")
    assert second.fencing_token > first.fencing_token
    assert rig.env.lines._reserved == {}


def test_two_claims_of_one_owner_are_asked_one_after_the_other() -> None:
    """O1: two gathered claims of an owner, both with blocks, never win one from the other."""
    rig = Rig()
    rig.store.delay("acquire", 0.5, times=99)
    first = rig.start(rig.acquire(claim_on(owner="run-7", ttl=100), wait=100, scoped=True))
    second = rig.start(rig.acquire(claim_on(owner="run-7", ttl=100), wait=100, scoped=True))
    rig.pass_time(5)
    winners = [task for task in (first, second) if task.done]
    assert len(winners) == 1
    assert len(asking(rig)) == 1
    hold = winners[0].result()
    assert hold.lost_reason(rig.clock.now()) is None


def test_a_barred_front_lets_others_pass() -> None:
    """C198, O1: a waiter that may not ask, for its owner's block still runs, stops nobody behind it."""
    rig = Rig()
    hold = rig.run(rig.acquire(claim_on(owner="run-7", ttl=10), scoped=True), until=rig.timeline.now)
    assert isinstance(hold, Hold)
    barred = waiter(rig, owner="run-7")
    passes = waiter(rig, ttl=60)
    rig.pass_time(11)
    assert isinstance(passes.result(), Hold)
    assert not barred.done


def test_a_failed_acquire_gives_its_owner_back() -> None:
    """O1, L12: refused, failed or cancelled, a claim leaves no reservation."""
    rig = Rig()
    rig.occupied(owner="other", ttl=1_000)
    rig.run(rig.acquire(claim_on(owner="run-7"), scoped=True), until=rig.timeline.now)
    rig.store.lose_request("acquire", times=2)
    with pytest.raises(StoreUnavailable):
        rig.run(rig.acquire(claim_on(owner="run-7"), scoped=True))
    cancelled = waiter(rig, owner="run-7", scoped=True)
    cancelled.cancel()
    rig.pass_time(1)
    assert (rig.env.lines._reserved, rig.env.lines._lines) == ({}, {})


def test_one_watch_serves_a_line_and_ends_with_it() -> None:
    """W3, W4: the watch is begun by the first who has to rest, and ended by the last who leaves."""
    rig = Rig()
    rig.occupied(ttl=1_000)
    tasks = [waiter(rig, wait=20) for _ in range(10)]
    rig.pass_time(5)
    assert rig.store.watches == 1
    assert len(rig.memory._bells["k"]) == 1
    rig.pass_time(20)
    assert all(task.done for task in tasks)
    assert rig.memory._bells == {}


def test_a_watch_that_comes_too_late_is_ended_at_once() -> None:
    """A watch that is answered after the line has gone is not left behind."""
    rig = Rig()
    rig.occupied(ttl=1_000)
    rig.store.delay("watch", 30)
    task = waiter(rig, wait=5)
    rig.pass_time(60)
    assert task.done
    assert rig.memory._bells == {}


def test_a_release_between_looking_and_watching_is_seen() -> None:
    """C084: watch first, then try again: what was released in between is granted without a nap."""
    rig = Rig()
    held = rig.occupied(ttl=1_000)
    rig.store.delay("watch", 0.01)
    task = waiter(rig, ttl=60)
    rig.run(rig.memory.release("k", held.token, timeout=1), until=rig.timeline.now)
    rig.pass_time(0.02)
    assert isinstance(task.result(), Hold)


def test_a_bell_that_rings_for_nothing_costs_one_question() -> None:
    """W3: a bell is a hint: the front asks again and goes on waiting."""
    rig = Rig()
    rig.occupied(ttl=1_000)
    task = waiter(rig)
    rig.pass_time(0.001)
    before = len(rig.asked("acquire"))
    for bell in tuple(rig.memory._bells["k"]):
        bell()
    rig.pass_time(0.001)
    assert len(rig.asked("acquire")) == before + 1
    assert not task.done
