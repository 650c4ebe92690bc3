"""A lock as a decorator: around functions and generators, with keys made from arguments."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest

import leased
import leased.aio
from leased import InvalidRequest, LockNotAcquired
from tests.faces.world import Async, Blocking, World, done


def blocking() -> tuple[World, leased.Locks]:
    """A world of the blocking face, and its locks."""
    world = World(Blocking())
    return world, world.locks


def asynchronous() -> tuple[World, leased.aio.Locks]:
    """A world of the asyncio face, and its locks."""
    world = World(Async())
    return world, world.locks


def of_its_face(world: World, plain: Callable[..., Any]) -> Any:
    """The function itself, or an async one that does the same."""

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    coroutine.__signature__ = inspect.signature(plain)  # type: ignore[attr-defined]  # functions may carry one
    return plain if world.face.name == "blocking" else coroutine


def test_a_blocking_function_runs_under_the_key_of_its_arguments() -> None:
    """C077: each call locks the key that its arguments make, defaults and keywords included, and releases it."""
    _, locks = blocking()
    seen: list[str] = []

    @locks.lock("order:{order_id}:{kind}:{rest[0]}", ttl=10)
    def ship(order_id: int, /, *rest: str, kind: str = "plain") -> int:
        """Ship it."""
        seen.extend(status.key for status in locks.list())
        return order_id

    assert ship(7, "a") == 7
    assert ship(8, "b", kind="fast") == 8
    assert seen == ["order:7:plain:a", "order:8:fast:b"]
    assert locks.list() == []
    assert (ship.__name__, ship.__doc__) == ("ship", "Ship it.")
    assert list(inspect.signature(ship).parameters) == ["order_id", "rest", "kind"]


def test_an_async_function_runs_under_the_key_of_its_arguments() -> None:
    """C077: the async decorator does as the blocking one; arguments of `**options` are named by themselves."""
    _, locks = asynchronous()
    seen: list[str] = []

    @locks.lock("order:{order.id}:{kind}", ttl=10)
    async def ship(order: Any, **options: str) -> int:
        seen.extend(status.key for status in await locks.list())
        return int(order.id)

    class Order:
        id = 7

    async def main() -> None:
        assert inspect.iscoroutinefunction(ship)
        assert await ship(Order(), kind="fast") == 7
        assert seen == ["order:7:fast"]
        assert await locks.list() == []

    asyncio.run(main())


async def test_a_decorated_call_that_is_refused_does_not_run(world: World) -> None:
    """L2: a decorated function runs under a grant or not at all."""
    await world.occupy("job")
    called: list[int] = []
    job = world.locks.lock("job")(of_its_face(world, lambda: called.append(1)))
    with pytest.raises(LockNotAcquired):
        await done(job())
    assert called == []


def test_errors_and_early_returns_release_once() -> None:
    """C077: the body raises, returns early, or is nested: each key is released exactly once."""
    world, locks = blocking()

    @locks.lock("outer")
    def outer(how: str) -> str:
        return inner(how)

    @locks.lock("inner:{how}")
    def inner(how: str) -> str:
        if how == "raise":
            raise ValueError(how)
        return how

    assert outer("return") == "return"
    with pytest.raises(ValueError, match="raise"):
        outer("raise")
    assert locks.list() == []
    assert [world.store.asked("release", key=key) for key in ("outer", "inner:return", "inner:raise")] == [2, 1, 1]


def test_a_generator_holds_its_key_from_the_first_step_to_the_end() -> None:
    """C077: a decorated generator locks at its first step, not at the call; ends, `close` and errors release once."""
    world, locks = blocking()

    @locks.lock("k:{name}")
    def steps(name: str) -> Generator[str, str, None]:
        got = yield name
        yield got
        if name == "fails":
            raise ValueError(name)

    def held() -> list[str]:
        return [status.key for status in locks.list()]

    whole = steps("whole")
    assert held() == []
    assert next(whole) == "whole"
    assert held() == ["k:whole"]
    assert whole.send("sent") == "sent"
    assert list(whole) == []
    assert held() == []

    closed = steps("closed")
    next(closed)
    closed.close()
    assert held() == []

    with pytest.raises(ValueError, match="fails"):
        list(steps("fails"))
    assert held() == []
    assert world.store.asked("release") == 3


def test_an_async_generator_holds_its_key_from_the_first_step_to_the_end() -> None:
    """C077: as the blocking one, also when it is closed early or its task is cancelled."""
    world, locks = asynchronous()

    @locks.lock("k:{name}")
    async def steps(name: str) -> AsyncGenerator[str, None]:
        yield name
        await asyncio.sleep(60 if name == "cancelled" else 0)
        yield name

    async def held() -> list[str]:
        return [status.key for status in await locks.list()]

    async def consume() -> None:
        async for _ in steps("cancelled"):
            pass

    async def main() -> None:
        assert [value async for value in steps("whole")] == ["whole", "whole"]
        assert await held() == []
        closed = steps("closed")
        assert await anext(closed) == "closed"
        assert await held() == ["k:closed"]
        await closed.aclose()
        assert await held() == []

        task = asyncio.create_task(consume())
        await world.until(lambda: world.store.asked("acquire", key="k:cancelled"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await held() == []

    asyncio.run(main())


def test_methods_and_static_methods_can_be_decorated() -> None:
    """L1: `self` is an argument like any other, and format specifications work."""
    _, locks = blocking()

    class Job:
        name = "nightly"

        @locks.lock("job:{self.name}")
        def run(self) -> list[str]:
            return [status.key for status in locks.list()]

        @staticmethod
        @locks.lock("static:{n:03d}")
        def count(n: int) -> list[str]:
            return [status.key for status in locks.list()]

    assert Job().run() == ["job:nightly"]
    assert Job.count(7) == ["static:007"]


def takes_an_order(order_id: int) -> None:
    """A function with one parameter."""


@pytest.mark.parametrize(
    ("template", "word"), [("o:{order}", "order"), ("{}", "no parameter"), ("{0}", "0"), ("a{b", "a{b"), ("a}", "a}")]
)
async def test_a_template_that_cannot_work_is_refused_when_it_is_made(world: World, template: str, word: str) -> None:
    """A name that the function does not have, none, or a broken template fails at decoration and says what is there."""
    fn = of_its_face(world, takes_an_order)
    with pytest.raises(InvalidRequest) as raised:
        world.locks.lock(template)(fn)
    assert word in str(raised.value)
    assert "order_id" in str(raised.value) or "brace" in str(raised.value)


async def test_a_template_that_cannot_be_filled_in_is_refused_before_asking(world: World) -> None:
    """What a call's arguments cannot fill in, or fill in with a bad key, is `InvalidRequest`; nobody is asked."""

    def never(name: Any) -> None:
        pytest.fail("it ran")

    fn = of_its_face(world, never)
    with pytest.raises(InvalidRequest, match="name"):
        await done(world.locks.lock("order:{name.id}")(fn)(object()))
    with pytest.raises(InvalidRequest, match="filled in"):
        await done(world.locks.lock("order:{name:d}")(fn)("text"))
    for bad in ("", "x" * 256, "line\nbreak"):
        with pytest.raises(InvalidRequest) as raised:
            await done(world.locks.lock("{name}")(fn)(bad))
        assert raised.value.code == "LOCK_KEY_INVALID"
    with pytest.raises(TypeError):
        await done(world.locks.lock("{name}")(fn)(1, 2))
    assert world.store.requests == 0


async def test_a_value_with_braces_is_not_read_as_a_template(world: World) -> None:
    """Arguments are put into the key as they are: braces in them mean nothing."""

    def named(name: str) -> str:
        handle = leased.current()
        return str(handle.key)

    fn = world.locks.lock("{name}")(of_its_face(world, named))
    assert await done(fn("{name.__class__}")) == "{name.__class__}"


def test_each_face_refuses_the_other_kind_of_function() -> None:
    """A blocking lock around an async function would not lock its body, and the other way round: both are refused."""

    async def coroutine() -> None: ...

    async def async_steps() -> AsyncIterator[int]:
        yield 1

    def plain() -> None: ...

    def steps() -> Iterator[int]:
        yield 1

    for fn in (coroutine, async_steps):
        with pytest.raises(InvalidRequest, match=r"leased\.aio"):
            blocking()[1].lock("k")(fn)
    for other in (plain, steps):
        with pytest.raises(InvalidRequest, match=r"leased\.lock"):
            asynchronous()[1].lock("k")(other)


def test_a_lock_can_be_made_at_import_time() -> None:
    """L1, L8: a recipe of the module level opens nothing and uses the default that is set when it is called."""
    _, locks = blocking()

    @leased.lock("import-time:{n}")
    def work(n: int) -> list[str]:
        return [status.key for status in locks.list()]

    with leased.using_default(locks):
        assert work(1) == ["import-time:1"]
