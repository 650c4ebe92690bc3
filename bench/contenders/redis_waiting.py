"""Hand-off and herd on Redis without a lock library: the floors, by push and by a line within the process."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.contenders import redis_raw
from bench.worker import Run

_KEY = b"raw-key"


@contextmanager
def hand_off(directory: Path, *, url: str) -> Iterator[Run]:
    """One side of a hand-off (see `bench.contenders.hand_off`), blocking: the one who waits has subscribed."""
    connection, listening = redis_raw.Blocking(url), redis_raw.Blocking(url)
    listening.ask(redis_raw.packed(b"SUBSCRIBE", redis_raw.CHANNEL))
    token = redis_raw.new_token()

    def run(action: str) -> Any:
        if action == "give":
            began = time.perf_counter()
            connection.ask(redis_raw.tell(_KEY, token))
            return {"began": began}
        if action == "hold":
            connection.ask(redis_raw.acquire(_KEY, token))
            return None
        listening.read()
        connection.ask(redis_raw.acquire(_KEY, token))
        held = time.perf_counter()
        connection.ask(redis_raw.release(_KEY, token))
        return {"held": held}

    yield run
    listening.close()
    connection.close()


@contextmanager
def herd(directory: Path, *, url: str) -> Iterator[Run]:
    """A thousand tasks in a line of this process; the front one asks, and wakes the next when it has released."""
    with asyncio.Runner() as runner:
        connection = runner.run(redis_raw.multiplexed(url))

        async def herd(count: int) -> Any:
            line: deque[asyncio.Future[None]] = deque()
            loop = asyncio.get_running_loop()

            async def wait() -> None:
                turn: asyncio.Future[None] = loop.create_future()
                line.append(turn)
                await turn
                token = redis_raw.new_token()
                redis_raw.checked(await connection.ask(redis_raw.acquire(_KEY, token)))
                redis_raw.checked(await connection.ask(redis_raw.tell(_KEY, token)))
                if line:
                    line.popleft().set_result(None)

            waiting = [asyncio.create_task(wait()) for _ in range(count)]
            while len(line) < count:
                await asyncio.sleep(0)
            wall, cpu = time.perf_counter(), time.process_time()
            line.popleft().set_result(None)
            await asyncio.gather(*waiting)
            return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}

        yield lambda count: runner.run(herd(count))
        connection.close()
