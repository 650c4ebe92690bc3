"""A lock in a pipeline with time-outs that run what is within in a thread: keys, what is told, and late calls."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
import tenacity
from interlock.errors import CallTimeoutError
from interlock.pipeline import Pipeline, Strategy, TimeoutStrategy

import leased
from leased.contrib.strategy import Execution, LockStrategy, execution
from leased.errors import InvalidRequest, LockNotAcquired
from tests.until import until

T = TypeVar("T")
_numbers = itertools.count()

ORDERS = [order.split("-") for order in ("retry-timeout-lock", "timeout-retry-lock", "timeout-lock-retry")]
"""Those in which the time-out runs the lock in another thread."""
WITHIN = [order.split("-") for order in ("retry-lock-timeout", "lock-retry-timeout", "lock-timeout-retry")]
"""Those in which the lock runs the time-out."""


@pytest.fixture
def locks() -> Iterator[leased.Locks]:
    """The locks of a store of this test alone."""
    with leased.connect(f"memory:strategy-timeouts-{next(_numbers)}") as found:
        yield found


class Retry:
    """A stage that retries what may work later, by tenacity, as its users write it."""

    def execute(self, call: Callable[[], T]) -> T:
        """Blocking."""
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: getattr(error, "retryable", False)),
            wait=tenacity.wait_fixed(0.02),
            stop=tenacity.stop_after_delay(20),
            reraise=True,
        )(call)

    async def execute_async(self, call: Any) -> Any:
        """Not used here."""
        raise AssertionError(call)


def pipeline_of(order: list[str], lock: Strategy, *, seconds: float) -> Pipeline:
    """The stages, outermost first."""
    found: dict[str, Strategy] = {"retry": Retry(), "lock": lock, "timeout": TimeoutStrategy(seconds)}
    return Pipeline(*(found[name] for name in order))


@pytest.mark.parametrize("order", ORDERS + WITHIN, ids="-".join)
def test_every_order_finds_its_values(order: list[str], locks: leased.Locks) -> None:
    """P1: with the execution given, a key is filled in and what happened is told, whatever thread a stage runs in."""
    with execution(id=7) as run:
        pipeline = pipeline_of(order, LockStrategy("order:{id}", store=locks).within(run), seconds=15)
        assert pipeline.call(lambda: (run.outcome, locks.status("order:7").fencing_token)) == (
            "running",
            run.fencing_token,
        )
    assert (run.outcome, run.key) == ("done", "order:7")
    assert run.fencing_token is not None


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_a_timeout_around_the_lock_that_fires(order: list[str], locks: leased.Locks) -> None:
    """P1: the call goes on under the lease, as the execution tells, and another attempt of it is refused meanwhile."""
    over, run = threading.Event(), Execution({"id": 7})
    lock = LockStrategy("order:{id}", store=locks).within(run)
    with pytest.raises(CallTimeoutError):
        pipeline_of(order, lock, seconds=0.2).call(lambda: over.wait(60))
    until(lambda: run.outcome == "running", what="the call is begun")
    assert locks.status("order:7").fencing_token == run.fencing_token
    with pytest.raises(InvalidRequest, match="another attempt under way"):
        lock.execute(lambda: None)
    over.set()
    until(lambda: run.outcome == "done", what="the call has ended")
    until(lambda: not locks.status("order:7").held, what="the key is free")


@pytest.mark.parametrize("order", WITHIN, ids="-".join)
def test_a_timeout_within_the_lock_that_fires(order: list[str], locks: leased.Locks) -> None:
    """P1: the attempt has failed and its key is free, although nobody could stop the thread."""
    over, run = threading.Event(), Execution({"id": 7})
    lock = LockStrategy("order:{id}", store=locks).within(run)
    with pytest.raises(CallTimeoutError):
        pipeline_of(order, lock, seconds=0.2).call(lambda: over.wait(60))
    assert (run.outcome, locks.status("order:7").held) == ("failed", False)
    over.set()


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_a_timeout_that_fires_while_the_lock_waits(order: list[str], locks: leased.Locks) -> None:
    """P1: once `cancel` is set the call is not run late, also when the key becomes free or a retry asks again."""
    stop, ran = threading.Event(), []
    run = Execution({"id": 7}, stop)
    other = locks.lock("order:7", ttl=30).acquire()
    lock = LockStrategy("order:{id}", store=locks, wait=60).within(run)
    with pytest.raises(CallTimeoutError):
        pipeline_of(order, lock, seconds=0.2).call(lambda: ran.append(1))
    stop.set()
    other.release()
    until(lambda: run.outcome == "rejected", what="the wait is given up")
    with pytest.raises(LockNotAcquired, match="gave up"):
        lock.execute(lambda: ran.append(2))
    until(lambda: not locks.status("order:7").held, what="the key is free")
    assert ran == []


def test_a_cancel_that_was_set_before_runs_nothing(locks: leased.Locks) -> None:
    """P1: a grant that comes as the caller gives up is handed back."""
    stop = threading.Event()
    stop.set()
    with execution(cancel=stop) as run, pytest.raises(LockNotAcquired, match="gave up"):
        LockStrategy("key", store=locks).execute(lambda: pytest.fail("it ran"))
    assert (run.outcome, run.fencing_token, locks.status("key").held) == ("rejected", None, False)


_meetings: list[Callable[[], None]] = []


class Interleaved(Execution):
    """An execution on which another attempt begins just after one has found it free."""

    def __getattribute__(self, name: str) -> Any:
        """The value as it was before the other attempt."""
        value = super().__getattribute__(name)
        if name == "asks" and _meetings:
            _meetings.pop()()
        return value


def test_two_threads_that_begin_at_once(locks: leased.Locks) -> None:
    """P1: one execution has one attempt under way, also when two threads look at the same instant."""
    run = Interleaved()
    ends: list[str] = []
    first, second = (LockStrategy(name, store=locks).within(run) for name in ("first", "second"))

    def begin() -> None:
        try:
            second.execute(lambda: ends.append("second"))
        except InvalidRequest:
            ends.append("refused")

    other = threading.Thread(target=begin)

    def meet() -> None:
        other.start()
        other.join(0.5)  # it ends only where nothing keeps it out

    _meetings.append(meet)

    def call() -> None:
        other.join(30)
        ends.append("first")

    first.execute(call)
    assert ends == ["refused", "first"]
