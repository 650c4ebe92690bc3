"""The peers on etcd, with their settings as they are. Their locks hang on leases of etcd, and have no fencing token."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.addresses import host_and_port
from bench.contenders.one_side import one_side, one_side_async
from bench.worker import Run

TTL = 30


@contextmanager
def aetcd(directory: Path, *, url: str) -> Iterator[Run]:
    """`Lock` of aetcd, which speaks gRPC."""
    numbers = itertools.count()
    own = os.urandom(4).hex()
    with asyncio.Runner() as runner:
        client = runner.run(_connected(url))

        async def pairs(count: int) -> None:
            for number in itertools.islice(numbers, count):
                lock = client.lock(f"aetcd/{own}/{number}".encode(), ttl=TTL)
                await lock.acquire()
                await lock.release()

        yield lambda count: runner.run(pairs(count))
        runner.run(client.close())


@contextmanager
def hand_off_aetcd(directory: Path, *, url: str) -> Iterator[Run]:
    """One side of a hand-off by aetcd: it waits for a watch."""
    with asyncio.Runner() as runner:
        client = runner.run(_connected(url))
        act = one_side_async(client.lock(b"aetcd-hand-off", ttl=TTL))
        yield lambda action: runner.run(act(action))
        runner.run(client.close())


async def _connected(url: str) -> Any:
    import aetcd  # type: ignore[import-not-found,unused-ignore]

    host, port = host_and_port(url)
    client = aetcd.Client(host=host, port=port)
    await client.connect()
    return client


@contextmanager
def tooz(directory: Path, *, url: str) -> Iterator[Run]:
    """A lock of tooz on its driver for the JSON gateway."""
    numbers = itertools.count()
    own = os.urandom(4).hex()
    coordinator = _coordinator(url)

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            lock = coordinator.get_lock(f"{own}-{number}".encode())
            lock.acquire()
            lock.release()

    yield run
    coordinator.stop()


@contextmanager
def hand_off_tooz(directory: Path, *, url: str) -> Iterator[Run]:
    """One side of a hand-off by tooz, which asks again and again."""
    coordinator = _coordinator(url)
    yield one_side(coordinator.get_lock(b"hand-off"))
    coordinator.stop()


def _coordinator(url: str) -> Any:
    from tooz.coordination import get_coordinator  # type: ignore[import-not-found,unused-ignore]

    host, port = host_and_port(url)
    coordinator = get_coordinator(f"etcd3+http://{host}:{port}", os.urandom(8).hex().encode())
    coordinator.start()
    return coordinator
