"""Thousands of leases on Redis kept without leased: by one loop over packed scripts, and by a task each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.worker import Run

_STEP = 0.05
_PATIENCE = 2.0


@contextmanager
def raw(directory: Path, *, url: str, ttl: float) -> Iterator[Run]:
    """The floor: every 50 ms what is due leaves as one write; each is asked for again after a third of the ttl."""
    from bench.contenders import redis_raw

    with asyncio.Runner() as runner:
        connection = runner.run(redis_raw.multiplexed(url))

        async def keep(count: int, seconds: float) -> Any:
            leases = [(b"raw-%d" % number, redis_raw.new_token()) for number in range(count)]
            for answer in [connection.ask_joined(redis_raw.acquire(*lease)) for lease in leases]:
                redis_raw.checked(await answer)
            steps = max(1, round(ttl / 3 / _STEP))
            shares = [leases[number::steps] for number in range(steps)]

            async def renew(step: int) -> int:
                due = shares[step % steps]
                for answer in [connection.ask_joined(redis_raw.renew(*lease)) for lease in due]:
                    redis_raw.checked(await answer)
                return len(due)

            return await _measured(renew, seconds)

        yield lambda count, seconds: runner.run(keep(count, seconds))
        connection.close()


@contextmanager
def redis_py(directory: Path, *, url: str, ttl: float) -> Iterator[Run]:
    """`Lock` of redis-py's asyncio client with a task for each lease, which sets the expiry anew at a third."""
    import redis.asyncio

    with asyncio.Runner() as runner:
        client = redis.asyncio.Redis.from_url(url)

        async def keep(count: int, seconds: float) -> Any:
            renewals, going = 0, True

            async def one(number: int) -> None:
                nonlocal renewals
                lock = client.lock(f"peer-{number}", timeout=ttl)
                await lock.acquire()
                while going:  # its calls may swallow a cancellation
                    await asyncio.sleep(ttl / 3)
                    await lock.reacquire()
                    renewals += 1

            steps = max(1, round(ttl / 3 / _STEP))
            tasks: list[asyncio.Task[None]] = []
            for step in range(steps):
                wanted = range(len(tasks), count * (step + 1) // steps)
                tasks += [asyncio.create_task(one(number)) for number in wanted]
                await asyncio.sleep(_STEP)
            before, cpu, wall = renewals, time.process_time(), time.perf_counter()
            await asyncio.sleep(seconds)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            done = renewals - before
            failed = sum(task.done() for task in tasks)
            going = False
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_PATIENCE)
            return {"cpu": cpu, "wall": wall, "renewals": done, "lost": failed}

        yield lambda count, seconds: runner.run(keep(count, seconds))
        runner.run(client.aclose())


async def _measured(renew: Callable[[int], Awaitable[int]], seconds: float) -> Any:
    renewals, step = 0, 0
    cpu, began = time.process_time(), time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        renewals += await renew(step)
        step += 1
        await asyncio.sleep(max(0.0, began + step * _STEP - now))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - began
    return {"cpu": cpu, "wall": wall, "renewals": renewals, "lost": 0}
