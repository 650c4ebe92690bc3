"""Dramatiq actors of which one runs at a time, for each of the things that they are about. It configures no Dramatiq.

The lease belongs to the message, by its id: a message that is delivered again takes over the lease that it left behind.
The broker decides when that is; see the page on Dramatiq.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from leased.checks import Duration
from leased.contrib import _task_queues
from leased.contrib._opened import StoreGiven
from leased.errors import InvalidRequest, LeasedError

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
    """A decorator below `@dramatiq.actor`: the actor runs under a lease on `key`, in which `{names}` of its arguments
    are filled in, with the id of the message as the owner. Locks that it takes inside have that owner too, so that the
    message, delivered again or retried, takes over what it left behind. The broker needs the middleware
    `CurrentMessage`.

    While another message has the key, and while the store does not answer, this one is tried again in `retry_in`
    seconds, as often as the `max_retries` of the actor allow, after which it is dead. With `retry_in=None` it ends
    without a result instead where another one has the key, and a line in the log; a store that does not answer is an
    error like any other. `wait` keeps a thread of the worker busy with waiting: prefer retries. The lease is renewed
    while the actor runs. Called as a plain function, not by a worker, it has no owner and raises what a lock raises.
    Raises `InvalidRequest` for coroutine functions and generators, and in a worker whose broker lacks that middleware.
    """
    terms = _task_queues.Terms(key, store, ttl, wait, retry_in, name)
    return _task_queues.one_at_a_time(terms, running=_running)


def _running() -> _task_queues.Running | None:
    """The message that a worker handles in this thread; `None` outside of a worker."""
    from dramatiq.middleware import CurrentMessage

    message = CurrentMessage.get_current_message()
    if message is not None:
        return _task_queues.Running(f"dramatiq:{message.message_id}", _retry)
    if type(threading.current_thread()).__module__ == "dramatiq.worker":
        raise InvalidRequest(
            "a worker runs this actor, and does not tell for which message",
            hint="broker.add_middleware(dramatiq.middleware.CurrentMessage())",
        )
    return None


def _retry(error: LeasedError, delay: float) -> Exception:
    from dramatiq.errors import Retry

    return Retry(error.message, delay=round(delay * 1000))
