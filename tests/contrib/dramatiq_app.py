"""Actors for a real worker: `dramatiq tests.contrib.dramatiq_app`. Where they write, and which broker and store, is in
the environment."""

import os
import time
from pathlib import Path
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

import leased
from leased.contrib.dramatiq import one_at_a_time

REDIS = os.environ.get("TEST_REDIS", "redis://127.0.0.1:1")
STORE = os.environ.get("TEST_STORE", f"{REDIS}/6")
LINES = Path(os.environ.get("TEST_LINES", os.devnull))

# A worker that is silent for this long is taken for dead, and what it had is delivered again, by whoever looks first.
broker = RedisBroker(  # type: ignore[no-untyped-call]
    url=f"{REDIS}/7", heartbeat_timeout=1000, maintenance_chance=1_000_000
)
broker.add_middleware(Results(backend=RedisBackend(url=f"{REDIS}/8"), store_results=True))  # type: ignore[no-untyped-call]
if "TEST_WITHOUT" not in os.environ:
    broker.add_middleware(CurrentMessage())
dramatiq.set_broker(broker)


def write(*words: Any) -> None:
    """One line, at once."""
    with LINES.open("a") as lines:
        lines.write(" ".join(map(str, (*words, os.getpid()))) + "\n")


def message_id() -> str:
    """Of the message that is handled."""
    message = CurrentMessage.get_current_message()
    return "" if message is None else message.message_id


@dramatiq.actor(max_retries=1000, min_backoff=20)
@one_at_a_time("import:{user}", store=STORE, ttl=60, retry_in=0.05)
def import_user(user: str, seconds: float = 0.0) -> int:
    """What one at a time does for each user."""
    write("begin", user, message_id(), leased.current().owner)
    time.sleep(seconds)
    write("end", user, message_id(), leased.current_fencing_token())
    return leased.current_fencing_token() or 0


@dramatiq.actor(max_retries=3, min_backoff=20)
@one_at_a_time("import:{user}", store=STORE, ttl=60, retry_in=0.05)
def fail_twice(user: str) -> str:
    """What fails, and is retried, until its third time."""
    write("try", user, message_id(), leased.current().owner)
    times = sum(line.split()[2] == message_id() for line in LINES.read_text().splitlines())
    if times < 3:
        raise KeyError(user)
    return f"ran for {user}"


@dramatiq.actor(max_retries=3, min_backoff=20, time_limit=500)
@one_at_a_time("import:{user}", store=STORE, ttl=60, retry_in=0.05)
def too_slow(user: str) -> str:
    """What is interrupted by its time limit the first time, and then runs."""
    write("try", user, message_id(), leased.current().owner)
    if len(LINES.read_text().splitlines()) > 1:
        return f"ran for {user}"
    while True:
        time.sleep(0.02)


@dramatiq.actor(max_retries=0)
@one_at_a_time("import:{user}", store=STORE, retry_in=None)
def skip_user(user: str) -> str:
    """The same, skipped where another one runs."""
    return f"ran for {user}"


@dramatiq.actor(max_retries=1)
@one_at_a_time("import:{user}", store=STORE, retry_in=0.05)
def give_up(user: str) -> str:
    """The same, which gives up after one retry."""
    return f"ran for {user}"


@dramatiq.actor(max_retries=1000, min_backoff=20)
@one_at_a_time("import:{user}", store=STORE, ttl=600, retry_in=0.05)
def in_slices(user: str) -> list[int]:
    """A run of two slices: each takes a lock that it never releases, and the first one fails."""
    with leased.connect(STORE) as locks:
        account = locks.lock(f"account:{user}", ttl=600).acquire()
        write("slice", user, account.owner, account.fencing_token)
        tokens = [int(line.split()[3]) for line in LINES.read_text().splitlines()]
        if len(tokens) == 1:
            raise KeyError(user)
        account.release()
    return tokens
