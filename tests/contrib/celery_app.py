"""Tasks for a real worker: `celery -A tests.contrib.celery_app worker`. Where they write, and which store, is in the
environment."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from celery import Celery  # type: ignore[import-untyped]
from celery.exceptions import SoftTimeLimitExceeded  # type: ignore[import-untyped]

import leased
from leased.contrib.celery import one_at_a_time

REDIS = os.environ.get("TEST_REDIS", "redis://127.0.0.1:1")
STORE = os.environ.get("TEST_STORE", f"{REDIS}/6")
F = TypeVar("F", bound=Callable[..., Any])
LINES = Path(os.environ.get("TEST_LINES", os.devnull))

app = Celery("tests", broker=f"{REDIS}/7", backend=f"{REDIS}/8")
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    result_expires=600,
)


def task(**options: Any) -> Callable[[F], F]:
    """As `app.task`, with types."""
    made: Any = app.task(**options)
    return cast("Callable[[F], F]", made)


def write(*words: Any) -> None:
    """One line, at once."""
    with LINES.open("a") as lines:
        lines.write(" ".join(map(str, (*words, os.getpid()))) + "\n")


@task(bind=True, max_retries=None)
@one_at_a_time("import:{user}", store=STORE, ttl=5, retry_in=0.05)
def import_user(self: Any, user: str, seconds: float = 0.0) -> int:
    """What one at a time does for each user."""
    write("begin", user, self.request.id, leased.current().owner)
    time.sleep(seconds)
    write("end", user, self.request.id, leased.current_fencing_token())
    return leased.current_fencing_token() or 0


@task()
@one_at_a_time("import:{user}", store=STORE, retry_in=None)
def skip_user(user: str) -> str:
    """The same, skipped where another one runs."""
    return f"ran for {user}"


@task(bind=True, max_retries=1)
@one_at_a_time("import:{user}", store=STORE, retry_in=0.05)
def give_up(self: Any, user: str) -> None:
    """The same, which gives up after one retry."""


def _until_told(name: str) -> None:
    """Wait for the test to make this file; a loop, so that what interrupts it does so soon."""
    while not LINES.with_name(name).exists():
        time.sleep(0.01)


@task(soft_time_limit=1, ignore_result=False)
@one_at_a_time("import:{user}", store=STORE, ttl=600)
def too_slow(user: str) -> None:
    """What its soft time limit interrupts."""
    write("begin", user)
    try:
        _until_told("never")
    except SoftTimeLimitExceeded:
        write("interrupted", user, leased.current().lost)
        raise


@task(time_limit=1)
@one_at_a_time("import:{user}", store=STORE, ttl=4)
def hung(user: str) -> None:
    """What its hard time limit kills."""
    write("begin", user)
    _until_told("never")


@task(bind=True, max_retries=None)
@one_at_a_time("import:{user}", store=STORE, ttl=600, retry_in=0.05)
def in_slices(self: Any, user: str) -> list[int]:
    """A run of two slices: each takes a lock that it never releases, and the first one ends as `user` says."""
    with leased.connect(STORE) as locks:
        account = locks.lock(f"account:{user}", ttl=600).acquire()
        write("slice", user, account.owner, account.fencing_token)
        tokens = [int(line.split()[3]) for line in LINES.read_text().splitlines()]
        if len(tokens) == 1 and user == "retried":
            raise self.retry(countdown=0)
        if len(tokens) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        account.release()
    return tokens


@task(bind=True, max_retries=None, autoretry_for=(leased.LockLost,), default_retry_delay=0)
@one_at_a_time("import:{user}", store=STORE, ttl=6, retry_in=0.05)
def unlucky(self: Any, user: str) -> int:
    """What ends when it is told, and is tried again when its lease was lost."""
    write("begin", user, leased.current_fencing_token())
    leased.current().on_at_risk(lambda *_: write("risk", user))
    leased.current().on_lost(lambda *_: write("lost", user))
    _until_told("go on")
    return leased.current_fencing_token() or 0


@task(acks_late=False)
@one_at_a_time("import:{user}", store=STORE, ttl=600)
def loses(user: str) -> str:
    """What ends when it is told, lease or not."""
    write("begin", user)
    _until_told("go on")
    return "done"
