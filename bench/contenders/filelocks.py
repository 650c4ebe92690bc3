"""The peer filelock: it keeps no lease, no fencing token and no owner. It runs in the environment of the peers."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock  # type: ignore[import-not-found,unused-ignore]  # installed beside us, for the peers alone

from bench.worker import Run


@contextmanager
def file(directory: Path) -> Iterator[Run]:
    """A new file each time."""
    numbers = itertools.count()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            lock = filelock.FileLock(directory / f"key-{number}.lock")
            lock.acquire()
            lock.release()

    yield run


@contextmanager
def sqlite(directory: Path) -> Iterator[Run]:
    """Its lock in an SQLite file: the same one each time, for there each key is a database of its own."""
    lock = filelock.ReadWriteLock(directory / "lock.db")

    def run(count: int) -> None:
        for _ in range(count):
            lock.acquire_write()
            lock.release()

    yield run
    lock.close()


@contextmanager
def hand_off(directory: Path) -> Iterator[Run]:
    """One side of a hand-off; see `bench.contenders.hand_off`. It notices the release when it holds the lock."""
    lock = filelock.FileLock(directory / "key.lock")

    def run(action: str) -> Any:
        if action == "give":
            began = time.perf_counter()
            lock.release()
            return {"began": began, "committed": time.perf_counter()}
        lock.acquire(timeout=30)
        if action == "take":
            held = time.perf_counter()
            lock.release()
            return {"noticed": [held], "held": held}
        return None

    yield run


@contextmanager
def waiting(directory: Path) -> Iterator[Run]:
    """CPU while one thread waits for a lock that somebody else has; it asks every 50 ms and tells nobody how often."""
    path = directory / "key.lock"
    mine, theirs = filelock.FileLock(path), filelock.FileLock(path, is_singleton=False)
    mine.acquire()

    def run(seconds: float, waiters: int) -> Any:
        threads = [threading.Thread(target=theirs.acquire, daemon=True) for _ in range(waiters)]
        for thread in threads:
            thread.start()
        time.sleep(seconds / 4)
        cpu = time.process_time()
        time.sleep(seconds)
        cpu = time.process_time() - cpu
        mine.release()
        for thread in threads:
            thread.join()
            theirs.release()
        return {"cpu": cpu / seconds, "calls": None}

    yield run
