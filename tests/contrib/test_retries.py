"""The lock as a decorator together with those of tenacity and stamina: each order, plain and async functions."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias, assert_type

import pytest
import stamina
import tenacity

import leased
from leased import aio
from leased.errors import LockNotAcquired
from tests.until import until

_numbers = itertools.count()
Decorate: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


class Broken(Exception):
    """What the function raises that runs under the lock."""


def retryable(error: BaseException) -> bool:
    """The line of the documentation."""
    return bool(getattr(error, "retryable", False))


def retried(library: str, *, on: Callable[[Exception], bool]) -> Decorate:
    """A retry of this library, as its users write it."""
    if library == "stamina":
        return stamina.retry(on=on, attempts=400, timeout=20, wait_initial=0.02, wait_max=0.02, wait_jitter=0)
    return tenacity.retry(
        retry=tenacity.retry_if_exception(on),  # type: ignore[arg-type]  # it is given what was raised
        wait=tenacity.wait_fixed(0.02),
        stop=tenacity.stop_after_delay(20),
        reraise=True,
    )


@pytest.fixture(params=["tenacity", "stamina"])
def library(request: pytest.FixtureRequest) -> str:
    """Which one retries."""
    name: str = request.param
    return name


@pytest.fixture(params=["blocking", "async"])
def face(request: pytest.FixtureRequest) -> str:
    """Whether functions block."""
    name: str = request.param
    return name


class Work:
    """A function that fails at first, and is called under a lock and a retry; it notes under which token it ran."""

    def __init__(self, url: str, *, failures: int, error: type[Exception] = Broken) -> None:
        self.tokens: list[int | None] = []
        self._url = url
        self._failures = failures
        self._error = error

    def __call__(self, number: int) -> str:
        """Fail, or give a value."""
        self.tokens.append(leased.current_fencing_token())
        if len(self.tokens) <= self._failures:
            raise self._error("the work failed")
        return f"done {number}"

    def run(self, face: str, order: str, *, retry: Decorate) -> Any:
        """Call it, decorated in this order: the outermost first."""

        def decorated(lock: Decorate, work: Callable[..., Any]) -> Callable[..., Any]:
            return retry(lock(work)) if order == "retry-lock" else lock(retry(work))

        if face == "blocking":
            with leased.connect(self._url) as locks:

                def work(number: int) -> str:
                    return self(number)

                return decorated(locks.lock("order:{number}", ttl=30), work)(7)

        async def work_async(number: int) -> str:
            await asyncio.sleep(0)
            return self(number)

        async def main() -> Any:
            async with aio.connect(self._url) as locks:
                return await decorated(locks.lock("order:{number}", ttl=30), work_async)(7)

        return asyncio.run(main())


@pytest.fixture
def url() -> str:
    """A store of this test alone."""
    return f"memory:retries-{next(_numbers)}"


@pytest.fixture
def others(url: str) -> Iterator[leased.Locks]:
    """Somebody else on that store."""
    with leased.connect(url) as found:
        yield found


def test_a_retry_around_the_lock_tries_again_until_the_key_is_free(
    library: str, face: str, url: str, others: leased.Locks
) -> None:
    """P1, P2: `LockNotAcquired` is retried; the function is called once, under its lease, and the key is free after."""
    work, refused = Work(url, failures=0), threading.Event()
    other = others.lock("order:7", ttl=30).acquire()

    def on(error: Exception) -> bool:
        if isinstance(error, LockNotAcquired):
            refused.set()
        return retryable(error)

    def free() -> None:
        assert refused.wait(20)
        other.release()

    thread = threading.Thread(target=free)
    thread.start()
    assert work.run(face, "retry-lock", retry=retried(library, on=on)) == "done 7"
    thread.join()
    assert len(work.tokens) == 1
    assert (work.tokens[0] or 0) > other.fencing_token
    assert others.status("order:7").state == "free"


def test_a_retry_within_the_lock_does_not_try_again_for_the_key(
    library: str, face: str, url: str, others: leased.Locks
) -> None:
    """P1: the lock is asked once, and the function is never called."""
    work = Work(url, failures=0)
    with others.lock("order:7", ttl=30), pytest.raises(LockNotAcquired) as caught:
        work.run(face, "lock-retry", retry=retried(library, on=lambda _: True))
    assert caught.value.key == "order:7"
    assert work.tokens == []


@pytest.mark.parametrize("order", ["retry-lock", "lock-retry"])
def test_a_function_that_fails_is_retried_as_its_error_says(
    library: str, face: str, url: str, others: leased.Locks, order: str
) -> None:
    """P1, P2: what the function raises comes through the lock unchanged: not `retryable` unless it says so itself, and
    retried where the caller names its class. Around the lock each attempt has a lease of its own; within it all have
    the same."""
    work = Work(url, failures=1)
    with pytest.raises(Broken, match="the work failed"):
        work.run(face, order, retry=retried(library, on=retryable))
    assert len(work.tokens) == 1
    work = Work(url, failures=2)
    assert work.run(face, order, retry=retried(library, on=lambda error: isinstance(error, Broken))) == "done 7"
    assert None not in work.tokens
    assert len(set(work.tokens)) == (3 if order == "retry-lock" else 1)
    assert work.tokens == sorted(work.tokens, key=lambda token: token or 0)
    assert others.status("order:7").state == "free"


@pytest.mark.parametrize("order", ["retry-lock", "lock-retry"])
def test_a_rejection_that_the_function_raises_is_retried_as_one(library: str, face: str, url: str, order: str) -> None:
    """P2: by its class nobody can tell it from that of the lock around: `LockStrategy` does."""

    class Other(LockNotAcquired):
        """Of a key that the function itself asks for."""

    work = Work(url, failures=2, error=Other)
    assert work.run(face, order, retry=retried(library, on=retryable)) == "done 7"
    assert len(work.tokens) == 3


def test_a_lost_lease_is_not_retried(library: str, url: str, others: leased.Locks) -> None:
    """P2, H4: `LockLost` is not `retryable`: the function ran, and nobody knows what of it must not be done twice."""
    calls: list[int] = []
    with leased.connect(url) as locks:

        @retried(library, on=retryable)
        @locks.lock("key", ttl=0.3)
        def lose() -> None:
            calls.append(1)
            assert others.force_release("key")
            until(lambda: leased.current().lost, what="the loss is known")

        with pytest.raises(leased.LockLost):
            lose()
    assert calls == [1]


def test_a_lost_lease_ends_the_retries_of_an_async_function(library: str, url: str, others: leased.Locks) -> None:
    """H3: within the lock, the task is cancelled in whatever attempt or nap it is, which no library retries."""
    calls: list[int] = []

    async def main() -> None:
        async with aio.connect(url) as locks:

            @locks.lock("key", ttl=0.3)
            @retried(library, on=lambda _: True)
            async def fail() -> None:
                calls.append(1)
                if len(calls) == 3:
                    assert others.force_release("key")
                raise Broken

            with pytest.raises(leased.LockLost):
                await asyncio.wait_for(fail(), 15)

    asyncio.run(main())
    assert len(calls) >= 3


def test_decorated_functions_keep_their_types(url: str) -> None:
    """P1: the order of decorators hides from type checkers neither arguments nor results."""
    locks, asynchronous = leased.connect(url), aio.connect(url)

    @stamina.retry(on=LockNotAcquired)
    @locks.lock("order:{number}")
    def plain(number: int) -> str:
        return str(number)

    @locks.lock("order:{number}")
    @stamina.retry(on=Broken)
    def within(number: int) -> str:
        return str(number)

    @stamina.retry(on=LockNotAcquired)
    @asynchronous.lock("order:{number}")
    async def awaited(number: int) -> str:
        return str(number)

    async def main() -> None:
        waiting: Awaitable[str] = awaited(7)
        assert_type(await waiting, str)
        await asynchronous.close()

    assert_type(plain(7), str)
    assert_type(within(number=7), str)
    asyncio.run(main())
    locks.close()
