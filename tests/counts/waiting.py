"""A program of many who wait for one key that another process holds: it tells what that costs, by counting.

`python -m tests.counts.waiting URL FACE WAITERS SECONDS`, run by a test, which ends it once it has told.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import leased
from leased import aio

_PATIENCE = 600


def wake_ups() -> int:
    """How often the threads of this process have stopped to wait, and so have been woken."""
    found = 0
    for status in Path("/proc/self/task").glob("*/status"):
        words = status.read_text().split()
        found += int(words[words.index("voluntary_ctxt_switches:") + 1])
    return found


def connections() -> int:
    """The sockets of this process that have another end elsewhere."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode)
        except OSError:
            continue  # what listed the directory
    return found


def waiting(locks: Any) -> int:
    """How many wait in the line of this process."""
    found: int = locks._client().env.lines.waiting("wanted")
    return found


def counted(seconds: float) -> dict[str, float]:
    """What happens in so many seconds, in which the caller does nothing else, once a line on standard input asks."""
    print("waiting", flush=True)
    sys.stdin.readline()
    before = wake_ups()
    time.sleep(seconds)
    return {
        "wake_ups": (wake_ups() - before) / seconds,
        "threads": threading.active_count(),
        "connections": connections(),
    }


def threads(url: str, *, waiters: int, seconds: float) -> None:
    """A thread for each."""
    with leased.connect(url) as locks:

        def wait() -> None:
            with locks.lock("wanted", wait=_PATIENCE):
                pass

        started = [threading.Thread(target=wait) for _ in range(waiters)]
        for one in started:
            one.start()
        while waiting(locks) < waiters:
            time.sleep(0.01)
        told = counted(seconds)
        print(json.dumps({**told, "threads": told["threads"] - waiters}), flush=True)


def tasks(url: str, *, waiters: int, seconds: float) -> None:
    """A task for each, in one loop, which is not disturbed: another thread counts."""

    async def scene() -> None:
        async with aio.connect(url) as locks:

            async def wait() -> None:
                async with locks.lock("wanted", wait=_PATIENCE):
                    pass

            started = [asyncio.ensure_future(wait()) for _ in range(waiters)]
            while waiting(locks) < waiters:
                await asyncio.sleep(0.01)
            told = await asyncio.to_thread(counted, seconds)
            told["threads"] -= 1  # the one that counted
            told["connections"] -= 2  # with which a loop wakes itself
            print(json.dumps(told), flush=True)
            await asyncio.gather(*started)

    asyncio.run(scene())


if __name__ == "__main__":
    {"threads": threads, "tasks": tasks}[sys.argv[2]](sys.argv[1], waiters=int(sys.argv[3]), seconds=float(sys.argv[4]))
