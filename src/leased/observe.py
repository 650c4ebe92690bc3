"""Events for whoever watches: plain data, given to an observer that is never awaited and cannot harm locking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

EventName: TypeAlias = Literal[
    "acquired",
    "contended",
    "rejected",
    "renewed",
    "renewal_failed",
    "at_risk",
    "lost",
    "released",
    "release_failed",
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
    """

    name: EventName
    key: str
    lock: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


Observer: TypeAlias = Callable[[Event], object]
"""Gets every event, in the thread or task where it happened; its errors are logged, its answer is ignored."""

log = logging.getLogger("leased")

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
    """Tell one observer; what it raises is logged."""
    try:
        observer(event)
    except Exception:  # an observer is somebody else's code: it must not be able to harm locking
        log.exception("the observer failed on %s of key %r", event.name, event.key)


def _details(data: Mapping[str, Any] | None) -> str:
    return "".join(f", {name} {value!r}" for name, value in (data or {}).items())
