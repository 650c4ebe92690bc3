"""What the blocking face runs beside its callers: the renewal thread, its two workers, and hooks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Coroutine
from typing import Any

from leased.clocks import step
from leased.keeper import Keeper
from leased.observe import keeping, log
from leased.store import Clock, Signal

_WORKERS = 2
_IDLE = 10.0


class Workers:
    """At most two daemon threads that run what is submitted; they come when needed and go when idle. What none of them
    has begun when they are closed is never run."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._work: queue.SimpleQueue[Coroutine[Any, Any, None]] = queue.SimpleQueue()
        self._threads = 0
        self._pending = 0
        self._closed = False

    def submit(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this soon, in one of the threads."""
        with self._mutex:
            self._pending += 1
            start = self._threads < min(_WORKERS, self._pending)
            self._threads += start
        self._work.put(work)
        if start:
            try:
                threading.Thread(target=self._run, name="leased-renewal-call", daemon=True).start()
            except RuntimeError as error:  # no more threads just now: the next to submit tries again
                with self._mutex:
                    self._threads -= 1
                log.warning("a renewal waits for a thread: %s", error)

    def close(self) -> None:
        """Let each thread end once it has nothing to do."""
        self._closed = True
        self._discard()
        for _ in range(self._threads):
            self.submit(_nothing())

    def _run(self) -> None:
        keeping()
        while True:
            try:
                work = self._work.get(timeout=_IDLE)
            except queue.Empty:
                with self._mutex:
                    if self._pending == 0:
                        self._threads -= 1
                        return
                continue
            try:
                step(work)
            except BaseException:  # noqa: BLE001 (whatever a store did, the thread and the other leases go on)
                log.exception("a renewal failed in an unexpected way")
            finally:
                with self._mutex:
                    self._pending -= 1
                    over = self._closed
                    self._threads -= over
            if over:
                if not self._threads:
                    self._discard()
                return

    def _discard(self) -> None:
        """Close what waits, or Python would warn of it."""
        while True:
            try:
                work = self._work.get_nowait()
            except queue.Empty:
                return
            work.close()
            with self._mutex:
                self._pending -= 1


async def _nothing() -> None:
    """What wakes a thread."""


class KeeperClock:
    """The given clock, but started work runs in the workers: a call that hangs does not stop the keeper's loop."""

    def __init__(self, clock: Clock, workers: Workers) -> None:
        self._clock = clock
        self._workers = workers

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.now()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._clock.wall()

    async def sleep(self, seconds: float) -> None:
        """Block this thread for so long."""
        await self._clock.sleep(seconds)

    def signal(self) -> Signal:
        """A new signal."""
        return self._clock.signal()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in one of the workers."""
        self._workers.submit(work)


def start_keeper(keeper: Keeper) -> None:
    """Run the keeper's loop in a daemon thread; it ends some time after the last lease. Where no thread can be started
    that is raised, and the next lease tries again."""

    def run() -> None:
        keeping()
        step(keeper.run())

    thread = threading.Thread(target=run, name="leased-renewal", daemon=True)
    try:
        thread.start()
    except BaseException:
        if not thread.is_alive():
            keeper.not_started()
        raise
