"""Celery tasks of which one runs at a time, for each of the things that they are about. It configures no Celery.

The lease belongs to the task, by its id: a task that is delivered again takes over the lease that it left behind. The
broker decides when that is; see the page on Celery for time-outs that deliver a task again while it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from leased.checks import Duration
from leased.contrib import _task_queues
from leased.contrib._opened import StoreGiven
from leased.errors import LeasedError

P = ParamSpec("P")
T = TypeVar("T")


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
    filled in, with the id of the task as the owner. Locks that it takes inside have that owner too, so that the task,
    delivered again or retried, takes over what it left behind.

    While another task has the key, and while the store does not answer, this one is retried in `retry_in` seconds, by
    the task's own `max_retries`, after which it fails with `LockNotAcquired` or `StoreUnavailable`. With
    `retry_in=None` it ends without a result instead where another one has the key, and a line in the log; a store that
    does not answer fails it. `wait` keeps a worker busy with waiting: prefer retries. The lease is renewed while the
    task runs. Called as a plain function, not by a worker, it has no owner and raises what a lock raises. Raises
    `InvalidRequest` for coroutine functions and generators.
    """
    terms = _task_queues.Terms(key, store, ttl, wait, retry_in, name)
    return _task_queues.one_at_a_time(terms, running=_running)


def _running() -> _task_queues.Running | None:
    """The task that this worker runs here, if it is one that has an id."""
    import celery  # type: ignore[import-untyped]

    current: Any = celery.current_task
    if not current or not current.request.id:
        return None
    task = current._get_current_object()

    def retry(error: LeasedError, delay: float) -> BaseException:
        again: BaseException = task.retry(exc=error, countdown=delay, throw=False)
        return again

    return _task_queues.Running(f"celery:{task.request.id}", retry)
