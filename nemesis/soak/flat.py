"""Samples of what a process holds, and whether that stayed flat. It knows nothing of locks."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SKIPPED = 0.2
"""The share of a run, at its beginning, in which caches may fill."""

A_MINUTE = 0.001
"""By which share of itself a size may grow in a minute, on the fitted line."""

LEAST = {"blocks": 0.005, "memory": 0.03, "server memory": 0.03}
"""What a size may grow by in any case: what the allocator and the measuring make of it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """At this time (seconds) and after this share of the work: live memory blocks of Python, resident bytes here and of
    the server, open descriptors, threads, tasks, and records in the store."""

    at: float
    share: float
    blocks: int
    memory: int
    server_memory: int
    descriptors: int
    threads: int
    tasks: int
    records: int


def resident(pid: int) -> int:
    """Bytes of memory of a process and its children."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(resident(int(child)) for child in children)


def take(at: float, share: float, *, server: int | None, records: int) -> Sample:
    """How it is now, garbage aside. Called in a loop whose only task of ours is the caller."""
    gc.collect()
    return Sample(
        at=at,
        share=share,
        blocks=sys.getallocatedblocks(),
        memory=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        server_memory=0 if server is None else resident(server),
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=threading.active_count(),
        tasks=len(asyncio.all_tasks()),
        records=records,
    )


def grown(samples: Sequence[Sample]) -> list[str]:
    """What grew after the first fifth, by the line fitted through it, and by how much; nothing if all stayed flat."""
    seen = [sample for sample in samples if sample.share > SKIPPED]
    minutes = (seen[-1].at - seen[0].at) / 60.0
    found = []
    for name in asdict(seen[0]):
        if name in ("at", "share"):
            continue
        values = [float(getattr(sample, name)) for sample in seen]
        rise, level = _rise([sample.share for sample in seen], values), sum(values) / len(values)
        least = LEAST.get(name.replace("_", " "))
        allowed = 0.5 if least is None else max(A_MINUTE * minutes, least) * level
        if rise > allowed:
            found.append(f"{name.replace('_', ' ')} grew by {rise:.1f} (at most {allowed:.1f}) from {values[0]:.0f}")
    return found


def _rise(shares: Sequence[float], values: Sequence[float]) -> float:
    """By how much the fitted line rises from the first to the last."""
    middle, level = sum(shares) / len(shares), sum(values) / len(values)
    spread = sum((share - middle) ** 2 for share in shares)
    slope = sum((share - middle) * (value - level) for share, value in zip(shares, values, strict=True)) / spread
    return slope * (shares[-1] - shares[0])
