"""`python -m tests.fences.holder KIND URL STORE`: a holder that writes what it is told, whatever became of its lease.

It prints its fencing token once it has the key, and for each number that it reads what came of writing it.
"""

import sys

import leased
from tests.fences.places import KINDS

TTL = 0.5


def main(kind: str, url: str, store: str) -> None:
    """Hold the key, without renewing it, and write on."""
    place = KINDS[kind][0](url)
    with leased.connect(store) as locks:
        handle = locks.lock("report", ttl=TTL, wait=30).acquire()
        print(handle.fencing_token, flush=True)
        for line in sys.stdin:
            try:
                place.write(int(line), fencing_token=handle.fencing_token)
                print("written", flush=True)
            except leased.StaleFencingToken as error:
                print(f"stale {error.fencing_token} {error.seen}", flush=True)
        handle.release()
    place.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
