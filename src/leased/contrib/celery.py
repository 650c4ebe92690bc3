"""Celery tasks of which one runs at a time, for each of the things that they are about. It configures no Celery.

The lease belongs to the task, by its id: a task that is delivered again takes over the lease that it left behind. The
broker decides when that is; see the page on Celery for time-outs that deliver a task again while it runs.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ParamSpec, TypeVar

from leased.checks import Duration, seconds
from leased.contrib._calls import filled_in, refuse_later
from leased.contrib._opened import Opened, StoreGiven
from leased.errors import LockNotAcquired

P = ParamSpec("P")
T = TypeVar("T")

_HINT = "name arguments of the task, and write literal braces twice"

_log = logging.getLogger("leased")


def one_at_a_time(
    key: str,
    *,
    store: StoreGiven,
    ttl: Duration = 30.0,
    wait: Duration = 0.0,
    retry_in: Duration | None = 5.0,
    name: str | None = None,
) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
    """A decorator below `@app.task`: the task runs under a lease on `key`, in which `{names}` of its arguments are
    filled in, with the id of the task as the owner.

    While another task has the key, this one is retried in `retry_in` seconds, by the task's own `max_retries`, after
    which it fails with `LockNotAcquired`; with `retry_in=None` it ends without a result instead, and a line in the log.
    `wait` keeps a worker busy with waiting: prefer retries. The lease is renewed while the task runs. Called as a plain
    function, not by a worker, it has no owner and raises what a lock raises.
    """
    opened = Opened(store)
    delay = None if retry_in is None else seconds(retry_in, what="retry_in")

    def decorate(task: Callable[P, T]) -> Callable[P, T | None]:
        refuse_later(task)
        signature = inspect.signature(task)

        @functools.wraps(task)
        def run(*args: P.args, **kwargs: P.kwargs) -> T | None:
            running = _running()
            lock = opened.blocking().lock(
                filled_in(key, _arguments(signature, args, kwargs), hint=_HINT),
                ttl=ttl,
                wait=wait,
                name=name,
                owner=None if running is None else f"celery:{running.request.id}",
            )
            with ExitStack() as block:
                try:
                    block.enter_context(lock.hold())
                except LockNotAcquired as busy:
                    if running is None:
                        raise
                    if delay is None:
                        _log.info("task %s is skipped: %s", running.request.id, busy.message)
                        return None
                    raise running.retry(exc=busy, countdown=delay) from busy
                return task(*args, **kwargs)

        return run

    return decorate


def _running() -> Any:
    """The task that this worker runs here, if it is one that has an id."""
    import celery  # type: ignore[import-untyped]

    current: Any = celery.current_task
    return current._get_current_object() if current and current.request.id else None


def _arguments(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments
