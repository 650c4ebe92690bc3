"""A scheduler that runs on every machine, of which one is the leader and starts the jobs."""

from __future__ import annotations

import argparse
import signal
import sqlite3
import sys
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import leased
from leased.fences.sql import GuardTable

if TYPE_CHECKING:
    from collections.abc import Iterator

GUARDS = GuardTable()


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """All of it, or nothing."""
    with database, closing(database.cursor()) as cursor:
        yield cursor


def tick(database: sqlite3.Connection, fencing_token: int, *, by_hand: bool) -> None:
    """Start the jobs that are due: here, one line in a journal. A former leader is refused."""
    if by_hand:
        sys.stdin.readline()
    with transaction(database) as cursor:
        GUARDS.check(cursor, "scheduler", fencing_token=fencing_token)
        cursor.execute("INSERT INTO journal (fencing_token) VALUES (?)", (fencing_token,))
    print("started what was due, under fencing token", fencing_token, flush=True)


def lead(database: sqlite3.Connection, handle: leased.Handle, options: Any) -> None:
    """Tick as long as we lead; `LockLost` is raised where the block ends."""
    print("leads under fencing token", handle.fencing_token, flush=True)
    while not handle.lost:
        tick(database, handle.fencing_token, by_hand=options.by_hand)
        time.sleep(options.every)


def main() -> int:
    """Wait for the lead, lead until it is lost or the program is told to end, and wait again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="sqlite:locks.db", help="what all machines can reach (sqlite:locks.db)")
    parser.add_argument("--data", default="journal.db", help="where is written down what was started (journal.db)")
    parser.add_argument("--ttl", default="5s", help="how long nobody leads after a leader has died (5s)")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two looks at what is due (1)")
    parser.add_argument("--by-hand", action="store_true", help="a look at what is due is over when you press Enter")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # leaves the block, which hands the lead to the next one
    with closing(sqlite3.connect(options.data, timeout=30)) as database, leased.connect(options.store) as locks:
        database.execute("CREATE TABLE IF NOT EXISTS journal (at INTEGER PRIMARY KEY, fencing_token INTEGER NOT NULL)")
        database.execute(GUARDS.schema("sqlite"))
        database.commit()
        while True:
            print("stands by", flush=True)
            try:
                with locks.lock("scheduler", ttl=options.ttl, wait=leased.FOREVER, name="scheduler") as handle:
                    lead(database, handle, options)
            except leased.LockLost as lost:
                refused = isinstance(lost.__cause__, leased.StaleFencingToken)
                print("leads no more:", "its write was refused" if refused else lost.reason, flush=True)


if __name__ == "__main__":
    sys.exit(main())
