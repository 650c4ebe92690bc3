"""`run` and `try_run`: the function under the lease, or not at all."""

import asyncio
import contextvars
import threading
from typing import Any

import pytest

import leased
from leased import InvalidRequest, LockLost, LockTimeout
from tests.faces.world import Async, World, done

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


async def test_a_result_unpacks_and_tells(world: World) -> None:
    """L3: `ran, value = run(fn, …)`; the result is true if it ran, and has `.lost` and `.handle`."""
    result = await done(world.locks.lock("k").run(lambda a, b, c=0: (a, b, c), 1, 2, c=3))
    ran, value = result
    assert (ran, value) == (True, (1, 2, 3))
    assert result
    assert result.lost is False
    assert (result.handle.key, result.handle.lost) == ("k", False)
    assert "(1, 2, 3)" in repr(result)
    assert not await world.held("k")


async def test_a_refused_run_calls_nothing(world: World) -> None:
    """L3, C079: without a grant the function is not called; `run` waits as the lock says, `try_run` never."""
    await world.occupy("k")
    called: list[int] = []
    lock = world.locks.lock("k", wait=0.02)
    for outcome in (await done(lock.run(called.append, 1)), await done(lock.try_run(called.append, 1))):
        ran, value = outcome
        assert (ran, value, bool(outcome), outcome.lost, outcome.handle) == (False, None, False, False, None)
    assert called == []
    with pytest.raises(LockTimeout):
        await done(lock.acquire())


async def test_try_run_can_never_wait(still_world: World) -> None:
    """L3: `try_run` makes one attempt whatever the lock's wait is (this clock stands still: a wait would hang)."""
    await still_world.occupy("k")
    assert not await done(still_world.locks.lock("k", wait=leased.FOREVER).try_run(lambda: 1))
    assert await done(still_world.locks.lock("free", wait=leased.FOREVER).try_run(lambda: 1))


async def test_a_run_waits_and_then_runs(world: World) -> None:
    """L3: `run` on a lock with a wait calls the function once it is granted."""
    held = await world.occupy("k")
    worker = world.start(lambda: world.locks.lock("k", wait=30).run(lambda: "ran"))
    await world.waiting("k")
    await done(held.release())
    assert (await worker.result()).value == "ran"


class Strange(BaseException):
    """Not an `Exception`."""


@pytest.mark.parametrize("error", [ValueError("mine"), KeyError("k"), Strange("mine"), TimeoutError("mine")])
async def test_errors_of_the_function_pass_through_unchanged(world: World, error: BaseException) -> None:
    """L3, C077: whatever the function raises comes out as the same object, and the key is free."""

    def fail() -> None:
        raise error

    for run in (world.locks.lock("k").run, world.locks.lock("k").try_run):
        with pytest.raises(type(error)) as raised:
            await done(run(fail))
        assert raised.value is error
        assert not hasattr(error, "__notes__")
        assert not await world.held("k")


async def test_a_lost_run_that_succeeded_gives_its_value(world: World) -> None:
    """H4: the lease is lost while the function runs, which succeeds: the value comes with `.lost`."""

    def work() -> str:
        world.move(40)
        return "value"

    result = await done(world.locks.lock("k", renew=False, if_lost="raise").run(work))
    assert (result.ran, result.value, result.lost) == (True, "value", True)
    assert result.handle.lost_reason == "expired"


async def test_a_lost_run_that_failed_is_a_loss_from_its_error(world: World) -> None:
    """H4: lost and failed is `LockLost` chained from the body's error."""
    error = ValueError("half done")

    def work() -> None:
        world.move(40)
        raise error

    with pytest.raises(LockLost) as raised:
        await done(world.locks.lock("k", renew=False, if_lost="return").run(work))
    assert raised.value.__cause__ is error


async def test_a_token_of_ones_own_reaches_the_store(world: World) -> None:
    """L4, O6: every way to ask takes `token=` and `request_id=`; the handle has that token."""
    tokens = [f"a-token-of-my-own-{number}" for number in range(4)]
    lock = world.locks.lock("k")
    for call in (lock.acquire, lock.try_acquire):
        handle = world.keep(await done(call(token=tokens[0] if call == lock.acquire else tokens[1], request_id="r")))
        await done(handle.release())
    assert (await done(lock.run(lambda: 1, token=tokens[2], request_id="r"))).handle.token == tokens[2]
    assert (await done(lock.try_run(lambda: 1, token=tokens[3], request_id="r"))).handle.token == tokens[3]
    assert [call.token for call in world.store.calls if call.operation == "acquire"] == tokens


@pytest.mark.parametrize("token", ["short", "x" * 256, "ä" * 30, b"bytes-instead-of-text", 7])
async def test_a_token_that_cannot_be_one_is_refused_unseen(world: World, token: Any) -> None:
    """S12: a token is 16 to 255 ASCII characters; the refusal does not show it."""
    with pytest.raises(InvalidRequest) as raised:
        await done(world.locks.lock("k").try_acquire(token=token))
    assert str(token) not in str(raised.value) or token == 7
    for good in ("y" * 16, "y" * 255):
        assert await done((await world.take(world.locks.lock("k"), token=good)).release())


async def test_the_function_sees_its_handle(world: World) -> None:
    """L10: inside the function `current()` is the handle that the result carries."""
    seen: list[Any] = []
    result = await done(world.locks.lock("k").run(lambda: seen.append(leased.current())))
    assert seen == [result.handle]
    assert leased.current() is None


def test_an_async_function_is_awaited_and_a_sync_one_runs_in_a_thread() -> None:
    """L3: on the async face `fn` may be async; a sync one runs in a worker thread with the caller's context."""
    world = World(Async())

    async def main() -> None:
        VARIABLE.set("mine")
        loop_thread = threading.get_ident()
        lock = world.locks.lock("k")

        async def in_loop() -> tuple[int, str]:
            await asyncio.sleep(0)
            return threading.get_ident(), VARIABLE.get()

        def in_thread() -> tuple[int, str]:
            return threading.get_ident(), VARIABLE.get()

        assert (await lock.run(in_loop)).value == (loop_thread, "mine")
        thread, variable = (await lock.run(in_thread)).value
        assert thread != loop_thread
        assert variable == "mine"
        assert (await lock.try_run(in_loop)).ran

    world.run(main)


def test_a_key_is_not_released_under_a_thread_that_still_runs() -> None:
    """L11, L12: a cancelled `run` keeps the key until its sync function has ended: nobody can stop it."""
    world = World(Async())

    async def main() -> None:
        running, finish, ended = threading.Event(), threading.Event(), threading.Event()

        def work() -> None:
            running.set()
            finish.wait(10)
            ended.set()

        task = asyncio.create_task(world.locks.lock("k").run(work))
        await world.until(running.is_set)
        task.cancel()
        other = world.start(lambda: world.locks.lock("k", wait=20).run(ended.is_set))
        await world.waiting("k")
        for _ in range(20):
            await world.face.breathe()
        assert await world.held("k")
        assert not other.over
        finish.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await other.result()).value is True

    world.run(main)
