"""Measures what held leases cost a store: how many bytes each, and how long it takes to take and to list them all.

    python scripts/capacity.py [--leases 100000] [--only redis,sqlite] [--pages 10]

It starts its own servers, as the benchmarks do, and prints what it found and the load of the machine.
"""

import argparse
import asyncio
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import servers
from bench.contender import clean_environment
from leased.aio_clock import LoopClock
from leased.model import Acquire, Claim, Contended, Terms
from leased.policy import MAX_LIST_PAGE
from leased.store import Store
from leased.targets import Options, open_store, read_url

TOGETHER = 100
TTL = 86_400.0
TIMEOUT = 60.0
TERMS = Terms(held_by="import@host-17:4711", metadata='{"customer":"1234"}')
Size = Callable[[], float]
"""Bytes that a store takes up now."""


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    (found,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found) * 1024


@contextmanager
def memory() -> Iterator[tuple[str, Size]]:
    """This process."""
    yield "memory:", lambda: memory_of(os.getpid())


@contextmanager
def longest_pause() -> Iterator[list[float]]:
    """Seconds that Python's collector held this process up at once, at the most."""
    longest, began = [0.0], [0.0]

    def note(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            began[0] = time.perf_counter()
        else:
            longest[0] = max(longest[0], time.perf_counter() - began[0])

    gc.callbacks.append(note)
    try:
        yield longest
    finally:
        gc.callbacks.remove(note)


@contextmanager
def service() -> Iterator[tuple[str, Size]]:
    """A lock service that keeps its locks in memory."""
    command = [sys.executable, "-m", "leased", "serve", "--port", "0", "--url", "memory:"]
    with subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = next(found for line in process.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
            yield found.group(), lambda: memory_of(process.pid)
        finally:
            process.terminate()


@contextmanager
def sqlite() -> Iterator[tuple[str, Size]]:
    """A file of this machine, with what belongs to it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        url = f"sqlite:{directory}/locks.db"
        yield url, lambda: Path(directory, "locks.db").stat().st_size


@contextmanager
def redis() -> Iterator[tuple[str, Size]]:
    """A Valkey."""
    from redis import Redis

    with servers.redis() as url, Redis.from_url(url) as client:
        yield url, lambda: float(client.info("memory")["used_memory"])


@contextmanager
def postgresql() -> Iterator[tuple[str, Size]]:
    """A PostgreSQL: table and indexes."""
    import psycopg

    with servers.postgresql() as url, psycopg.connect(url, autocommit=True) as connection:

        def size() -> float:
            (row,) = connection.execute(
                "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class"
                " WHERE relname LIKE 'leased%' AND relkind = 'r'"
            ).fetchall()
            return float(row[0])

        yield url, size


@contextmanager
def mysql() -> Iterator[tuple[str, Size]]:
    """A MariaDB: table and indexes, as the server counts pages."""
    import pymysql

    with servers.mysql() as url:
        parts = urlsplit(url)
        database = parts.path.lstrip("/")
        with pymysql.connect(
            host=parts.hostname or "",
            port=parts.port or 0,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            autocommit=True,
        ) as connection:

            def size() -> float:
                with connection.cursor() as cursor:
                    cursor.execute(f"ANALYZE TABLE {database}.leased_record")
                    cursor.execute(
                        "SELECT sum(data_length + index_length) FROM information_schema.tables WHERE table_schema = %s",
                        [database],
                    )
                    (row,) = cursor.fetchall()
                return float(row[0])

            yield url, size


@contextmanager
def etcd() -> Iterator[tuple[str, Size]]:
    """An etcd of one member: what its database uses, all revisions included."""
    with servers.etcd() as url:
        asked = urllib.request.Request(f"http://{urlsplit(url).netloc}/v3/maintenance/status", b"{}")

        def size() -> float:
            with urllib.request.urlopen(asked) as answer:
                return float(json.loads(answer.read())["dbSizeInUse"])

        yield url, size


@contextmanager
def nats() -> Iterator[tuple[str, Size]]:
    """A NATS server: the bytes of the bucket."""
    from nats import connect

    async def ask(url: str) -> float:
        client = await connect(f"nats://{urlsplit(url).netloc}")
        found = await client.jetstream().stream_info("KV_leased")
        await client.close()
        return float(found.state.bytes)

    def size() -> float:
        with ThreadPoolExecutor(1) as other:  # this thread has a loop that runs
            found: float = other.submit(lambda: asyncio.run(ask(url))).result()
        return found

    with servers.nats() as url:
        yield url, size


STORES = {
    "memory": memory,
    "service": service,
    "sqlite": sqlite,
    "redis": redis,
    "postgresql": postgresql,
    "mysql": mysql,
    "etcd": etcd,
    "nats": nats,
}


async def measure(url: str, size: Size, *, leases: int, pages: int) -> tuple[float, float, float]:
    """Bytes a lease, seconds to take them all, and seconds for a page of `list`: the median of so many."""
    clock = LoopClock()
    store = open_store(read_url(url, Options(clock)), face="async")
    await take(store, range(-TOGETHER, 0))  # so that tables, scripts and connections are there
    before, began = size(), time.perf_counter()
    for first in range(0, leases, TOGETHER):
        await take(store, range(first, min(first + TOGETHER, leases)))
    taken = time.perf_counter() - began
    spans: list[float] = []
    after = ""
    for _ in range(pages):
        began = time.perf_counter()
        page = await store.list("key-", after=after, limit=MAX_LIST_PAGE, timeout=TIMEOUT)
        spans.append(time.perf_counter() - began)
        assert len(page) == min(MAX_LIST_PAGE, leases), len(page)
        after = page[-1].key if leases > pages * MAX_LIST_PAGE else ""
    await store.close()  # which brings into SQLite's file what was beside it; leases stay
    return (size() - before) / leases, taken, median(spans)


async def take(store: Store, numbers: range) -> None:
    """Take these keys with one call."""
    claims = [
        Claim(f"{'key' if one >= 0 else 'warm'}-{one:09}", os.urandom(16).hex(), TTL, f"task-{one}", terms=TERMS)
        for one in numbers
    ]
    answers = await store.many([Acquire(claim) for claim in claims], timeout=TIMEOUT)
    refused = [one for one in answers if isinstance(one, Contended | Exception)]
    assert not refused, refused[:1]


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leases", type=int, default=100_000)
    parser.add_argument("--only", default=",".join(STORES))
    parser.add_argument("--pages", type=int, default=5, help="of `list`, of 1,000 keys each, whose median counts")
    options = parser.parse_args()
    print(f"{options.leases:,} leases; load before: {os.getloadavg()[0]:.1f}")
    for name in options.only.split(","):
        with longest_pause() as pause, ExitStack() as stack:
            url, size = stack.enter_context(STORES[name]())
            each, taken, page = asyncio.run(measure(url, size, leases=options.leases, pages=options.pages))
        told = (
            f"{name}: {each:,.0f} bytes a lease; all taken in {taken:.1f} s; a page of list takes {page * 1000:.1f} ms;"
            f" longest pause of the collector {pause[0] * 1000:.0f} ms here"
        )
        print(f"{told}; load after: {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
