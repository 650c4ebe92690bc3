"""Imports the contacts of a user: one import of each user at a time, any number of users side by side."""

from __future__ import annotations

import argparse
import sys

import leased

BUSY = leased.LockNotAcquired.exit_status


def main() -> int:
    """Import for one user, or say that an import of this user is under way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("user")
    parser.add_argument("--store", default="sqlite:locks.db", help="such as redis://localhost (sqlite:locks.db)")
    parser.add_argument("--ttl", default="30s", help="how long an import that dies blocks its user (30s)")
    parser.add_argument("--by-hand", action="store_true", help="the import is over when you press Enter")
    options = parser.parse_args()
    with leased.connect(options.store) as locks:

        @locks.lock("import:{user}", ttl=options.ttl, name="import")
        def import_contacts(user: str) -> str:
            print("imports", user, flush=True)
            if options.by_hand:
                sys.stdin.readline()
            return f"imported {user} under fencing token {leased.current_fencing_token()}"

        try:
            print(import_contacts(options.user), flush=True)
        except leased.LockNotAcquired as busy:
            print(busy.message, flush=True)
            return BUSY
    return 0


if __name__ == "__main__":
    sys.exit(main())
