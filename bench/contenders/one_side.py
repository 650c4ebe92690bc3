"""One side of a hand-off, for any lock with `acquire` and `release`; see `bench.contenders.hand_off`."""

from __future__ import annotations

import time
from typing import Any

from bench.worker import Run


def one_side(lock: Any) -> Run:
    """Holds, gives and takes this lock."""

    def run(action: str) -> Any:
        if action == "give":
            began = time.perf_counter()
            lock.release()
            return {"began": began}
        lock.acquire()
        held = time.perf_counter()
        if action == "take":
            lock.release()
        return {"held": held}

    return run


def one_side_async(lock: Any) -> Any:
    """The same for a lock whose methods are coroutines."""

    async def run(action: str) -> Any:
        if action == "give":
            began = time.perf_counter()
            await lock.release()
            return {"began": began}
        await lock.acquire()
        held = time.perf_counter()
        if action == "take":
            await lock.release()
        return {"held": held}

    return run
