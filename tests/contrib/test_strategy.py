"""A lock as a stage of a pipeline: what runs under it, what became of it, and how it goes with other stages."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, assert_type

import pytest
import stamina
import tenacity
from interlock import CircuitBreaker, Config
from interlock.errors import CallTimeoutError
from interlock.pipeline import CircuitBreakerStrategy, Pipeline, Strategy, TimeoutStrategy

import leased
from leased import aio
from leased.contrib.strategy import Execution, LockStrategy, execution
from leased.errors import InvalidRequest, LockLost, LockNotAcquired, LockTimeout
from tests.until import until

T = TypeVar("T")
_numbers = itertools.count()


@pytest.fixture
def url() -> str:
    """A store of this test alone."""
    return f"memory:strategy-{next(_numbers)}"


@pytest.fixture
def locks(url: str) -> Iterator[leased.Locks]:
    """Somebody else on the same store."""
    with leased.connect(url) as found:
        yield found


@pytest.fixture(params=["blocking", "async"])
def face(request: pytest.FixtureRequest) -> str:
    """Which kind of call."""
    name: str = request.param
    return name


def run(face: str, strategy: LockStrategy, call: Callable[[], T]) -> T:
    """Run it on this face."""
    if face == "blocking":
        return strategy.execute(call)

    async def awaited() -> T:
        return call()

    async def main() -> T:
        try:
            return await strategy.execute_async(awaited)
        finally:
            await strategy.aclose()

    return asyncio.run(main())


def test_it_runs_under_the_lease(url: str, face: str, locks: leased.Locks) -> None:
    """P1: the key comes from the execution, the fencing token is in it and in the context, and it is free after."""
    seen: list[Any] = []

    def call() -> str:
        seen.append((leased.current_fencing_token(), locks.status("order:7").fencing_token))
        return "value"

    with execution(order_id=7) as told:
        assert run(face, LockStrategy("order:{order_id}", store=url), call) == "value"
    assert (told.outcome, told.key) == ("done", "order:7")
    assert seen == [(told.fencing_token, told.fencing_token)]
    assert not locks.status("order:7").held


def test_a_key_that_is_made(url: str, face: str) -> None:
    """P1: a function of the execution makes the key as well; without an execution there are no values."""
    strategy = LockStrategy(lambda told: f"order:{told.values.get('order_id', 'none')}", store=url)
    with execution(order_id=8) as told:
        run(face, strategy, lambda: None)
    assert told.key == "order:8"
    run(face, LockStrategy("plain", store=url), lambda: None)


@pytest.mark.parametrize("wait", [0, 0.05])
def test_rejection_is_told_from_failure(url: str, face: str, locks: leased.Locks, wait: float) -> None:
    """P1: what was not run is `rejected`; what ran and failed is `failed`, whatever it raised."""
    ran: list[int] = []
    with execution() as told:
        other = locks.lock("key", ttl=30).acquire()
        with pytest.raises(LockTimeout if wait else LockNotAcquired) as caught:
            run(face, LockStrategy("key", store=url, wait=wait), lambda: ran.append(1))
        other.release()
        assert (told.outcome, told.fencing_token, ran) == ("rejected", None, [])
        assert caught.value.key == "key"

        def refuse() -> None:
            raise LockNotAcquired("of another key", key="other")

        with pytest.raises(LockNotAcquired, match="of another key"):
            run(face, LockStrategy("key", store=url), refuse)
        assert told.outcome == "failed"
        assert told.fencing_token is not None


def test_a_store_that_is_not_there(face: str) -> None:
    """Whether the key could be had is not known: neither rejected nor failed."""
    with execution() as told, pytest.raises(leased.StoreUnavailable):
        run(face, LockStrategy("key", store="redis://127.0.0.1:1"), lambda: None)
    assert told.outcome == "unavailable"


def test_a_lease_that_was_lost(url: str, face: str, locks: leased.Locks) -> None:
    """H4: what succeeded gives its value all the same; `on_lost` is told once, with execution and key."""
    lost: list[tuple[Execution, str]] = []
    strategy = LockStrategy("key", store=url, ttl=0.3, on_lost=lambda told, key: lost.append((told, key)))

    def call() -> str:
        assert locks.force_release("key")
        if face == "blocking":
            until(lambda: lost, what="the loss is told")
        else:
            until(lambda: leased.current().lost, what="the lease is over")
        return "value"

    with execution() as told:
        assert run(face, strategy, call) == "value"
    assert told.outcome == "lost"
    until(lambda: lost == [(told, "key")], what="the loss is told once")


def test_a_failure_under_a_lost_lease(url: str, face: str, locks: leased.Locks) -> None:
    """H4: both are told: `LockLost`, from the error of the call."""

    def call() -> None:
        locks.force_release("key")
        until(lambda: leased.current().lost, what="the lease is over")
        raise KeyError("x")

    with execution() as told, pytest.raises(LockLost) as caught:
        run(face, LockStrategy("key", store=url, ttl=0.3), call)
    assert isinstance(caught.value.__cause__, KeyError)
    assert told.outcome == "lost"


def test_on_asyncio_a_lost_lease_stops_the_call(url: str, locks: leased.Locks) -> None:
    """P1, H3: the call is cancelled, `LockLost` is raised, and an `on_lost` that is a coroutine function is awaited."""
    told: list[str] = []

    async def on_lost(_: Execution, key: str) -> None:
        await asyncio.sleep(0)
        told.append(key)

    async def call() -> None:
        locks.force_release("key")
        await asyncio.Event().wait()

    async def main() -> None:
        strategy = LockStrategy("key", store=url, ttl=0.3, on_lost=on_lost)
        with execution() as run, pytest.raises(LockLost):
            await strategy.execute_async(call)
        assert run.outcome == "lost"
        while not told:
            await asyncio.sleep(0.001)
        await strategy.aclose()

    asyncio.run(main())
    assert told == ["key"]


def test_the_caller_may_give_up(url: str, face: str, locks: leased.Locks) -> None:
    """P1: an abort while waiting ends the wait; nothing runs, nothing is held."""
    stop, other = threading.Event(), locks.lock("key", ttl=30).acquire()
    threading.Timer(0.1, stop.set).start()
    with execution(cancel=stop) as told, pytest.raises(LockNotAcquired, match="gave up waiting"):
        run(face, LockStrategy("key", store=url, wait=60), lambda: None)
    other.release()
    assert told.outcome == "rejected"
    assert not locks.status("key").held


def test_what_cannot_work_is_refused(url: str, locks: leased.Locks) -> None:
    """Keys without their values, `Locks` of the other face, and a hook that cannot be awaited."""
    with execution(order=1), pytest.raises(InvalidRequest, match=r"'order:\{order_id\}' cannot be filled in .*'order'"):
        LockStrategy("order:{order_id}", store=url).execute(lambda: None)

    async def other_face() -> None:
        async with aio.connect(url) as found:
            with pytest.raises(InvalidRequest, match="other face"):
                LockStrategy("key", store=found).execute(lambda: None)
            assert await LockStrategy("key", store=found).execute_async(found_one) == 1

    async def found_one() -> int:
        return 1

    asyncio.run(other_face())

    async def on_lost(_: Execution, __: str) -> None:
        raise AssertionError

    with pytest.raises(InvalidRequest, match="give a plain function"):
        LockStrategy("key", store=locks, on_lost=on_lost).execute(lambda: None)


def test_locks_that_were_given_stay_open(url: str, locks: leased.Locks) -> None:
    """Closing a strategy closes what it opened itself, and nothing else."""
    given, own = LockStrategy("key", store=locks), LockStrategy("key", store=url)
    for strategy in (given, own):
        strategy.execute(lambda: None)
        strategy.close()
    given.execute(lambda: None)
    with pytest.raises(leased.StoreNotUsable, match="closed"):
        own.execute(lambda: None)


def test_a_strategy_within_another_tells_nothing_to_the_outer_one(url: str) -> None:
    """P1: each call has the fencing token of its own lease, and the outer execution that of the outer lease."""
    outer, inner = (LockStrategy(name + ":{order}", store=url) for name in ("outer", "inner"))
    seen: list[Any] = []

    def within() -> None:
        seen.append(leased.current_fencing_token())

    def call() -> None:
        mine = leased.current_fencing_token()
        inner.execute(within)
        seen.append((told.key, told.fencing_token == mine, told.outcome))

    with execution(order=7) as told:
        outer.execute(call)
    assert seen[1] == ("outer:7", True, "running")
    assert seen[0] != told.fencing_token
    assert told.outcome == "done"


def test_an_execution_tells_of_one_attempt_at_a_time(url: str) -> None:
    """P1: two at once could take each other's fencing token for their own: the second is refused."""

    async def call() -> None:
        await asyncio.sleep(0.01)

    async def main() -> None:
        async with aio.connect(url) as locks:
            strategies = [LockStrategy(name, store=locks) for name in ("a", "b")]
            with execution() as told:
                ends = await asyncio.gather(*(one.execute_async(call) for one in strategies), return_exceptions=True)
            assert [type(end) for end in ends] == [type(None), InvalidRequest]
            assert told.outcome == "done"

    asyncio.run(main())


def test_work_that_is_left_for_later_is_refused(url: str) -> None:
    """What a call only begins would run without the lease."""

    async def coroutine() -> None:
        raise AssertionError

    def generator() -> Iterator[int]:
        yield 1

    calls: list[Callable[[], Any]] = [coroutine, generator]
    for call in calls:
        with execution() as told, pytest.raises(InvalidRequest, match="after the lease is over"):
            LockStrategy("key", store=url).execute(call)
        assert told.outcome == "failed"


class Retry:
    """A stage that retries what may work later, by tenacity, as its users write it."""

    def execute(self, call: Callable[[], T]) -> T:
        """Blocking."""
        return tenacity.Retrying(**RETRYING)(call)

    async def execute_async(self, call: Callable[[], Awaitable[T]]) -> T:
        """On asyncio."""
        return await tenacity.AsyncRetrying(**RETRYING)(call)


RETRYING: dict[str, Any] = {
    "retry": tenacity.retry_if_exception(lambda error: getattr(error, "retryable", False)),
    "wait": tenacity.wait_fixed(0.02),
    "stop": tenacity.stop_after_delay(20),
    "reraise": True,
}


def stages(store: Any) -> dict[str, Strategy]:
    """Fresh stages."""
    breaker = CircuitBreaker(name="orders", config=Config(minimum_number_of_calls=1000))
    return {
        "retry": Retry(),
        "lock": LockStrategy("key", store=store),
        "timeout": TimeoutStrategy(15.0),
        "breaker": CircuitBreakerStrategy(breaker),
    }


@pytest.mark.parametrize("order", list(itertools.permutations(["retry", "lock", "timeout"])), ids="-".join)
def test_every_order_of_stages_blocking(order: tuple[str, ...], locks: leased.Locks) -> None:
    """P1: retry, lock and timeout in any order: while another has the key nothing runs; then the call runs once, under
    the lease, and leaves nothing held. Rejections are retried only where the retry is outside of the lock."""
    found = stages(locks)
    pipeline = Pipeline(*(found[name] for name in order), found["breaker"])
    other = locks.lock("key", ttl=30).acquire()
    ran: list[int | None] = []

    def call(number: int) -> int:
        ran.append(locks.status("key").fencing_token)
        return number

    retries = order.index("retry") < order.index("lock")
    if retries:
        threading.Timer(0.2, other.release).start()
        assert_type(pipeline.call(call, 7), int)
    else:
        with pytest.raises(LockNotAcquired):
            pipeline.call(call, 7)
        assert ran == []
        other.release()
        assert pipeline.call(call, 7) == 7
    assert ran
    assert all(token is not None and token > other.fencing_token for token in ran)
    until(lambda: not locks.status("key").held, what="the key is free")


@pytest.mark.parametrize("order", list(itertools.permutations(["retry", "lock", "timeout"])), ids="-".join)
def test_every_order_of_stages_async(url: str, order: tuple[str, ...]) -> None:
    """As for blocking calls; the fencing token is also in the context of the call."""

    async def main() -> None:
        async with aio.connect(url) as locks:
            found = stages(locks)
            pipeline = Pipeline(*(found[name] for name in order), found["breaker"])
            other = await locks.lock("key", ttl=30).acquire()
            ran: list[int | None] = []

            async def call(number: int) -> int:
                ran.append(leased.current_fencing_token())
                return number

            if order.index("retry") < order.index("lock"):
                asyncio.get_running_loop().call_later(0.2, lambda: tasks.append(asyncio.ensure_future(other.release())))
                tasks: list[asyncio.Future[Any]] = []
                assert_type(await pipeline.call(call, 7), int)
                await asyncio.gather(*tasks)
            else:
                with pytest.raises(LockNotAcquired):
                    await pipeline.call(call, 7)
                assert ran == []
                await other.release()
                assert await pipeline.call(call, 7) == 7
            assert len(ran) == 1
            assert ran[0] is not None
            assert ran[0] > other.fencing_token
            assert not (await locks.status("key")).held

    asyncio.run(main())


def test_a_timeout_within_the_lock_on_asyncio(url: str) -> None:
    """P1: retry(lock(timeout(f))): f is cancelled under the lease, the key is free, and the next attempt runs."""

    async def main() -> None:
        async with aio.connect(url) as locks:
            retry = Retry()
            strategy = LockStrategy("key", store=locks)
            pipeline = Pipeline(retry, strategy, TimeoutStrategy(0.05))
            with pytest.raises(CallTimeoutError):
                await pipeline.call(asyncio.Event().wait)
            assert not (await locks.status("key")).held

    asyncio.run(main())


def test_a_timeout_stage_takes_a_wait_that_ran_out_for_its_own(url: str) -> None:
    """`LockTimeout` is a `TimeoutError`, and the package's asyncio timeout turns each of those into its own: around a
    lock use wait=0, which is `LockNotAcquired`."""

    async def main() -> None:
        async with aio.connect(url) as locks:
            other = await locks.lock("key", ttl=30).acquire()
            for wait, error in ((0.01, CallTimeoutError), (0.0, LockNotAcquired)):
                pipeline = Pipeline(TimeoutStrategy(15.0), LockStrategy("key", store=locks, wait=wait))
                with pytest.raises(error):
                    await pipeline.call(asyncio.Event().wait)
            await other.release()

    asyncio.run(main())


def test_a_timeout_around_the_lock_keeps_the_key_while_the_call_runs(locks: leased.Locks) -> None:
    """timeout(lock(f)) for blocking calls: nobody can stop a thread, so the key stays held until f has ended."""
    over = threading.Event()
    pipeline = Pipeline(TimeoutStrategy(0.2), LockStrategy("key", store=locks))
    with pytest.raises(CallTimeoutError):
        pipeline.call(over.wait)
    assert locks.status("key").held
    over.set()
    until(lambda: not locks.status("key").held, what="the key is free")


def test_a_strategy_is_a_stage_for_type_checkers(url: str) -> None:
    """It has the shape that the pipeline package asks for."""
    stage: Strategy = LockStrategy("key", store=url)
    assert isinstance(stage, Strategy)


def test_one_line_for_retry_libraries(locks: leased.Locks) -> None:
    """P2: `retryable` plugs every error into tenacity and stamina; what will never work is not tried again."""
    tries: list[int] = []

    def attempt() -> str:
        tries.append(1)
        with locks.lock("key"):
            return "done"

    retrying = [
        tenacity.retry(**RETRYING)(attempt),
        stamina.retry(on=lambda error: getattr(error, "retryable", False), attempts=200, wait_initial=0.02)(attempt),
    ]
    for attempt_again in retrying:
        tries.clear()
        other = locks.lock("key", ttl=30).acquire()
        threading.Timer(0.1, other.release).start()
        assert attempt_again() == "done"
        assert len(tries) > 1

    def never() -> None:
        tries.append(1)
        locks.lock("key", ttl=-1)

    tries.clear()
    with pytest.raises(InvalidRequest):
        tenacity.Retrying(**RETRYING)(never)
    assert len(tries) == 1


FORKS = """
import os, signal
from leased.contrib import strategy

guarded = strategy.LockStrategy("k", store="memory:")
with strategy._begins:  # as another thread has it, in the instant of the fork
    child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(guarded.execute(lambda: 7))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_waits_for_no_attempt_of_its_parent() -> None:
    """L13: a fork in the instant in which another thread begins an attempt leaves the child nothing that is locked."""
    ran = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "7"
