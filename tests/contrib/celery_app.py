"""Tasks for a real worker: `celery -A tests.contrib.celery_app worker`. Where they write, and which store, is in the
environment."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from celery import Celery  # type: ignore[import-untyped]

import leased
from leased.contrib.celery import one_at_a_time

REDIS = os.environ.get("TEST_REDIS", "redis://127.0.0.1:1")
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
@one_at_a_time("import:{user}", store=f"{REDIS}/6", ttl=5, retry_in=0.05)
def import_user(self: Any, user: str, seconds: float = 0.0) -> int:
    """What one at a time does for each user."""
    write("begin", user, self.request.id, leased.current().owner)
    time.sleep(seconds)
    write("end", user, self.request.id, leased.current_fencing_token())
    return leased.current_fencing_token() or 0


@task()
@one_at_a_time("import:{user}", store=f"{REDIS}/6", retry_in=None)
def skip_user(user: str) -> str:
    """The same, skipped where another one runs."""
    return f"ran for {user}"


@task(bind=True, max_retries=1)
@one_at_a_time("import:{user}", store=f"{REDIS}/6", retry_in=0.05)
def give_up(self: Any, user: str) -> None:
    """The same, which gives up after one retry."""
