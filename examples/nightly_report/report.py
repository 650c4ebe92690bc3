"""The report of the night: every machine of the fleet starts this at the same time, and one of them does it."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from contextlib import closing

import leased
from leased.contrib.jobs import on_one
from leased.fences.sql import guarded_update

ORDERS = {"2031-05-17": [120, 80, 45]}


def prepare(database: sqlite3.Connection, day: str) -> None:
    """The table of reports, with a row for the day and a column for the fencing token of whoever wrote it."""
    with database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS report (day TEXT PRIMARY KEY, total INTEGER, fencing_token INTEGER)"
        )
        database.execute("INSERT OR IGNORE INTO report (day) VALUES (?)", (day,))


def write(database: sqlite3.Connection, day: str, *, total: int) -> str:
    """Write the total, unless a later holder of the lock has; says what came of it."""
    token = leased.current_fencing_token()
    try:
        with database:
            guarded_update(
                database.cursor(), "report", values={"total": total}, where={"day": day}, fencing_token=token
            )
    except leased.StaleFencingToken as stale:
        return f"refused: {stale.message}"
    return f"written under fencing token {token}: {day}, {total}"


def main() -> int:
    """Run the report here, unless another machine does or has just done it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="sqlite:locks.db", help="what all machines can reach (sqlite:locks.db)")
    parser.add_argument("--data", default="reports.db", help="where reports are kept (reports.db)")
    parser.add_argument("--day", default="2031-05-17")
    parser.add_argument("--ttl", default="30s", help="how long a machine that dies keeps the others out (30s)")
    parser.add_argument("--hold-at-least", default="1m", help="longer than the clocks are apart (1m)")
    parser.add_argument("--by-hand", action="store_true", help="the work is over when you press Enter")
    options = parser.parse_args()

    @on_one("nightly-report", store=options.store, ttl=options.ttl, hold_at_least=options.hold_at_least, name="report")
    def report() -> str:
        print("adds up the orders of", options.day, flush=True)
        if options.by_hand:
            sys.stdin.readline()
        return write(database, options.day, total=sum(ORDERS.get(options.day, [])))

    with closing(sqlite3.connect(options.data, timeout=30)) as database:
        prepare(database, options.day)
        told = report()
    print(told or "skipped: it runs elsewhere, or has just run", flush=True)
    return 1 if told is not None and told.startswith("refused") else 0


if __name__ == "__main__":
    sys.exit(main())
