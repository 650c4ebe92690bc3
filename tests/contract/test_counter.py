"""Eight clients count with an unprotected number under one lock, through the public faces, on every built-in store."""

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import leased
import leased.aio

CLIENTS = 8
ROUNDS = 12 if os.environ.get("LEASED_SOAK") else 6
WAIT = 30.0
STORES = ("memory", "sqlite", "valkey", "postgres", "mariadb", "etcd", "nats", "dynalite", "service")


class Counter:
    """A number that nothing protects, and the fencing tokens of those who raised it, in their order."""

    def __init__(self) -> None:
        self.number = 0
        self.inside = 0
        self.tokens: list[int] = []

    def begin(self, fencing_token: int | None) -> int:
        """Enter, and read the number."""
        self.inside += 1
        assert self.inside == 1, "two are inside at once"
        assert fencing_token is not None
        self.tokens.append(fencing_token)
        return self.number

    def end(self, read: int) -> None:
        """Write it back, one higher, and leave."""
        self.number = read + 1
        self.inside -= 1

    def check(self) -> None:
        """No count was lost, and fencing tokens rose from grant to grant."""
        assert self.number == CLIENTS * ROUNDS
        assert self.tokens == sorted(set(self.tokens))


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of this test's own: a file, a name, or a namespace on a server."""
    if request.param == "memory":
        return f"memory:{tmp_path.name}"
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/locks.db"
    server = request.getfixturevalue(f"{request.param}_server")
    return f"{server.url}{'&' if '?' in server.url else '?'}leased_namespace={secrets.token_hex(8)}"


@pytest.fixture
def counter() -> Counter:
    """A number at 0."""
    return Counter()


@pytest.mark.parametrize("form", ["block", "run", "handle"])
def test_threads_lose_no_count(url: str, counter: Counter, form: str) -> None:
    """Eight threads, each with locks of its own, wait for each other in every form of locking."""

    def work(fencing_token: int | None) -> None:
        read = counter.begin(fencing_token)
        time.sleep(0)
        counter.end(read)

    def count(begin: threading.Barrier) -> None:
        with leased.connect(url) as locks:
            lock = locks.lock("counter", wait=WAIT, ttl=WAIT)
            begin.wait()
            for _ in range(ROUNDS):
                if form == "block":
                    with lock as held:
                        work(held.fencing_token)
                elif form == "run":
                    assert lock.run(lambda: work(leased.current_fencing_token())).ran
                else:
                    with lock.acquire() as held:
                        work(held.fencing_token)

    _together(count)
    counter.check()


def _together(count: Callable[[threading.Barrier], None]) -> None:
    begin = threading.Barrier(CLIENTS)
    with ThreadPoolExecutor(CLIENTS) as threads:
        for running in [threads.submit(count, begin) for _ in range(CLIENTS)]:
            running.result()


@pytest.mark.parametrize("form", ["block", "run", "handle"])
def test_tasks_lose_no_count(url: str, counter: Counter, form: str) -> None:
    """Eight tasks, each with locks of its own, wait for each other in every form of locking."""

    async def work(fencing_token: int | None) -> None:
        read = counter.begin(fencing_token)
        await asyncio.sleep(0)
        counter.end(read)

    async def work_in_run() -> None:
        await work(leased.aio.current_fencing_token())

    async def count() -> None:
        async with leased.aio.connect(url) as locks:
            lock = locks.lock("counter", wait=WAIT, ttl=WAIT)
            for _ in range(ROUNDS):
                if form == "block":
                    async with lock as held:
                        await work(held.fencing_token)
                elif form == "run":
                    assert (await lock.run(work_in_run)).ran
                else:
                    async with await lock.acquire() as held:
                        await work(held.fencing_token)

    async def all_of_them() -> None:
        await asyncio.gather(*(count() for _ in range(CLIENTS)))

    asyncio.run(all_of_them())
    counter.check()


def test_threads_and_tasks_exclude_each_other(url: str, counter: Counter) -> None:
    """Both faces on one store are one crowd: four threads and four loops lose no count either."""

    def in_thread(begin: threading.Barrier) -> None:
        with leased.connect(url) as locks:
            begin.wait()
            for _ in range(ROUNDS):
                with locks.lock("counter", wait=WAIT, ttl=WAIT) as held:
                    counter.end(counter.begin(held.fencing_token))

    async def in_loop() -> None:
        async with leased.aio.connect(url) as locks:
            for _ in range(ROUNDS):
                async with locks.lock("counter", wait=WAIT, ttl=WAIT) as held:
                    read = counter.begin(held.fencing_token)
                    await asyncio.sleep(0)
                    counter.end(read)

    def in_either(begin: threading.Barrier) -> None:
        if threading.current_thread().name.endswith(("0", "2", "4", "6")):
            in_thread(begin)
        else:
            begin.wait()
            asyncio.run(in_loop())

    _together(in_either)
    counter.check()
