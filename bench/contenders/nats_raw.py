"""NATS JetStream driven raw, by the key-value store of nats-py: a put that wants nothing there, and a delete."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.worker import Run

_VALUE = '{"token":"%s","owner":"bench","fencingToken":%d,"acquiredAt":%d,"expiresAt":%d}'


def _value() -> bytes:
    micros = time.time_ns() // 1000
    return (_VALUE % (os.urandom(16).hex(), micros, micros, micros + 30_000_000)).encode()


async def _bucket(url: str) -> tuple[Any, Any]:
    import nats

    client = await nats.connect(url)
    return client, await client.jetstream().create_key_value(bucket="raw", history=1)


async def _pair(bucket: Any, name: str) -> None:
    revision = await bucket.create(name, _value())
    await bucket.delete(name, last=revision)


@contextmanager
def pair(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor of blocking callers: each call is handed to an event loop in another thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    client, bucket = asyncio.run_coroutine_threadsafe(_bucket(url), loop).result()
    numbers = itertools.count()
    own = os.urandom(4).hex()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            name = f"{own}.{number}"
            revision = asyncio.run_coroutine_threadsafe(bucket.create(name, _value()), loop).result()
            asyncio.run_coroutine_threadsafe(bucket.delete(name, last=revision), loop).result()

    yield run
    asyncio.run_coroutine_threadsafe(client.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)


@contextmanager
def pair_async(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor of tasks."""
    numbers = itertools.count()
    own = os.urandom(4).hex()
    with asyncio.Runner() as runner:
        client, bucket = runner.run(_bucket(url))

        async def pairs(count: int) -> None:
            for number in itertools.islice(numbers, count):
                await _pair(bucket, f"{own}.{number}")

        yield lambda count: runner.run(pairs(count))
        runner.run(client.close())
