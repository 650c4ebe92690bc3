"""Hearing of releases by LISTEN and NOTIFY, on one connection of this process. A hint only: without it waiters poll."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leased.clocks import step
from leased.errors import StoreUnavailable
from leased.store import Bell, Clock, unwatched
from leased.stores._postgres_failures import broken, from_result
from leased.stores._postgres_waiting import BlockingWaiting
from leased.stores._postgres_wire import Address, Wire, connect
from leased.stores._push import Feed, Listener, listener

_CONNECT_TIME = 5.0


class PostgresFeed:
    """The listening connection: what is asked for leaves one text at a time, and is in force once that is answered."""

    def __init__(self, wire: Wire, *, name: str) -> None:
        self._wire = wire
        self._connection = wire.connection
        self._name = name
        self._wanted: list[tuple[str, str]] = []
        self._asked: list[tuple[str, str]] = []

    def fileno(self) -> int:
        """See `Feed`."""
        descriptor: int = self._connection.socket
        return descriptor

    def listen(self, channels: list[str]) -> None:
        """See `Feed`."""
        self._wanted += [("LISTEN", channel) for channel in channels]
        self._ask()

    def unlisten(self, channels: list[str]) -> None:
        """See `Feed`."""
        self._wanted += [("UNLISTEN", channel) for channel in channels]
        self._ask()

    def read(self) -> tuple[list[str], list[str]]:
        """See `Feed`."""
        confirmed: list[str] = []
        rung: list[str] = []
        with self._wire.errors_as(self._broken):
            self._connection.consume_input()
            while self._asked and not self._connection.is_busy():
                result = self._connection.get_result()
                if result is None:
                    confirmed += [channel for word, channel in self._asked if word == "LISTEN"]
                    self._asked = []
                    self._ask()
                elif self._wire.is_failure(result):
                    raise from_result(result, name=self._name, writes=False)
            while (told := self._connection.notifies()) is not None:
                rung.append(told.relname.decode())
        return confirmed, rung

    def close(self) -> None:
        """See `Feed`."""
        self._wire.close()

    def _ask(self) -> None:
        if self._asked or not self._wanted:
            return
        self._asked, self._wanted = self._wanted, []
        text = "; ".join(f'{word} "{channel}"' for word, channel in self._asked)
        with self._wire.errors_as(self._broken):
            self._connection.send_query(text.encode())
            self._connection.flush()

    def _broken(self, error: Exception) -> StoreUnavailable:
        return broken(error, name=self._name, writes=False)


class PostgresPush:
    """The watches of one store. `possible` is set by who knows whether the connections lead straight to the server."""

    def __init__(self, address: Address, *, name: str, clock: Clock, channel: Callable[[str], str]) -> None:
        self.possible = True
        self._address = address
        self._name = name
        self._clock = clock
        self._channel = channel
        self._listener: Listener | None = None
        self._ends: set[Callable[[], None]] = set()

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """Ring `bell` for releases of the key; behind a pooler, where nothing can be heard, it is not watched."""
        if not self.possible:
            return unwatched
        if self._listener is None:
            self._listener = listener(("postgres", self._address), _opener(self._address, self._name), name=self._name)
        end = await self._listener.watch(self._channel(key), bell, clock=self._clock)
        self._ends.add(end)

        def unwatch() -> None:
            self._ends.discard(end)
            end()

        return unwatch

    def close(self) -> None:
        """End all watches."""
        while self._ends:
            self._ends.pop()()


def _opener(address: Address, name: str) -> Callable[[], Feed]:
    def open_feed() -> Feed:
        connecting: Any = connect(address, BlockingWaiting(), name=name, seconds=_CONNECT_TIME)
        return PostgresFeed(step(connecting), name=name)

    return open_feed
