"""Many clients at once in one SQLite file: fifty in one process, or one in each of several processes."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import leased
from bench.contenders import pairs
from bench.contenders.sqlite_file import Raw, library, prepared, url_of
from bench.worker import Run

_Job = tuple[Callable[[str], None], str, Callable[[], None]]


def tasks(directory: Path, *, journal: str, clients: int) -> AbstractContextManager[Run]:
    """So many tasks of one loop, each with keys of its own."""
    return pairs.tasks(directory, url=url_of(prepared(directory, journal)), clients=clients)


@contextmanager
def threads(directory: Path, *, journal: str, clients: int) -> Iterator[Run]:
    """So many threads, each with keys of its own."""
    with (
        leased.connect(url_of(prepared(directory, journal))) as locks,
        ThreadPoolExecutor(clients) as pool,
    ):

        def client(name: int, pairs: int) -> None:
            for number in range(pairs):
                locks.lock(f"key-{name}-{number}", owner="bench").acquire().release()

        yield lambda count: _all(pool, client, clients=clients, pairs=count // clients)


@contextmanager
def raw_tasks(directory: Path, *, journal: str, clients: int) -> Iterator[Run]:
    """The floor for tasks: one writer thread that commits together whatever waits."""
    file = Raw(prepared(directory, journal), journal)
    with asyncio.Runner() as runner, _writer(file) as jobs:
        loop = runner.get_loop()

        def answer_all(futures: list[asyncio.Future[None]]) -> None:
            for future in futures:
                future.set_result(None)

        async def ask(work: Callable[[str], None], key: str) -> None:
            future: asyncio.Future[None] = loop.create_future()
            jobs.put((work, key, future))
            await future

        async def client(name: int, pairs: int) -> None:
            for number in range(pairs):
                await ask(file.acquire, f"key-{name}-{number}")
                await ask(file.release, f"key-{name}-{number}")

        async def all_clients(count: int) -> None:
            await asyncio.gather(*(client(name, count // clients) for name in range(clients)))

        jobs.answer = lambda futures: loop.call_soon_threadsafe(answer_all, futures)
        yield lambda count: runner.run(all_clients(count))


@contextmanager
def raw_threads(directory: Path, *, journal: str, clients: int) -> Iterator[Run]:
    """The floor for threads."""
    file = Raw(prepared(directory, journal), journal)
    with _writer(file) as jobs, ThreadPoolExecutor(clients) as pool:

        def ask(work: Callable[[str], None], key: str, answered: threading.Lock) -> None:
            jobs.put((work, key, answered))
            answered.acquire()

        def client(name: int, pairs: int) -> None:
            answered = threading.Lock()
            answered.acquire()
            for number in range(pairs):
                ask(file.acquire, f"key-{name}-{number}", answered)
                ask(file.release, f"key-{name}-{number}", answered)

        def answer_all(waiting: list[threading.Lock]) -> None:
            for one in waiting:
                one.release()

        jobs.answer = answer_all
        yield lambda count: _all(pool, client, clients=clients, pairs=count // clients)


@contextmanager
def process(directory: Path, *, journal: str, own: str) -> Iterator[Run]:
    """One of several processes on one file: pairs for so many seconds, and how long the longest took."""
    with leased.connect(url_of(prepared(directory, journal))) as locks:

        def pair(key: str) -> None:
            locks.lock(key, owner="bench").acquire().release()

        yield lambda seconds: _pairs_for(seconds, pair, name=own)


@contextmanager
def raw_process(directory: Path, *, journal: str, own: str) -> Iterator[Run]:
    """The same by raw statements and the busy handler of SQLite, with five seconds of patience."""
    file = Raw(prepared(directory, journal), journal)
    file.execute("PRAGMA busy_timeout = 5000")
    busy = library(journal).error

    def pair(key: str) -> None:
        for work in (file.acquire, file.release):
            while True:
                try:
                    work(key)
                    break
                except busy:
                    continue

    yield lambda seconds: _pairs_for(seconds, pair, name=own)


class _Jobs:
    """What waits for the writer; `answer` wakes those whose work is on disk."""

    def __init__(self) -> None:
        self._line: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.answer: Callable[[list[Any]], object] = len
        self.put = self._line.put

    def take(self) -> list[Any]:
        """All that wait, at least one; an empty list at the end."""
        batch = [self._line.get()]
        while not self._line.empty():
            batch.append(self._line.get())
        return [] if None in batch else batch


@contextmanager
def _writer(file: Raw) -> Iterator[_Jobs]:
    jobs = _Jobs()

    def write() -> None:
        while batch := jobs.take():
            file.execute("BEGIN IMMEDIATE")
            for work, key, _ in batch:
                work(key)
            file.execute("COMMIT")
            jobs.answer([waiting for _, _, waiting in batch])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield jobs
    finally:
        jobs.put(None)
        thread.join()


def _all(pool: ThreadPoolExecutor, client: Callable[[int, int], None], *, clients: int, pairs: int) -> None:
    for done in [pool.submit(client, name, pairs) for name in range(clients)]:
        done.result()


def _pairs_for(seconds: float, pair: Callable[[str], None], *, name: str) -> Any:
    longest, began = 0.0, time.perf_counter()
    last = began
    for number in itertools.count():
        if last >= began + seconds:
            return {"pairs": number, "longest": longest}
        pair(f"key-{name}-{number}")
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return None
