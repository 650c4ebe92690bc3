"""What every instance does when a new version is started: bring the database up to date, unless another one does."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import leased
from leased.fences.sql import GuardTable

MIGRATIONS = (
    "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL)",
    "ALTER TABLE customer ADD COLUMN email TEXT",
    "CREATE INDEX customer_email ON customer (email)",
)
GUARDS = GuardTable()


def prepare(database: sqlite3.Connection) -> None:
    """The tables that migrations themselves need."""
    database.execute("CREATE TABLE IF NOT EXISTS migration (number INTEGER PRIMARY KEY, fencing_token INTEGER)")
    database.execute(GUARDS.schema("sqlite"))
    database.commit()


@contextmanager
def guarded(database: sqlite3.Connection, handle: leased.Handle) -> Iterator[None]:
    """A transaction in which whoever had the lock before can write no more, and neither could we if we had lost it."""
    with database:
        database.execute("BEGIN IMMEDIATE")  # or SQLite would make tables outside of any transaction
        GUARDS.check(database.cursor(), "schema", fencing_token=handle.fencing_token)
        yield


def version(database: sqlite3.Connection, handle: leased.Handle) -> int:
    """How many migrations were applied. The guard is raised first: or who had the lock before might apply one more
    after this look."""
    with guarded(database, handle):
        ((number,),) = database.execute("SELECT count(*) FROM migration")
    return int(number)


def migrate(database: sqlite3.Connection, handle: leased.Handle, *, by_hand: bool) -> int:
    """Apply what is missing, each in a transaction of its own; how many that were."""
    before = version(database, handle)
    for number, statement in enumerate(MIGRATIONS[before:], start=before + 1):
        print("applies migration", number, flush=True)
        if by_hand:
            sys.stdin.readline()
        with guarded(database, handle):
            database.execute(statement)
            database.execute("INSERT INTO migration VALUES (?, ?)", (number, handle.fencing_token))
    return len(MIGRATIONS) - before


def main() -> int:
    """Migrate, then serve. An instance that may not migrate does not serve either."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="sqlite:locks.db", help="what all instances can reach (sqlite:locks.db)")
    parser.add_argument("--data", default="application.db", help="the application's database (application.db)")
    parser.add_argument("--ttl", default="30s", help="how long an instance that dies keeps the others waiting (30s)")
    parser.add_argument("--wait", default="10m", help="longer than migrations take (10m)")
    parser.add_argument("--by-hand", action="store_true", help="each migration begins when you press Enter")
    options = parser.parse_args()
    with closing(sqlite3.connect(options.data, timeout=30)) as database, leased.connect(options.store) as locks:
        prepare(database)
        try:
            with locks.lock("migrate", ttl=options.ttl, wait=options.wait, name="migrate") as handle:
                done = migrate(database, handle, by_hand=options.by_hand)
        except leased.LockNotAcquired as busy:
            print(busy.message, flush=True)
            return busy.exit_status
        except leased.LockLost as lost:
            refused = isinstance(lost.__cause__, leased.StaleFencingToken)
            print("does not serve:", "its migration was refused" if refused else lost.message, flush=True)
            return lost.exit_status
    print(f"serves, after {done} migrations of its own, at version {len(MIGRATIONS)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
