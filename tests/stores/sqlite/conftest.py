"""Files and SQLite libraries for the tests of the SQLite store."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from leased.clocks import step
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
