"""Which SQLite library drives the file, and what its error codes mean; it knows no table and no lease."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import quote

# The first release of each line without the bug that can damage a database in WAL mode when a checkpoint and a
# commit that starts the log anew meet ("WAL-reset bug"). Later lines never had it.
_WAL_FIXED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))

Verdict = Literal["busy", "unusable", "no_answer"]
"""What an error of SQLite means: ask again, this will never work here, or nobody knows."""

# By primary error code. What is not listed is a fault that trying again will not cure.
_VERDICTS: dict[int, Verdict] = {
    5: "busy",  # BUSY
    6: "busy",  # LOCKED
    7: "no_answer",  # NOMEM
    9: "no_answer",  # INTERRUPT
    10: "no_answer",  # IOERR
    13: "no_answer",  # FULL: it ends as soon as there is space, and the leases in the file go on meanwhile
    15: "busy",  # PROTOCOL: a race for the locks of the write-ahead log
    17: "busy",  # SCHEMA: another process changed the schema while the statement was prepared
}
_CANTOPEN = 14
MOVED = 1032
"""The extended code for a file that was moved or deleted since it was opened."""

_SETTLED = frozenset({5, 6, 13})
"""BUSY, LOCKED and FULL: after them a failed COMMIT has certainly changed nothing."""

_ADVICE: dict[int, str] = {
    3: "give this user permission to read and write the file and its directory",
    8: "give this user permission to write the file and its directory",
    _CANTOPEN: "give this user permission to write the file and its directory",
    11: "stop all users of the file, move it and its -wal, -shm and -journal files away; a new one is made",
    13: "free some space on this disk",
    26: "choose another path",
}


class Cursor(Protocol):
    """The rows of a statement."""

    def fetchone(self) -> Any:
        """The next row, or `None`."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """What both libraries have in common."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was begun and not ended."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Cursor:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


@dataclass(frozen=True, slots=True)
class Driver:
    """An SQLite library: how to connect, how its errors are called and whether its WAL mode may be used."""

    name: str
    version: tuple[int, ...]
    connect: Callable[[str], Connection]
    error: type[Exception]

    @property
    def version_text(self) -> str:
        """The version as people write it."""
        return ".".join(map(str, self.version))

    @property
    def wal(self) -> bool:
        """Whether its WAL mode is free of the WAL-reset bug."""
        return any(
            self.version >= fixed if fixed == _WAL_FIXED[0] else fixed <= self.version < (3, fixed[1] + 1)
            for fixed in _WAL_FIXED
        )


def code(error: Exception) -> int:
    """The extended error code of an exception of either library; 1 (a generic error) where it has none."""
    found = getattr(error, "sqlite_errorcode", None) or getattr(error, "extendedresult", None)
    return found if isinstance(found, int) else 1


def verdict(error: Exception) -> Verdict:
    """What an error means."""
    return _VERDICTS.get(code(error) & 0xFF, "unusable")


def settled(error: Exception) -> bool:
    """Whether a COMMIT that failed so has certainly changed nothing."""
    return code(error) & 0xFF in _SETTLED


def advice(error: Exception) -> str | None:
    """What a person can do."""
    return _ADVICE.get(code(error) & 0xFF)


def cannot_open(error: Exception) -> bool:
    """Whether a file could not be opened, which has many causes."""
    return code(error) & 0xFF == _CANTOPEN


def standard() -> Driver:
    """Python's own."""

    def connect(path: str) -> Connection:
        address = f"file:{quote(path)}?mode=rw"  # never created here: that has rules of its own
        return sqlite3.connect(address, uri=True, timeout=0, isolation_level=None, check_same_thread=False)

    return Driver("sqlite3", sqlite3.sqlite_version_info, connect, sqlite3.Error)


def newer() -> Driver | None:
    """That of the extra `leased[sqlite]`, if it is installed."""
    try:
        import apsw
    except ImportError:
        return None

    def connect(path: str) -> Connection:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        connection.setbusytimeout(0)
        return connection

    version = tuple(int(part) for part in apsw.sqlitelibversion().split("."))
    return Driver("apsw", version, connect, apsw.Error)


@functools.cache
def driver() -> Driver:
    """The library that this process uses: one for all its files, for two in one process undo each other's locks.

    Python's own, unless its WAL mode must not be used and a newer one is installed.
    """
    own = standard()
    if own.wal:
        return own
    other = newer()
    return other if other and other.wal else own
