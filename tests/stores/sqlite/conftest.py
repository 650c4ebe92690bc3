"""Files, clocks and SQLite libraries for the tests of the SQLite store."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from leased.clocks import step
from leased.stores._sqlite_clock import HostClock
from leased.stores._sqlite_driver import Driver, newer, standard
from leased.stores.sqlite import SqliteStore

Make: TypeAlias = Callable[..., SqliteStore]


def libraries() -> list[Driver]:
    """Python's own SQLite and the newer one: with the one the file has a rollback journal, with the other a WAL."""
    found = newer()
    assert found is not None, "pip install 'leased[sqlite]'"
    return [standard(), found]


@pytest.fixture(params=libraries(), ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> Driver:
    """An SQLite library."""
    found: Driver = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file may be made."""
    return tmp_path / "locks.db"


@pytest.fixture
def make(path: Path, library: Driver) -> Iterator[Make]:
    """Opens stores on one file; they are closed at the end."""
    made: list[SqliteStore] = []

    def make_store(at: Path = path, **options: object) -> SqliteStore:
        made.append(SqliteStore(str(at), **{"library": library, **options}))  # type: ignore[arg-type]  # as given
        return made[-1]

    yield make_store
    for store in made:
        step(store.close())


@dataclass
class Host:
    """A machine whose clocks the test sets: seconds since its boot and since the epoch, and which boot it is."""

    boot: float = 1_000.0
    wall: float = 1_750_000_000.0
    boot_id: str = "first"

    def clock(self) -> HostClock:
        """Its clock, for a store."""
        return HostClock(lambda: int(self.boot * 1e6), lambda: int(self.wall * 1e6), lambda: self.boot_id)

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.boot += seconds
        self.wall += seconds

    def reboot(self, *, down: float = 30.0, up: float = 10.0) -> None:
        """Be down for a while, then run again for a while, as another boot."""
        self.boot, self.wall, self.boot_id = up, self.wall + down + up, f"{self.boot_id}+"


def rows(path: Path, sql: str) -> list[Any]:
    """What is in the file, read by Python's own SQLite from a copy: that never meets the locks of a store here."""
    copy = path.with_name("copy.db")
    for ending in ("", "-wal", "-journal"):
        source = Path(f"{path}{ending}")
        if source.exists():
            Path(f"{copy}{ending}").write_bytes(source.read_bytes())
    try:
        with closing(sqlite3.connect(copy)) as connection:
            return connection.execute(sql).fetchall()
    finally:
        for ending in ("", "-wal", "-shm", "-journal"):
            Path(f"{copy}{ending}").unlink(missing_ok=True)
