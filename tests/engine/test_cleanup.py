"""Handing back and shielding: how often the store is asked, for how long, and what ends it; who is interrupted when."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from leased.cleanup import hand_back, shielded
from leased.clocks import step
from leased.errors import AccessDenied, LeasedError, StoreNotUsable, StoreUnavailable
from leased.hold import Hold
from leased.policy import CLEANUP_BUDGET
from leased.store import Clock
from leased.timeline import Cancelled
from tests.engine.rig import Rig, claim_on


def test_a_hand_back_is_tried_again_at_growing_intervals_within_its_budget() -> None:
    """L12: 50 ms doubling, jittered; no try has more time than is left, and when the budget is used up it is over."""
    rig = Rig()
    rig.store.lose_request("abandon", times=1_000)
    task = rig.start(hand_back(rig.store, rig.env, claim_on()))
    rig.pass_time(CLEANUP_BUDGET + 0.001)
    assert task.done
    tries = [call for call in rig.store.calls if call.operation == "abandon"]
    naps = [later.at - earlier.at for earlier, later in pairwise(tries)]
    assert 4 <= len(naps) <= 6
    assert 0.025 <= naps[0] <= 0.051
    assert 0.05 <= naps[1] <= 0.11
    assert [call.timeout + call.at for call in tries] == pytest.approx([CLEANUP_BUDGET] * len(tries))


def test_a_try_has_no_more_time_than_any_operation() -> None:
    """L12: where an operation may take less than the budget, so may each try."""
    rig = Rig(timeout=0.2)
    rig.store.hang("abandon")
    task = rig.start(hand_back(rig.store, rig.env, claim_on()))
    rig.pass_time(CLEANUP_BUDGET + 0.001)
    assert task.done
    assert len(rig.asked("abandon")) in (3, 4)


@pytest.mark.parametrize("answer", [StoreNotUsable("gone"), AccessDenied("no")], ids=repr)
def test_what_would_not_help_is_not_tried_again(answer: LeasedError) -> None:
    """L12: a store that says no to a hand-back, or cannot be used, is asked once."""
    rig = Rig()
    rig.store.fail("abandon", answer, times=9)
    rig.run(hand_back(rig.store, rig.env, claim_on()), until=rig.timeline.now)
    assert len(rig.asked("abandon")) == 1


def test_a_hand_back_lets_the_next_one_here_ask_at_once() -> None:
    """W5: where the store has no bell, a waiter of this process gets the key in the instant of the hand-back, and it is
    asked for once."""
    rig = Rig()
    rig.store.deaf = True
    claim = rig.occupied(ttl=1_000)
    waiting = rig.start(rig.acquire(claim_on(ttl=60), wait=600))
    rig.pass_time(20.3)
    rig.run(hand_back(rig.store, rig.env, claim), until=rig.timeline.now)
    assert isinstance(waiting.result(), Hold)
    assert len(rig.asked("abandon")) == 1


def test_shielded_work_ends_before_its_cancelled_caller_goes() -> None:
    """L12: cancelled again and again, the caller stays until the work is done; then the cancellation is raised."""
    rig = Rig()
    done: list[float] = []

    async def work() -> None:
        await rig.clock.sleep(0.9)
        done.append(rig.clock.now())

    task = rig.start(shielded(rig.clock, work))
    for _ in range(5):
        rig.pass_time(0.1)
        task.cancel()
    rig.pass_time(0.3)
    assert not task.done
    rig.pass_time(0.2)
    assert len(done) == 1
    assert isinstance(task.error, Cancelled)
    assert rig.timeline.now == pytest.approx(1.0)


def test_shielded_work_that_nobody_interrupts_is_waited_for() -> None:
    """L12: the caller goes on in the instant in which the work is done, without an error."""
    rig = Rig()
    task = rig.start(shielded(rig.clock, lambda: rig.clock.sleep(0.5)))
    rig.pass_time(0.499)
    waited = not task.done
    rig.pass_time(0.002)
    assert (waited, task.done) == (True, True)
    assert task.error is None


@pytest.mark.parametrize("cancelled", [False, True])
def test_shielded_work_that_hangs_holds_its_caller_for_twice_the_budget(cancelled: bool) -> None:
    """LIVE10: the caller goes after two seconds, whatever became of the work, as it would have gone otherwise."""
    rig = Rig()
    task = rig.start(shielded(rig.clock, lambda: rig.clock.sleep(60)))
    rig.pass_time(1.2)
    if cancelled:
        task.cancel()
    rig.pass_time(0.79)
    waited = not task.done
    rig.pass_time(0.02)
    assert (waited, task.done) == (True, True)
    assert isinstance(task.error, Cancelled) is cancelled


def test_shielded_work_that_fails_lets_its_caller_go() -> None:
    """L12: the failure is that of the work; nobody waits for what has ended."""
    rig = Rig()

    async def work() -> None:
        await rig.clock.sleep(0.5)
        raise ZeroDivisionError("a bug")

    task = rig.start(shielded(rig.clock, work))
    rig.pass_time(0.51)
    assert task.done
    assert task.error is None
    assert [type(failed.error) for failed in rig.timeline.failures] == [ZeroDivisionError]
    rig.timeline.failures.clear()


def test_the_end_of_time_ends_a_shield() -> None:
    """L14: closed while it waits, as at the end of a process, it waits for nothing more."""
    rig = Rig()
    task = rig.start(shielded(rig.clock, lambda: rig.clock.sleep(0.5)))
    rig.pass_time(0.1)
    rig.timeline.close()
    assert task.error is None


class OwnThread:
    """A clock that runs started work in the caller's own thread; interrupts strike as the work does its steps."""

    def __init__(self, *interrupted: int) -> None:
        self.starts = 0
        self.time = 0.0
        self._interrupted = interrupted

    def now(self) -> float:
        """Time stands still."""
        return self.time

    def signal(self) -> Any:
        """One that nobody sets: waiting for it takes all the time there is."""
        clock = self

        class Unset:
            def set(self) -> None:
                """Nobody waits."""

            async def wait(self, seconds: float) -> bool:
                clock.time += seconds
                return False

        return Unset()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it to its end, unless this start is one of those that are interrupted."""
        self.starts += 1
        if self.starts in self._interrupted:
            work.close()
            raise KeyboardInterrupt(f"at start {self.starts}")
        step(work)
        if -self.starts in self._interrupted:
            raise KeyboardInterrupt(f"after start {self.starts}")


def _shielded_in(clock: Any, make_work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    used: Clock = clock
    step(shielded(used, make_work))


@pytest.mark.parametrize(
    ("interrupted", "starts", "finished", "raises"),
    [((), 1, 1, None), ((1,), 2, 1, "at start 1"), ((1, 2, 3), 2, 0, "at start 2"), ((-1,), 1, 1, "after start 1")],
)
def test_work_in_the_callers_own_thread_is_started_once_more(
    interrupted: tuple[int, ...], starts: int, finished: int, raises: str | None
) -> None:
    """C007, L12: an interrupt ends work that runs in the caller's own thread: it is started once more, and not a third
    time; what was done when the interrupt came is not done again. The interrupt is raised afterwards."""
    clock = OwnThread(*interrupted)
    done: list[None] = []

    async def work() -> None:
        done.append(None)

    if raises is None:
        _shielded_in(clock, work)
        assert clock.time == 0.0
    else:
        with pytest.raises(KeyboardInterrupt, match=raises):
            _shielded_in(clock, work)
    assert (clock.starts, len(done)) == (starts, finished)
    assert clock.time <= 2 * CLEANUP_BUDGET
    assert (clock.time == 0.0) is (finished == 1)


def test_an_unavailable_store_is_no_reason_to_raise() -> None:
    """L12: a hand-back tells nobody of its failure: there is nobody left."""
    rig = Rig()
    rig.store.fail("abandon", StoreUnavailable("away", applied=False), times=2)
    rig.run(hand_back(rig.store, rig.env, claim_on()), until=rig.timeline.now + 1)
    assert len(rig.asked("abandon")) == 3
