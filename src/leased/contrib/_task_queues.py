"""What task queues have in common: one task at a time for a key, by the id of the task. It knows no queue."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import leased
from leased.checks import Duration, seconds
from leased.contrib._calls import arguments_of, filled_in, refuse_later
from leased.contrib._opened import Opened, StoreGiven
from leased.errors import LeasedError, LockNotAcquired

P = ParamSpec("P")
T = TypeVar("T")

_HINT = "name arguments of the task, and write literal braces twice"

_log = logging.getLogger("leased")


@dataclass(frozen=True, slots=True)
class Running:
    """A task that a worker runs here: its name as an owner, and what to raise so that the queue tries it again after
    so many seconds."""

    owner: str
    retry: Callable[[LeasedError, float], BaseException]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the decorators of all queues are given."""

    key: str
    store: StoreGiven
    ttl: Duration
    wait: Duration
    retry_in: Duration | None
    name: str | None


def one_at_a_time(
    terms: Terms, *, running: Callable[[], Running | None]
) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
    """The decorator. `running` finds the task that a worker runs in this thread, and `None` outside of a worker.

    | the key | in a worker | elsewhere |
    | --- | --- | --- |
    | is had | it runs under the lease, all locks inside belong to the task | it runs under the lease |
    | somebody else has it | retried, or skipped with `retry_in=None` | `LockNotAcquired` |
    | cannot be asked for now | retried, or what the store raised with `retry_in=None` | what the store raised |
    | cannot be had whatever one does | what the store raised | what the store raised |
    """
    opened = Opened(terms.store)
    delay = None if terms.retry_in is None else seconds(terms.retry_in, what="retry_in")

    def decorate(task: Callable[P, T]) -> Callable[P, T | None]:
        refuse_later(task)
        signature = inspect.signature(task)

        @functools.wraps(task)
        def run(*args: P.args, **kwargs: P.kwargs) -> T | None:
            here = running()
            key = filled_in(terms.key, arguments_of(signature, args=args, kwargs=kwargs), hint=_HINT)
            lock = opened.blocking().lock(key, ttl=terms.ttl, wait=terms.wait, name=terms.name)
            with ExitStack() as block:
                if here is not None:
                    block.enter_context(leased.owner_scope(here.owner))
                try:
                    block.enter_context(lock.hold())
                except LeasedError as error:
                    if here is None or not error.retryable:
                        raise
                    if delay is not None:
                        raise here.retry(error, max(delay, error.retry_after or 0.0)) from error
                    if not isinstance(error, LockNotAcquired):
                        raise
                    _log.info("%s is skipped: %s", here.owner, error.message)
                    return None
                return task(*args, **kwargs)

        return run

    return decorate
