"""Events for whoever watches: plain data, given to an observer that is never awaited and cannot harm locking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

EventName: TypeAlias = Literal[
    "acquired",
    "contended",
    "rejected",
    "acquire_failed",
    "renewed",
    "renewal_failed",
    "at_risk",
    "lost",
    "released",
    "release_failed",
    "retaken",
    "handed_over",
    "restored",
    "force_released",
    "denied",
    "clock_warning",
    "assurance_changed",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a lock. `lock` is its declared name (for labels), `key` the raw key (for logs).

    `data` holds plain values such as `reason`, `waited` or `fencing_token`; never a token. What happened to a store
    (`clock_warning`, `assurance_changed`) has an empty key and names the store in `data`.

    An acquire ends with one of `acquired`, `contended`, `rejected` and `acquire_failed`, all with the seconds that it
    `waited`; one whose caller went away, cancelled or interrupted, with none.

    A hold begins with `acquired`, or with `restored` where another process had got it, and ends with the first of
    `released`, `lost`, `handed_over` and `release_failed`, all with its `fencing_token`. A bare handle that was
    forgotten ends as its lease does: `lost`, as `expired`. `retaken` comes just before the `lost` of a lease
    that the same owner took over, in the process that had it, once that learns of it.
    """

    name: EventName
    key: str
    lock: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


Observer: TypeAlias = Callable[[Event], object]
"""Gets every event, in the thread or task where it happened; its errors are logged, its answer is ignored. While it
blocks in one that renews, nothing is renewed there: what takes time belongs behind a queue."""

BEGINS: frozenset[EventName] = frozenset({"acquired", "restored"})
"""The events that begin a hold in this process."""

ENDS: frozenset[EventName] = frozenset({"released", "lost", "handed_over", "release_failed"})
"""The events that end a hold in this process."""

log = logging.getLogger("leased")

_passing: ContextVar[tuple[type[BaseException], ...]] = ContextVar("leased_passing", default=(BaseException,))

LOGGED: dict[EventName, int] = {
    "lost": logging.WARNING,
    "at_risk": logging.WARNING,
    "release_failed": logging.WARNING,
    "force_released": logging.INFO,
    "denied": logging.WARNING,
    "clock_warning": logging.WARNING,
    "assurance_changed": logging.WARNING,
}
"""The events that an operator should know of, and the level at which they are logged."""


def report(
    observer: Observer | None,
    name: EventName,
    key: str,
    *,
    lock: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Log what an operator should know of, and tell the observer; whatever the observer does, this returns quietly."""
    level = LOGGED.get(name)
    if level is not None and log.isEnabledFor(level):
        log.log(level, "lease on %r: %s%s", key, name.replace("_", " "), _details(data))
    if observer is not None:
        tell(observer, Event(name, key, lock, data or {}))


def report_store(observer: Observer | None, name: EventName, *, store: str, data: Mapping[str, Any]) -> None:
    """As `report`, for what happened to a whole store. `store` is its URL as it may be shown."""
    level = LOGGED.get(name, logging.INFO)
    log.log(level, "%s: %s%s", store, name.replace("_", " "), _details(data))
    if observer is not None:
        tell(observer, Event(name, "", None, {"store": store, **data}))


def tell(observer: Observer, event: Event) -> None:
    """Tell one observer; what it raises is logged. What is no `Exception`, such as Ctrl-C, passes: not where leases of
    others are kept, which would end with it."""
    try:
        observer(event)
    except BaseException as error:  # an observer is somebody else's code: it must not be able to harm locking
        if not isinstance(error, Exception) and isinstance(error, _passing.get()):
            raise
        log.exception("the observer failed on %s of key %r", event.name, event.key)


def keeping(*passing: type[BaseException]) -> None:
    """From now on this thread, or this task and those that it starts, keeps the leases of others: of what an observer
    raises there only this passes."""
    _passing.set(passing)


def _details(data: Mapping[str, Any] | None) -> str:
    return "".join(f", {name} {value!r}" for name, value in (data or {}).items())
