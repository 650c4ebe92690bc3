"""A shelf in a dictionary, and stores over it with clocks of their own: to play what no server can be made to do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Assurance
from leased.store import Clock
from leased.stores._cas_clock import ClientClock
from leased.stores._cas_record import read
from leased.stores._cas_shelf import NOTHING, Beaten, Changed, Found, Put, Version, Written
from leased.stores._cas_store import CasStore
from leased.stores._standing import Standing
from leased.targets import Options
from leased.testing import Face, MovableClock, Place, World
from tests.contract.real_time import clock_of, moved_world

GIVEN = Assurance("consensus", early_loss=False, durable="nothing", takeover="margin", fence="clocks")


class DictShelf:
    """What one client sees of keys that several share. `before_put` is called before each batch of writes is applied.

    `tells` says whether a refused write shows what stands there. `lost` answers are those of writes that were made.
    """

    def __init__(self, data: dict[str, Found], *, tells: bool = True) -> None:
        self.data = data
        self.tells = tells
        self.before_put: Callable[[], None] = lambda: None
        self.after_put: Callable[[], None] = lambda: None
        self.lost = 0
        self.calls: list[str] = []
        self._closed = False

    async def get(self, keys: Sequence[str], *, timeout: float) -> Sequence[Found]:
        self._check_open()
        self.calls.append("get")
        return [self.data.get(key, NOTHING) for key in keys]

    async def put(self, puts: Sequence[Put], *, timeout: float) -> Sequence[Written | Beaten | StoreUnavailable]:
        self._check_open()
        self.calls.append("put")
        self.before_put()
        outcomes = [self._put(put) for put in puts]
        self.after_put()
        return outcomes

    def _put(self, put: Put) -> Written | Beaten | StoreUnavailable:
        there = self.data.get(put.key, NOTHING)
        if there.version != put.version:
            return Beaten(there if self.tells else None)
        version = next(_VERSIONS)
        self.data[put.key] = Found(version, put.value)
        self._tell(put.key)
        if self.lost:
            self.lost -= 1
            return StoreUnavailable("the answer was lost", applied=None)
        return Written(version)

    async def page(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[tuple[str, Found]]:
        self._check_open()
        keys = sorted(self.data, key=str.encode)
        return [(key, self.data[key]) for key in keys if key.startswith(prefix) and key.encode() > after.encode()][
            :limit
        ]

    async def old(
        self, before: float, *, begin: str, limit: int, timeout: float
    ) -> tuple[list[tuple[str, Found]], str]:
        return await self.page("", after=begin, limit=limit, timeout=timeout), ""

    async def remove(self, keys: Sequence[tuple[str, Version]], *, timeout: float) -> None:
        for key, version in keys:
            if self.data.get(key, NOTHING).version == version:
                del self.data[key]
                self._tell(key)

    async def watch(self, key: str, changed: Changed) -> Callable[[], None]:
        self._check_open()
        number = next(_VERSIONS)
        _WATCHES[number] = (self.data, key, changed)
        return lambda: _WATCHES.pop(number, None) and None

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreNotUsable("these locks were closed", hint="connect again")

    def _tell(self, key: str) -> None:
        value = self.data[key].value if key in self.data else None
        for data, watched, changed in list(_WATCHES.values()):
            if data is self.data and watched == key:
                changed(value)


_VERSIONS = itertools.count(1)
_WATCHES: dict[int, tuple[dict[str, Found], str, Changed]] = {}


class Client:
    """One process: a store with a wall clock and a local clock of its own over shared keys."""

    def __init__(
        self,
        data: dict[str, Found],
        *,
        clock: Clock | None = None,
        mode: Literal["blocking", "async"] = "blocking",
        takeover: Literal["margin", "observe"] = "margin",
        skew_margin: float = 1.0,
        tells: bool = True,
    ) -> None:
        self.events: list[dict[str, object]] = []
        self.clock = MovableClock(flowing=False)
        callers: Clock = clock or self.clock
        options = Options(
            clock=callers,
            takeover=takeover,
            skew_margin=skew_margin,
            observer=lambda event: self.events.append({"event": event.name, **event.data}),
        )
        self.shelf = DictShelf(data, tells=tells)
        self.wall = ClientClock(callers, options, shown="dict:")
        standing = Standing(options, shown="dict:")
        standing.read(GIVEN)
        self.store = CasStore(
            self.shelf, mode=mode, wall=self.wall, options=options, standing=standing, old=self.shelf.old
        )


def _size(key: str, found: Found) -> int:
    return 1 + len(read(key, found.value).marks)


def place(face: Face, *, tells: bool) -> Place:
    """The contract's place for it: one clock for all clients, which trust it whole."""

    def open_world() -> World:
        keys: dict[str, dict[str, Found]] = {}

        def connect(namespace: str) -> CasStore:
            data = keys.setdefault(namespace, {})
            return Client(data, clock=clock_of(face), mode=face.name, skew_margin=0.0, tells=tells).store

        def size() -> int:
            return sum(_size(key, found) for data in keys.values() for key, found in data.items())

        return moved_world(face, connect, numbers="key", marks="key", size=size)

    return Place("dict-telling" if tells else "dict", face, open_world)
