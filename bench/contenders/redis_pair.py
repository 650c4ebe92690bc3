"""Pairs on Redis without a lock library: over a bare socket, over one multiplexed connection, by redis-py's calls."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
import redis.asyncio

from bench.contenders import redis_raw
from bench.worker import Run


@contextmanager
def raw(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor of blocking callers: two packed script calls."""
    connection = redis_raw.Blocking(url)
    numbers = itertools.count()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            key, token = b"raw-%d" % number, redis_raw.new_token()
            connection.ask(redis_raw.acquire(key, token))
            connection.ask(redis_raw.release(key, token))

    yield run
    connection.close()


@contextmanager
def raw_async(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor of tasks: the same on a transport of the loop."""
    numbers = itertools.count()
    with asyncio.Runner() as runner:
        connection = runner.run(redis_raw.multiplexed(url))

        async def pairs(count: int) -> None:
            for number in itertools.islice(numbers, count):
                key, token = b"raw-%d" % number, redis_raw.new_token()
                redis_raw.checked(await connection.ask(redis_raw.acquire(key, token)))
                redis_raw.checked(await connection.ask(redis_raw.release(key, token)))

        yield lambda count: runner.run(pairs(count))
        connection.close()


@contextmanager
def raw_tasks(directory: Path, *, url: str, clients: int) -> Iterator[Run]:
    """The floor of many tasks: what they ask in one turn of the loop is one write."""
    with asyncio.Runner() as runner:
        connection = runner.run(redis_raw.multiplexed(url))

        async def client(name: int, pairs: int) -> None:
            for number in range(pairs):
                key, token = b"raw-%d-%d" % (name, number), redis_raw.new_token()
                redis_raw.checked(await connection.ask_joined(redis_raw.acquire(key, token)))
                redis_raw.checked(await connection.ask_joined(redis_raw.release(key, token)))

        async def all_clients(count: int) -> None:
            await asyncio.gather(*(client(name, count // clients) for name in range(clients)))

        yield lambda count: runner.run(all_clients(count))
        connection.close()


@contextmanager
def bare(directory: Path, *, url: str) -> Iterator[Run]:
    """The same scripts by redis-py's own calls, with its settings as they are."""
    client = redis.Redis.from_url(url)
    acquire, release = client.register_script(redis_raw.ACQUIRE), client.register_script(redis_raw.RELEASE)
    acquire(["bare"], [b"", b"bench", 1])
    release(["bare"], [b""])
    numbers = itertools.count()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            key, token = f"bare-{number}", redis_raw.new_token()
            redis_raw.checked(client.evalsha(acquire.sha, 1, key, token, b"bench", redis_raw.TTL_MS))
            redis_raw.checked(client.evalsha(release.sha, 1, key, token))

    yield run
    client.close()


@contextmanager
def bare_async(directory: Path, *, url: str) -> Iterator[Run]:
    """As `bare`, by its asyncio client."""
    numbers = itertools.count()
    with asyncio.Runner() as runner:
        client = redis.asyncio.Redis.from_url(url)
        acquire, release = client.register_script(redis_raw.ACQUIRE), client.register_script(redis_raw.RELEASE)

        async def prepare() -> None:
            await acquire(["bare"], [b"", b"bench", 1])
            await release(["bare"], [b""])

        async def pairs(count: int) -> None:
            for number in itertools.islice(numbers, count):
                key, token = f"bare-{number}", redis_raw.new_token()
                redis_raw.checked(await client.evalsha(acquire.sha, 1, key, token, b"bench", redis_raw.TTL_MS))
                redis_raw.checked(await client.evalsha(release.sha, 1, key, token))

        runner.run(prepare())
        yield lambda count: runner.run(pairs(count))
        runner.run(client.aclose())
