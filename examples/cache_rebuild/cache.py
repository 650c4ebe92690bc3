"""A price list that is dear to make, kept in Redis: one program makes it anew, the others go on with the old one."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import closing
from typing import Any

import redis

import leased
from leased.fences.redis import RedisGuard

NAME = "{prices}"  # in braces, so that a cluster keeps the guard beside it


def read(client: redis.Redis) -> dict[str, Any] | None:
    """The list as it was last made, with the time at which it was."""
    text: Any = client.get(NAME)
    found: dict[str, Any] | None = None if text is None else json.loads(text)
    return found


def fresh(found: dict[str, Any] | None, *, max_age: float) -> bool:
    """Whether this list can be served as it is."""
    return found is not None and time.time() - found["made_at"] <= max_age


def make_anew(client: redis.Redis, *, max_age: float, by_hand: bool) -> str:
    """Make the list, and write it unless a later holder of the lock has; says what came of it."""
    found = read(client)
    if found is not None and fresh(found, max_age=max_age):  # made by the one that we waited for
        return f"served the list that was made under {found['made_under']}"
    token = leased.current_fencing_token()
    print("adds up prices", flush=True)
    if by_hand:
        sys.stdin.readline()
    prices = {"made_at": time.time(), "made_under": token, "prices": {"apple": 30, "pear": 45}}
    try:
        RedisGuard(client, f"{NAME}:guard").write("SET", NAME, json.dumps(prices), fencing_token=token)
    except leased.StaleFencingToken as stale:
        return f"refused: {stale.message}"
    return f"made anew under fencing token {token}"


def serve_old(old: dict[str, Any] | None) -> int:
    """Another one makes the list anew: give the old one, if there is any; the exit status."""
    if old is None:
        print("nothing to serve: another one still makes the first list", flush=True)
        return leased.LockNotAcquired.exit_status
    print(f"served the old list that was made under {old['made_under']}: another one makes it anew", flush=True)
    return 0


def main() -> int:
    """Give the price list; make it first if it is too old and nobody else does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", default="redis://localhost:6379/0", help="for the list and its lock")
    parser.add_argument("--max-age", type=float, default=60.0, help="seconds after which it is made anew (60)")
    parser.add_argument("--ttl", default="10s", help="how long a program that dies keeps others from making it (10s)")
    parser.add_argument("--wait", default="1m", help="how long to wait for the first list, if another makes it (1m)")
    parser.add_argument("--by-hand", action="store_true", help="it is made when you press Enter")
    options = parser.parse_args()
    with closing(redis.Redis.from_url(options.redis)) as client, leased.connect(options.redis) as locks:
        found = read(client)
        if found is not None and fresh(found, max_age=options.max_age):
            print(f"served the list that was made under {found['made_under']}", flush=True)
            return 0
        if found is None:  # there is nothing to serve meanwhile: wait for whoever makes the first one
            print("finds no list", flush=True)
        lock = locks.lock("prices", ttl=options.ttl, wait=0 if found is not None else options.wait, name="prices")
        result = lock.run(lambda: make_anew(client, max_age=options.max_age, by_hand=options.by_hand))
        if not result.ran:
            return serve_old(read(client))
    print(result.value, flush=True)
    return 1 if result.lost else 0


if __name__ == "__main__":
    sys.exit(main())
