"""An interrupt at any point of a joined call on the blocking face: whoever comes next is served."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Literal

import pytest

from leased.clocks import BlockingClock, step
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.join import Joined, _Member
from leased.model import Look, Lost
from leased.store import Outcome
from leased.stores.memory import MemoryStore
from tests.faces.interrupts import Interrupts


@pytest.fixture(autouse=True)
def _quiet_leftovers() -> Iterator[None]:
    """A coroutine that an interrupt kept from starting is reported by the interpreter: that is not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
        gc.collect()  # now, or one that frames keep alive would be reported in the middle of another test


class Blocking(MemoryStore):
    """A memory store for blocking callers only."""

    mode: Literal["blocking", "async", "any"] = "blocking"


class Flag:
    """A signal that says whether it was set."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """See `leased.store.Signal`."""
        self.is_set = True

    async def wait(self, seconds: float) -> bool:
        """Nobody waits for it."""
        raise AssertionError


def _look(joined: Joined) -> object:
    return step(joined.look("k", "t", timeout=1.0))


@pytest.mark.parametrize("crowded", [False, True], ids=["alone", "as one of a batch"])
@pytest.mark.parametrize("fails", [False, True], ids=["answered", "refused"])
def test_an_interrupt_at_any_point_leaves_the_lead_to_others(crowded: bool, fails: bool) -> None:
    """C007, L12: wherever `KeyboardInterrupt` strikes a caller, alone or at the head of a batch, the lead is free
    afterwards: the next two callers are served at once, and nobody is left in the queue."""
    at = 0
    while True:
        store = Blocking(BlockingClock())
        joined = Joined(store, BlockingClock())
        joined._crowded = crowded  # as after a batch of several threads
        interrupts = Interrupts(at=at)
        if fails:
            store._closed = True
        try:
            interrupts.run(partial(_look, joined))
        except KeyboardInterrupt:
            assert interrupts.struck
        except StoreNotUsable:
            assert fails
        store._closed = False
        if not interrupts.struck:
            break
        assert joined._waiting == []
        for _ in range(2):
            try:
                step(joined.look("k", "t", timeout=0.05))
            except StoreUnavailable as error:
                pytest.fail(f"interrupted {interrupts.where}: {error}")
        at += 1
    assert at > 10


@pytest.mark.parametrize("crowded", [False, True], ids=["alone", "as one of a batch"])
def test_an_interrupt_at_any_point_wakes_the_thread_that_has_the_lead(crowded: bool) -> None:
    """C007, L12: another thread waits for its turn while this one is struck, alone or at the head of a batch: wherever
    that was, the other has the lead and knows it."""
    at = 0
    while True:
        joined = Joined(Blocking(BlockingClock()), BlockingClock())
        joined._crowded = crowded
        interrupts = Interrupts(at=at)
        signal = Flag()
        other = _Member(Look("other", "t"), give_up_at=1e12, signal=signal)
        joined._waiting.append(other)
        with suppress(KeyboardInterrupt):
            interrupts.run(partial(_look, joined))
        if not interrupts.struck:
            break
        if joined._busy:
            assert (other.leads, signal.is_set) == (True, True), interrupts.where
        at += 1
    assert at > 10
    assert joined._waiting == [other]


class _Answered(Joined):
    """Another thread answers a caller between his look at the clock and his leaving."""

    outcome: Outcome

    def _withdraw(self, member: _Member) -> bool:
        super()._withdraw(member)
        member.outcome, member.answered = self.outcome, True
        return False


@pytest.mark.parametrize(
    "outcome", [Lost("expired"), StoreUnavailable("cut off", applied=None)], ids=["answer", "error"]
)
def test_an_answer_in_the_moment_of_the_time_out_counts(outcome: Outcome) -> None:
    """W2: he gets that answer; one that is an error is raised as any other, and never returned as if it were one."""
    joined = _Answered(Blocking(BlockingClock()), BlockingClock())
    joined.outcome, joined._busy = outcome, True  # another's call is under way
    if isinstance(outcome, StoreUnavailable):
        with pytest.raises(StoreUnavailable, match="cut off"):
            step(joined.release("k", "t", timeout=0.0))
    else:
        assert step(joined.release("k", "t", timeout=0.0)) == outcome
