"""`python -m tests.fences.writer KIND URL NUMBER`: one of at most eight that write as fast as they can.

Their tokens are the time, so that they are always about to overtake each other; each writes the number of its token. It
begins when it is told to by a line, and fails where a write was neither done nor refused for a higher token.
"""

import sys
import time

from leased.errors import StaleFencingToken, StoreUnavailable
from tests.fences.places import KINDS, Place

WRITES = 60


def write(place: Place, token: int) -> bool:
    """Whether it was written; else a higher one was there."""
    while True:
        try:
            if place.write(token, fencing_token=token):
                return True
            sys.exit(f"there was nothing to write {token} to")
        except StaleFencingToken as error:
            if error.fencing_token == token and (error.seen or 0) > token:
                return False
            raise
        except StoreUnavailable as error:  # others were quicker, too often in a row: object storage
            if error.applied is not False:
                raise


def main(kind: str, url: str, number: str) -> None:
    """Write many times; print the highest token that was written."""
    place = KINDS[kind][0](url)
    print("ready", flush=True)
    sys.stdin.readline()
    highest = 0
    for _ in range(WRITES):
        token = time.monotonic_ns() // 1000 * 8 + int(number)
        if write(place, token):
            highest = token
    print(highest, flush=True)
    place.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
