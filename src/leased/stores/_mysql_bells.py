"""Bells for releases by this process: neither MySQL nor MariaDB can tell another one, so everybody else polls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from leased.store import Bell

_bells: dict[tuple[str, str], dict[object, Bell]] = {}
_mutex = threading.Lock()


def _forget_parents() -> None:
    global _mutex
    _mutex = threading.Lock()
    _bells.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)


class Bells:
    """The bells of one client; releases by any client of the same tables and namespace in this process ring them."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._ends: set[Callable[[], None]] = set()

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """Ring `bell` for this key until the returned function is called."""
        place, ticket = (self._place, key), object()  # the same bell may be given twice
        with _mutex:
            _bells.setdefault(place, {})[ticket] = bell

        def end() -> None:
            self._ends.discard(end)
            with _mutex:
                bells = _bells.get(place, {})
                bells.pop(ticket, None)
                if not bells:
                    _bells.pop(place, None)

        self._ends.add(end)
        return end

    def ring(self, key: str) -> None:
        """Tell those who watch that the key was freed."""
        if not _bells:
            return
        with _mutex:
            bells = tuple(_bells.get((self._place, key), {}).values())
        for bell in bells:
            bell()

    def close(self) -> None:
        """End all watches."""
        while self._ends:
            self._ends.pop()()
