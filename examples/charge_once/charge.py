"""Charges an invoice once, however many programs try to, and wherever one of them dies."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from contextlib import closing

import leased

TABLES = """
CREATE TABLE IF NOT EXISTS charge (invoice INTEGER PRIMARY KEY, amount INTEGER, fencing_token INTEGER);
CREATE TABLE IF NOT EXISTS provider (idempotency_key TEXT PRIMARY KEY, amount INTEGER);
"""


def ask_provider(database: sqlite3.Connection, amount: int, *, idempotency_key: str) -> None:
    """Stands for the payment provider, who charges once for each idempotency key, whoever asks and how often."""
    with database:
        database.execute("INSERT OR IGNORE INTO provider VALUES (?, ?)", (idempotency_key, amount))


def charged(database: sqlite3.Connection, invoice: int) -> bool:
    """Whether it is written down that this invoice was charged."""
    return database.execute("SELECT 1 FROM charge WHERE invoice = ?", (invoice,)).fetchone() is not None


def charge(database: sqlite3.Connection, invoice: int, *, amount: int, by_hand: bool) -> str:
    """Charge it, unless that was done; only under the lock of this invoice."""
    if charged(database, invoice):  # this look counts: nobody else is at it now
        return f"invoice {invoice} was charged before"
    ask_provider(database, amount, idempotency_key=f"invoice-{invoice}")
    print("the provider has charged, and nobody has written it down yet", flush=True)
    if by_hand:
        sys.stdin.readline()
    with database:
        token = leased.current_fencing_token()
        database.execute("INSERT INTO charge VALUES (?, ?, ?)", (invoice, amount, token))
    return f"invoice {invoice} charged under fencing token {token}"


def main() -> int:
    """Charge one invoice, waiting for whoever is at it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("invoice", type=int)
    parser.add_argument("--amount", type=int, default=1900, help="in cents (1900)")
    parser.add_argument("--store", default="sqlite:locks.db", help="where the locks are (sqlite:locks.db)")
    parser.add_argument("--data", default="charges.db", help="where charges are kept (charges.db)")
    parser.add_argument("--ttl", default="30s", help="how long a program that dies keeps the others waiting (30s)")
    parser.add_argument("--wait", default="1m", help="how long to wait for another one (1m)")
    parser.add_argument("--by-hand", action="store_true", help="go on when you press Enter")
    options = parser.parse_args()
    with (
        closing(sqlite3.connect(options.data, timeout=30)) as database,
        leased.connect(options.store) as locks,
    ):
        database.executescript(TABLES)
        lock = locks.lock(f"invoice:{options.invoice}", ttl=options.ttl, wait=options.wait, name="invoice")
        told = ""
        try:
            with lock:
                told = charge(database, options.invoice, amount=options.amount, by_hand=options.by_hand)
        except leased.LockNotAcquired as busy:
            print(busy.message, file=sys.stderr)
            return busy.exit_status
        except (sqlite3.IntegrityError, leased.LockLost):  # paused beyond the lease
            if not charged(database, options.invoice):
                raise
            if told:  # nobody else came: the table had nothing against it
                told = f"{told}; its lease was over before it ended"
            else:
                told = f"invoice {options.invoice} was charged by another one meanwhile"
    print(told, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
