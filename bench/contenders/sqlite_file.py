"""The SQLite file that contenders work on: made by leased, in the journal mode asked for; and raw statements on it."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import leased
from leased.stores._sqlite_driver import Connection, Driver, driver

SECOND = 1_000_000


def library(journal: str) -> Driver:
    """The SQLite that serves this journal mode: where Python's own must not use WAL, a newer one does it."""
    if journal != "wal":
        sys.modules["apsw"] = None  # type: ignore[assignment]  # as where `leased[sqlite]` is not installed
    return driver()


def prepared(directory: Path, journal: str) -> Path:
    """The path of the file, in the mode asked for. To be called before the process uses leased in any other way."""
    path = directory / "locks.db"
    chosen = library(journal)
    with (directory / "preparing").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # the mode of a file can change only while nobody else has it open
        if not path.exists():
            with leased.connect(url_of(path)) as locks:
                locks.list()
            connection = chosen.connect(str(path))
            connection.execute(f"PRAGMA journal_mode = {journal}").fetchone()
            connection.close()
    return path


def url_of(path: Path) -> str:
    """How leased is told of the file."""
    return f"sqlite:{path}"


class Raw:
    """The same upsert and delete on the table of leased, by hand: with a token, an owner and an expiry, and as durable.

    Each is a transaction of its own unless the caller begins one.
    """

    def __init__(self, path: Path, journal: str) -> None:
        self.connection: Connection = library(journal).connect(str(path))
        self.connection.execute("PRAGMA busy_timeout = 10000")  # others may be opening it at this moment
        self.connection.execute(f"PRAGMA journal_mode = {journal}").fetchone()
        self.connection.execute("PRAGMA busy_timeout = 0")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.execute: Callable[..., Any] = self.connection.execute
        self._kinds = [(row[1], row[2]) for row in self.execute("PRAGMA table_info(record)")]
        self._upsert = f"INSERT OR REPLACE INTO record VALUES ({', '.join('?' * len(self._kinds))})"
        self._row: list[Any] = [{"TEXT": "bench", "INTEGER": 1, "BLOB": b""}[kind] for _, kind in self._kinds]

    def acquire(self, key: str) -> None:
        """Insert the record."""
        now = time.time_ns() // 1000
        row = self._row.copy()
        for place, (name, kind) in enumerate(self._kinds):
            if name == "key":
                row[place] = key
            elif kind == "BLOB":
                row[place] = os.urandom(32)
            elif name.endswith("_at"):
                row[place] = now + 30 * SECOND
        self.execute(self._upsert, row)

    def release(self, key: str) -> None:
        """Delete the record."""
        self.execute("DELETE FROM record WHERE namespace = 'bench' AND key = ?", (key,))
