"""A task of several steps that goes on where it stopped, at once, under the lease that it had left behind."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import leased
from leased.fences.sql import GuardTable

STEPS = ("fetch the catalogue", "work out prices", "publish")
FINISHED = "CREATE TABLE IF NOT EXISTS finished (run TEXT, step TEXT, fencing_token INTEGER, PRIMARY KEY (run, step))"
GUARDS = GuardTable()


@contextmanager
def guarded(database: sqlite3.Connection) -> Iterator[int | None]:
    """A transaction in which whoever had the lock before can write no more, and neither could we if we had lost it."""
    token = leased.current_fencing_token()
    with database:
        GUARDS.check(database.cursor(), "catalogue", fencing_token=token)
        yield token


def finished(database: sqlite3.Connection, run: str, *, step: str) -> bool:
    """Whether this step of this run was finished. The guard is raised first: or who had the lock before might finish it
    after this look."""
    with guarded(database):
        found = database.execute("SELECT 1 FROM finished WHERE run = ? AND step = ?", (run, step))
        return found.fetchone() is not None


def finish(database: sqlite3.Connection, run: str, *, step: str) -> None:
    """Write down that a step is finished, together with what it did; not by a process that was taken over."""
    with guarded(database) as token:
        database.execute("INSERT INTO finished VALUES (?, ?, ?)", (run, step, token))
    print(f"finished: {step}, under fencing token {token}", flush=True)


def main() -> int:
    """Do what is left of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="the id of this run, the same when it is started again")
    parser.add_argument("--store", default="sqlite:locks.db", help="where the locks are (sqlite:locks.db)")
    parser.add_argument("--data", default="steps.db", help="where finished steps are written down (steps.db)")
    parser.add_argument("--ttl", default="10m", help="how long a run that is not started again blocks others (10m)")
    parser.add_argument("--by-hand", action="store_true", help="each step is over when you press Enter")
    options = parser.parse_args()
    with closing(sqlite3.connect(options.data, timeout=30)) as database, leased.connect(options.store) as locks:
        database.execute(FINISHED)
        database.execute(GUARDS.schema("sqlite"))
        database.commit()
        try:
            with locks.lock("catalogue", ttl=options.ttl, owner=f"run:{options.run}", name="catalogue"):
                for step in STEPS:
                    if finished(database, options.run, step=step):
                        print("was finished before:", step, flush=True)
                        continue
                    print("begins:", step, flush=True)
                    if options.by_hand:
                        sys.stdin.readline()
                    finish(database, options.run, step=step)
        except leased.LockNotAcquired as busy:
            print(busy.message, flush=True)
            return busy.exit_status
        except (leased.StaleFencingToken, leased.LockLost) as over:
            print("stops, for the same run goes on elsewhere:", over.message, flush=True)
            return over.exit_status
    print("the run is complete", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
