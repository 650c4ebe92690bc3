"""Hand-off, herd and idle waiting with the peers on Redis, as they are. They run in their own environment."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.contenders.one_side import one_side, one_side_async
from bench.worker import Run

TTL = 120
_PATIENCE = 30


@contextmanager
def redis_py(directory: Path, *, url: str) -> Iterator[Run]:
    """One side of a hand-off, by `Lock` of redis-py: it asks ten times a second."""
    import redis

    with redis.Redis.from_url(url) as client:
        yield one_side(client.lock("peer-key", timeout=TTL))


@contextmanager
def python_redis_lock(directory: Path, *, url: str) -> Iterator[Run]:
    """One side of a hand-off, by python-redis-lock: it waits in a list of the server."""
    import redis
    import redis_lock  # type: ignore[import-not-found,unused-ignore]

    with redis.Redis.from_url(url) as client:
        yield one_side(redis_lock.Lock(client, "peer-key", expire=TTL))


@contextmanager
def redis_py_async(directory: Path, *, url: str) -> Iterator[Run]:
    """One side of a hand-off, by `Lock` of redis-py's asyncio client."""
    import redis.asyncio

    with asyncio.Runner() as runner:
        client = redis.asyncio.Redis.from_url(url)
        act = one_side_async(client.lock("peer-key", timeout=TTL))
        yield lambda action: runner.run(act(action))
        runner.run(client.aclose())


@contextmanager
def herd(directory: Path, *, url: str) -> Iterator[Run]:
    """python-redis-lock, the only one whose waiters are woken: each is a thread with a connection.

    With redis-py's own time-out none could wait for more than some seconds.
    """
    import redis
    import redis_lock  # type: ignore[import-not-found,unused-ignore]

    client = redis.Redis.from_url(url, max_connections=2000, socket_timeout=None)

    def run(count: int) -> Any:
        def wait() -> None:
            with redis_lock.Lock(client, "peer-key", expire=TTL):
                pass

        holder = redis_lock.Lock(client, "peer-key", expire=TTL)
        holder.acquire()
        waiting = [threading.Thread(target=wait, daemon=True) for _ in range(count)]
        for thread in waiting:
            thread.start()
        give_up_at = time.monotonic() + _PATIENCE
        while int(client.info("clients")["blocked_clients"]) < count:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{count} waiters did not get in line within {_PATIENCE} s")
            time.sleep(0.05)
        wall, cpu = time.perf_counter(), time.process_time()
        holder.release()
        for thread in waiting:
            thread.join()
        return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}

    yield run
    client.close()


@contextmanager
def idle_redis_py(directory: Path, *, url: str) -> Iterator[Run]:
    """Waiters of a key that somebody keeps, by `Lock` of redis-py."""
    import redis

    with redis.Redis.from_url(url) as client:
        yield _idle(lambda: client.lock("peer-key", timeout=TTL))


@contextmanager
def idle_python_redis_lock(directory: Path, *, url: str) -> Iterator[Run]:
    """Waiters of a key that somebody keeps, by python-redis-lock."""
    import redis
    import redis_lock  # type: ignore[import-not-found,unused-ignore]

    with redis.Redis.from_url(url, socket_timeout=None) as client:
        yield _idle(lambda: redis_lock.Lock(client, "peer-key", expire=TTL))


def _idle(new: Callable[[], Any]) -> Run:
    def wait() -> None:
        with new():
            pass

    def run(seconds: float, waiters: int) -> Any:
        holder = new()
        holder.acquire()
        waiting = [threading.Thread(target=wait, daemon=True) for _ in range(waiters)]
        for thread in waiting:
            thread.start()
        time.sleep(seconds / 4)
        cpu = time.process_time()
        time.sleep(seconds)
        cpu = time.process_time() - cpu
        holder.release()
        for thread in waiting:
            thread.join()
        return {"cpu": cpu / seconds, "calls": None}

    return run
