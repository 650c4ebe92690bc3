"""PostgreSQL driven raw: one statement to take a key and one to free it, prepared, over libpq alone."""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq import ExecStatus

from bench.worker import Run

_CREATE = """
CREATE TABLE IF NOT EXISTS bench (
    key text COLLATE "C" PRIMARY KEY, token text NOT NULL, owner text, fencing_token bigint NOT NULL,
    expires_at timestamptz NOT NULL
)
"""
_VALUES = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint, clock_timestamp() + interval '30 seconds'"
_TAKE = """
ON CONFLICT (key) DO UPDATE SET
    token = excluded.token, owner = excluded.owner, expires_at = excluded.expires_at,
    fencing_token = greatest(bench.fencing_token + 1, excluded.fencing_token)
WHERE bench.expires_at <= clock_timestamp()
RETURNING fencing_token
"""
ACQUIRE = f"INSERT INTO bench SELECT $1::text, $2::text, 'bench', {_VALUES} {_TAKE}"
RELEASE = "DELETE FROM bench WHERE key = $1::text AND token = $2::text RETURNING 1"
TELL = f"WITH freed AS ({RELEASE}) SELECT pg_notify('bench', $1::text) FROM freed"
MANY = f"""
WITH freed AS (
    DELETE FROM bench USING unnest($3::text[], $4::text[]) AS gone (key, token)
    WHERE bench.key = gone.key AND bench.token = gone.token
    RETURNING 1 AS done
), taken AS (
    INSERT INTO bench
    SELECT wanted.key, wanted.token, 'bench', {_VALUES} FROM unnest($1::text[], $2::text[]) AS wanted (key, token)
    {_TAKE}
)
SELECT fencing_token FROM taken UNION ALL SELECT done FROM freed
"""
_STATEMENTS = {b"acquire": ACQUIRE, b"release": RELEASE, b"tell": TELL, b"many": MANY}


def connected(url: str) -> psycopg.Connection[Any]:
    """A connection that knows the statements; the table is there."""
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("SELECT pg_advisory_lock(1)")  # two that make the same table at once get in each other's way
    connection.execute(_CREATE)
    connection.execute("SELECT pg_advisory_unlock(1)")
    for name, statement in _STATEMENTS.items():
        connection.pgconn.prepare(name, statement.encode())
    return connection


def new_token() -> bytes:
    """A token, as text."""
    return os.urandom(16).hex().encode()


def checked(result: Any, *, rows: int = 1) -> None:
    """The statement did what it was asked for, on so many rows."""
    if result.status != ExecStatus.TUPLES_OK or result.ntuples != rows:
        raise RuntimeError(f"{result.ntuples} rows, {rows} wanted: {result.error_message.decode()}")


class Asking:
    """One connection of a loop, for one statement at a time."""

    def __init__(self, url: str) -> None:
        self.connection = connected(url)
        self._protocol = self.connection.pgconn
        self._protocol.nonblocking = 1
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Any] = self._loop.create_future()
        self._loop.add_reader(self._protocol.socket, self._read)

    def ask(self, name: bytes, values: Sequence[bytes]) -> asyncio.Future[Any]:
        """Send a prepared statement; the future is its result."""
        self._protocol.send_query_prepared(name, values)
        self._protocol.flush()
        self._answer = self._loop.create_future()
        return self._answer

    def close(self) -> None:
        """Close the connection."""
        self._loop.remove_reader(self._protocol.socket)
        self.connection.close()

    def _read(self) -> None:
        self._protocol.consume_input()
        while not self._protocol.is_busy():
            result = self._protocol.get_result()
            if result is None:
                return
            self._answer.set_result(result)


@contextmanager
def pair(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor of blocking callers."""
    connection = connected(url)
    execute = connection.pgconn.exec_prepared
    numbers = itertools.count()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            values = (b"raw-%d" % number, new_token())
            checked(execute(b"acquire", values))
            checked(execute(b"release", values))

    yield run
    connection.close()


@contextmanager
def pair_async(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor of tasks: libpq's socket, read by the loop."""
    numbers = itertools.count()

    async def pairs(count: int) -> None:
        for number in itertools.islice(numbers, count):
            values = (b"raw-async-%d" % number, new_token())
            checked(await connection.ask(b"acquire", values))
            checked(await connection.ask(b"release", values))

    with asyncio.Runner() as runner:
        connection = runner.run(_asking(url))
        yield lambda count: runner.run(pairs(count))
        connection.close()


@contextmanager
def hand_off(directory: Path, *, url: str) -> Iterator[Run]:
    """One side of a hand-off (see `bench.contenders.hand_off`): the one who waits listens on a connection."""
    connection, listening = connected(url), connected(url)
    listening.execute("LISTEN bench")
    execute = connection.pgconn.exec_prepared
    values = (b"raw-hand-off", b"0" * 32)

    def run(action: str) -> Any:
        if action == "give":
            began = time.perf_counter()
            checked(execute(b"tell", values))
            return {"began": began}
        if action == "take":
            while listening.pgconn.notifies() is None:
                select.select([listening], [], [])
                listening.pgconn.consume_input()
        checked(execute(b"acquire", values))
        held = time.perf_counter()
        if action == "take":
            checked(execute(b"release", values))
        return {"held": held}

    yield run
    listening.close()
    connection.close()


@contextmanager
def tasks(directory: Path, *, url: str, clients: int) -> Iterator[Run]:
    """The floor of many tasks: what they ask while a statement is on its way is the next one."""
    with asyncio.Runner() as runner:
        joined = runner.run(_joined(url))

        async def client(name: int, pairs: int) -> None:
            for number in range(pairs):
                values = (b"raw-%d-%d" % (name, number), new_token())
                await joined.ask(joined.wanted, values)
                await joined.ask(joined.freed, values)

        async def all_clients(count: int) -> None:
            await asyncio.gather(*(client(name, count // clients) for name in range(clients)))

        yield lambda count: runner.run(all_clients(count))
        joined.connection.close()


class _Joined:
    """Puts everything that waits into one statement."""

    def __init__(self, connection: Asking) -> None:
        self.connection = connection
        self.wanted: list[tuple[bytes, bytes]] = []
        self.freed: list[tuple[bytes, bytes]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._loop = asyncio.get_running_loop()
        self._busy = False

    def ask(self, where: list[tuple[bytes, bytes]], values: tuple[bytes, bytes]) -> asyncio.Future[None]:
        """Take or free a key with the next statement."""
        where.append(values)
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._send)
        return future

    def _send(self) -> None:
        arrays = [*_columns(self.wanted), *_columns(self.freed)]
        waiting, self._waiting = self._waiting, []
        self.wanted.clear()
        self.freed.clear()
        self.connection.ask(b"many", arrays).add_done_callback(lambda done: self._answered(done.result(), waiting))

    def _answered(self, result: Any, waiting: list[asyncio.Future[None]]) -> None:
        checked(result, rows=len(waiting))
        for future in waiting:
            future.set_result(None)
        self._busy = bool(self._waiting)
        if self._busy:
            self._send()
        else:
            self._busy = False


def _columns(rows: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    return b"{%b}" % b",".join(row[0] for row in rows), b"{%b}" % b",".join(row[1] for row in rows)


async def _asking(url: str) -> Asking:
    return Asking(url)


async def _joined(url: str) -> _Joined:
    return _Joined(Asking(url))
