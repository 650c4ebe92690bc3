"""Jobs that a schedule starts on every machine and that shall run on one: for APScheduler and the like.

It schedules nothing itself.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from leased.checks import Duration
from leased.contrib._calls import is_async, refuse_later
from leased.contrib._opened import Opened, StoreGiven

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("leased")


class Decorator(Protocol):
    """Makes of a job one that gives `None` where it was skipped."""

    @overload
    def __call__(self, job: Callable[P, Coroutine[Any, Any, T]], /) -> Callable[P, Coroutine[Any, Any, T | None]]: ...
    @overload
    def __call__(self, job: Callable[P, T], /) -> Callable[P, T | None]: ...


def on_one(
    key: str,
    *,
    store: StoreGiven,
    ttl: Duration = 30.0,
    hold_at_least: Duration = 0.0,
    name: str | None = None,
) -> Decorator:
    """A decorator for a job, plain or `async`: of all that start it at about the same time one runs it.

    The calls of the others do nothing and give `None`, with a line in the log. `hold_at_least` keeps the key closed so
    long from the start, also after the job has ended: choose it longer than the clocks of the machines are apart, and
    shorter than the schedule. The lease is renewed while the job runs; `ttl` is how long a machine that dies keeps the
    others from the next run. A lease that was lost meanwhile is in the log and changes nothing here. `store` is a URL,
    opened on first use and kept open, or locks of the face that the job has. Errors of the job pass through; a store
    that does not answer raises `StoreUnavailable`, and nothing runs. Raises `InvalidRequest` for a generator.
    """
    opened = Opened(store)
    terms: dict[str, Any] = {"ttl": ttl, "hold_at_least": hold_at_least, "name": name}

    def decorate(job: Callable[..., Any]) -> Callable[..., Any]:
        refuse_later(job, may_await=True)
        if is_async(job):

            @functools.wraps(job)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                result = await opened.asynchronous().lock(key, **terms).try_run(job, *args, **kwargs)
                return _value(result, key)

            return run_async

        @functools.wraps(job)
        def run(*args: Any, **kwargs: Any) -> Any:
            return _value(opened.blocking().lock(key, **terms).try_run(job, *args, **kwargs), key)

        return run

    return cast("Decorator", decorate)


def _value(result: Any, key: str) -> Any:
    if not result.ran:
        _log.info("the job of %r runs elsewhere, or has just run: skipped here", key)
    return result.value
