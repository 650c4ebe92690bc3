"""What sinks for events share: several observers as one, labels that stay few, and holds that are still open.

Observers get every event in the thread or task where it happened; what they raise is logged and harms no lock.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from leased.observe import LOGGED, Event, Observer, tell

T = TypeVar("T")

MAX_LABELS = 200
"""Different lock names that become labels; further ones are counted together as `other`."""

MAX_OPEN = 10_000
"""Holds of which a sink remembers when they began; of more, those that began first are forgotten."""

UNNAMED = "unnamed"
OTHER = "other"


def together(*observers: Observer) -> Observer:
    """One observer that tells all of these, each whatever becomes of the others."""

    def tell_all(event: Event) -> None:
        for observer in observers:
            tell(observer, event)

    return tell_all


class LogObserver:
    """Writes every event to a logger, as `lease on KEY: what happened` with its data as `extra={"leased": …}`.

    Losses, warnings and failures are logged by leased itself anyway, at `WARNING`, to the logger `leased`; this is for
    the rest, at `level`. Tokens are in no event.
    """

    def __init__(self, logger: logging.Logger | None = None, *, level: int = logging.DEBUG) -> None:
        self._logger = logging.getLogger("leased.events") if logger is None else logger
        self._level = level

    def __call__(self, event: Event) -> None:
        """See `leased.Observer`."""
        level = max(LOGGED.get(event.name, self._level), self._level)
        if self._logger.isEnabledFor(level):
            data = {"event": event.name, "key": event.key, "lock": event.lock, **event.data}
            told = ", ".join(f"{name}={value}" for name, value in event.data.items())
            text = f"lease on {event.key!r}" if event.key else "store"
            self._logger.log(level, "%s: %s%s", text, event.name, f" ({told})" if told else "", extra={"leased": data})


class Labels:
    """The names of locks as labels: never the key, and never more of them than `MAX_LABELS`."""

    def __init__(self, most: int = MAX_LABELS) -> None:
        self._most = most
        self._known: set[str] = set()
        self._mutex = threading.Lock()

    def of(self, event: Event) -> str:
        """The label of this event's lock."""
        name = event.lock
        if name is None:
            return UNNAMED
        if name in self._known:
            return name
        with self._mutex:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name


@dataclass(slots=True)
class Begun(Generic[T]):
    """A hold that was granted and has not ended yet: since when, and what the sink keeps of it."""

    at: float
    kept: T


class OpenHolds(Generic[T]):
    """The holds that this process has, by key and fencing token. `on_forgotten` gets what had to make room."""

    def __init__(self, on_forgotten: Callable[[T], object], *, most: int = MAX_OPEN) -> None:
        self._on_forgotten = on_forgotten
        self._most = most
        self._begun: OrderedDict[tuple[str, Any], Begun[T]] = OrderedDict()
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._begun)

    def begin(self, event: Event, kept: T, *, at: float) -> None:
        """A hold was granted."""
        forgotten: list[Begun[T]] = []
        name = event.key, event.data.get("fencing_token")
        with self._mutex:
            if name in self._begun:  # the same grant, told again to who asked again
                forgotten.append(self._begun.pop(name))
            self._begun[name] = Begun(at, kept)
            while len(self._begun) > self._most:
                forgotten.append(self._begun.popitem(last=False)[1])
        for one in forgotten:
            self._on_forgotten(one.kept)

    def end(self, event: Event) -> Begun[T] | None:
        """What was begun, the first time that its end is told; `None` for one that is not known."""
        with self._mutex:
            return self._begun.pop((event.key, event.data.get("fencing_token")), None)
