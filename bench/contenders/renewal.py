"""Thousands of leases that one process keeps: how late renewals are, and what they cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.contenders.watched_store import watched
from bench.worker import Run
from leased import aio
from leased.clocks import now
from leased.model import Renew
from leased.policy import renew_at, usable

_STEP = 0.05
_TOGETHER = 200


class _Lateness:
    """When each lease was last asked for, and how much later than due it was asked for again. Seconds."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._asked_at: dict[str, float] = {}
        self.late: list[float] = []

    def granted(self, key: str, asked_at: float) -> None:
        """A lease begins."""
        self._asked_at[key] = asked_at

    def note(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Something was asked of the store."""
        at = now()
        operations: Sequence[Any] = positional[0] if name == "many" else ()
        keys = [positional[0]] if name == "renew" else [one.key for one in operations if isinstance(one, Renew)]
        for key in keys:
            before = self._asked_at[key]
            self.late.append(at - renew_at(before, believed_until=before + usable(self._ttl)))
            self._asked_at[key] = at


@contextmanager
def tasks(directory: Path, *, kind: str, ttl: float) -> Iterator[Run]:
    """By the asyncio face: leases begin evenly over the time between two renewals, as they would in a real program."""
    store, watcher = watched(kind, directory, face="async")
    lateness = _Lateness(ttl)
    watcher.operations = lateness.note
    with asyncio.Runner() as runner:
        locks = aio.connect(store)

        async def take(number: int) -> aio.Handle:
            key = f"key-{number}"
            lateness.granted(key, now())
            return await locks.lock(key, ttl=ttl, renew=True).acquire()

        async def keep(count: int, seconds: float) -> Any:
            handles: list[aio.Handle] = []
            steps = max(1, round(ttl / 3 / _STEP))
            began = now()
            for step in range(steps):
                wanted = range(len(handles), count * (step + 1) // steps)
                handles += await asyncio.gather(*(take(number) for number in wanted))
                await asyncio.sleep(max(0.0, began + (step + 1) * _STEP - now()))
            lateness.late.clear()
            cpu, wall = time.process_time(), time.perf_counter()
            await asyncio.sleep(seconds)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            late = sorted(lateness.late)
            lost = sum(handle.lost for handle in handles)
            while handles:  # a release gives up after a second, and a thousand of them wait for one another
                await asyncio.gather(*(handle.release() for handle in handles[:_TOGETHER]))
                del handles[:_TOGETHER]
            return {"cpu": cpu, "wall": wall, "renewals": len(late), "late": late[-1] if late else 0.0, "lost": lost}

        yield lambda count, seconds: runner.run(keep(count, seconds))
        runner.run(locks.close())
