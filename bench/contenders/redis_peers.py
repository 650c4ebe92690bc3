"""The peers on Redis, with their settings as they are. None has fencing tokens. They run in their own environment."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from bench.worker import Run

TTL = 30


@contextmanager
def redis_py(directory: Path, *, url: str) -> Iterator[Run]:
    """`Lock` of redis-py."""
    import redis

    with redis.Redis.from_url(url) as client:
        yield _pairs(lambda key: client.lock(key, timeout=TTL))


@contextmanager
def valkey_py(directory: Path, *, url: str) -> Iterator[Run]:
    """`Lock` of valkey-py."""
    import valkey  # type: ignore[import-not-found,unused-ignore]

    with valkey.Valkey.from_url(url) as client:
        yield _pairs(lambda key: client.lock(key, timeout=TTL))


@contextmanager
def python_redis_lock(directory: Path, *, url: str) -> Iterator[Run]:
    """`Lock` of python-redis-lock."""
    import redis
    import redis_lock  # type: ignore[import-not-found,unused-ignore]

    with redis.Redis.from_url(url) as client:
        yield _pairs(lambda key: redis_lock.Lock(client, key, expire=TTL))


def redis_py_async(directory: Path, *, url: str, clients: int = 1) -> AbstractContextManager[Run]:
    """`Lock` of redis-py's asyncio client, for one task or many."""
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(url)

    async def pair(key: str) -> None:
        lock = client.lock(key, timeout=TTL)
        await lock.acquire()
        await lock.release()

    return _tasks(pair, client.aclose, clients=clients)


def valkey_py_async(directory: Path, *, url: str, clients: int = 1) -> AbstractContextManager[Run]:
    """`Lock` of valkey-py's asyncio client, for one task or many."""
    import valkey.asyncio  # type: ignore[import-not-found,unused-ignore]

    client = valkey.asyncio.Valkey.from_url(url)

    async def pair(key: str) -> None:
        lock = client.lock(key, timeout=TTL)
        await lock.acquire()
        await lock.release()

    return _tasks(pair, client.aclose, clients=clients)


def aioredlock(directory: Path, *, url: str, clients: int = 1) -> AbstractContextManager[Run]:
    """aioredlock, with one server."""
    from aioredlock import Aioredlock  # type: ignore[import-not-found,unused-ignore]

    manager = Aioredlock([url])

    async def pair(key: str) -> None:
        lock = await manager.lock(key, lock_timeout=TTL)
        await manager.unlock(lock)

    return _tasks(pair, manager.destroy, clients=clients)


def _pairs(lock_of: Callable[[str], Any]) -> Run:
    numbers = itertools.count()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            lock = lock_of(f"peer-{number}")
            lock.acquire()
            lock.release()

    return run


@contextmanager
def _tasks(
    pair: Callable[[str], Awaitable[None]], close: Callable[[], Awaitable[Any]], *, clients: int
) -> Iterator[Run]:
    numbers = itertools.count()
    with asyncio.Runner() as runner:

        async def client(pairs: int) -> None:
            for number in itertools.islice(numbers, pairs):
                await pair(f"peer-{number}")

        async def all_clients(count: int) -> None:
            if clients == 1:
                await client(count)
            else:
                await asyncio.gather(*(client(count // clients) for _ in range(clients)))

        async def end() -> None:
            await close()

        yield lambda count: runner.run(all_clients(count))
        runner.run(end())
