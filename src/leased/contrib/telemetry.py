"""What sinks for events share: several observers as one, labels that stay few, and holds that are still open.

Observers get every event in the thread or task where it happened; what they raise is logged and harms no lock.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from leased.observe import LOGGED, Event, Observer, keeping, tell

T = TypeVar("T")

MAX_LABELS = 200
"""Different lock names that become labels; further ones are counted together as `other`."""

MAX_OPEN = 10_000
"""Holds of which a sink remembers when they began; of more, those that began first are forgotten."""

MAX_WAITING = 10_000
"""Events that wait for a slow observer; of more, the newest are dropped."""

UNNAMED = "unnamed"
OTHER = "other"


class Forks(Protocol):
    """What has to begin anew in a forked child."""

    def begin_anew(self) -> None:
        """This is a child now: wait for no thread of the parent's, and keep nothing that is the parent's."""
        ...


_forks: weakref.WeakSet[Forks] = weakref.WeakSet()


def forget_parents(one: Forks) -> None:
    """See that this begins anew in every child that is forked while it lives."""
    _forks.add(one)


def _forget_parents() -> None:
    for one in tuple(_forks):
        one.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)


def together(*observers: Observer) -> Observer:
    """One observer that tells all of these, each whatever becomes of the others."""

    def tell_all(event: Event) -> None:
        for observer in observers:
            tell(observer, event)

    return tell_all


class Aside:
    """Tells another observer in a thread of its own, one event after the other: what that one waits for keeps no lease
    from being renewed, and what it raises is logged.

    Each event is told in the context in which it happened, such as its current span, though later. Of more than `most`
    that wait the newest are dropped, as `dropped` counts. The thread keeps no program running: `close` before its end
    what has to be told. A forked child begins with nothing that waits.
    """

    def __init__(self, observer: Observer, *, most: int = MAX_WAITING) -> None:
        self._observer = observer
        self._most = most
        self.begin_anew()
        forget_parents(self)

    def begin_anew(self) -> None:
        """In a forked child, by itself: what waits is the parent's, and so is the thread."""
        self.dropped = 0
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._mutex = threading.RLock()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """See `leased.Observer`."""
        if self._waiting.qsize() < self._most and self._runs():
            context = copy_context()
            self._waiting.put(lambda: context.run(self._tell, event))
        else:
            with self._mutex:
                self.dropped += 1

    def close(self, within: float = 5.0) -> bool:
        """Wait until all that was given before is told, for so many seconds at the most; whether it is."""
        if self._thread is None:
            return True
        over = threading.Event()
        self._waiting.put(over.set)
        return over.wait(within)

    def _runs(self) -> bool:
        if self._thread is None:
            with self._mutex:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._tell_all, name="leased-aside", daemon=True)
                    try:
                        self._thread.start()
                    except RuntimeError:  # the interpreter is ending
                        self._thread = None
                        return False
        return True

    def _tell_all(self) -> None:
        waiting = self._waiting
        while True:
            waiting.get()()

    def _tell(self, event: Event) -> None:
        keeping()
        tell(self._observer, event)


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
        forget_parents(self)

    def begin_anew(self) -> None:
        """In a forked child: another thread of the parent may have had the mutex. The labels are series still."""
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
        self.begin_anew()
        forget_parents(self)

    def begin_anew(self) -> None:
        """In a forked child: the holds are the parent's, which tells of their end."""
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

    def kept(self, key: str, fencing_token: int) -> T | None:
        """What is kept of this hold, if it is open and known."""
        with self._mutex:
            begun = self._begun.get((key, fencing_token))
        return None if begun is None else begun.kept

    def end(self, event: Event) -> Begun[T] | None:
        """What was begun, the first time that its end is told; `None` for one that is not known."""
        with self._mutex:
            return self._begun.pop((event.key, event.data.get("fencing_token")), None)


class Held:
    """How many holds this process has now, by label. In a forked child there are none."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._inherited: dict[str, int] = {}
        self.begin_anew()
        forget_parents(self)

    def begin_anew(self) -> None:
        """In a forked child: the holds are the parent's. The labels are series still."""
        self._inherited = {label: self._inherited.get(label, 0) + count for label, count in self._counts.items()}
        self._counts = dict.fromkeys(self._counts, 0)
        self._mutex = threading.Lock()

    def change(self, label: str, by: int) -> None:
        """One more, or one less."""
        with self._mutex:
            self._counts[label] = self._counts.get(label, 0) + by

    def now(self) -> dict[str, int]:
        """Each label that ever was, with its holds."""
        with self._mutex:
            return dict(self._counts)

    def take_inherited(self) -> dict[str, int]:
        """Once in a forked child: what the parent had, and what counts of its own may still say."""
        if not self._inherited:
            return {}
        with self._mutex:
            found, self._inherited = self._inherited, {}
        return found
