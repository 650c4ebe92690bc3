"""Where a check runs: a store, whoever drives it, and how time passes there. No check and no verdict is in here."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from leased.clocks import step
from leased.policy import MAX_KEY_LENGTH
from leased.store import Store
from leased.stores.memory import MemoryStore
from leased.testing.clocks import MovableClock

_T = TypeVar("_T")
_POLL = 0.002
_QUICK = "/dev/shm"  # noqa: S108 - a directory in memory, where there is one: nothing here has to survive


class NotRunHere(Exception):
    """This place cannot show the property; the text says why."""


class Driver(Protocol):
    """One caller of blocking code or one event loop, until it is closed."""

    def run(self, work: Coroutine[Any, Any, _T], /) -> _T:
        """Run work to its end and give its result."""
        ...

    def close(self) -> None:
        """Free what it needed."""
        ...


class Face(Protocol):
    """Who drives a store: blocking callers or an event loop."""

    name: Literal["blocking", "async"]

    def driver(self) -> Driver:
        """A new driver."""
        ...

    async def together(self, calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
        """Run calls at the same time, each as a caller of its own, and give their results in order."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let real time pass."""
        ...


class Stepping:
    """The driver of blocking code: this thread, with nothing to free."""

    def run(self, work: Coroutine[Any, Any, _T], /) -> _T:
        """Run work in this thread."""
        return step(work)

    def close(self) -> None:
        """Nothing to free."""


class Blocking:
    """Blocking callers: threads that step."""

    name: Literal["blocking", "async"] = "blocking"

    def driver(self) -> Driver:
        """A new driver."""
        return Stepping()

    async def together(self, calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
        """One thread for each call."""
        with ThreadPoolExecutor(max_workers=max(1, len(calls))) as threads:
            running = [threads.submit(step, call) for call in calls]
            return [call.result() for call in running]

    async def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)


class Async:
    """An event loop, and tasks in it."""

    name: Literal["blocking", "async"] = "async"

    def driver(self) -> Driver:
        """A new event loop."""
        import asyncio

        return asyncio.Runner()

    async def together(self, calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
        """One task for each call."""
        import asyncio

        return await asyncio.gather(*calls)

    async def sleep(self, seconds: float) -> None:
        """Suspend this task."""
        import asyncio

        await asyncio.sleep(seconds)


@dataclass(slots=True)
class World:
    """What one check runs in, used once.

    `connect(namespace)` opens a client of the data in that namespace ("" is the one that checks use); every client
    it opened is closed with the world. `clock` is given where the store reads no other clock, and then answers can be
    foretold exactly; else `move` lets seconds pass for all clients, and is `None` where time cannot be moved. `now`
    tells their time, differences of it only. `unit` is a time that calls never take here.

    `numbers` says what a fencing token is above: the key's last one or that of the whole store. `marks` says where an
    ended token is remembered: with its key, as that is the only one it is ever for, or by itself. `size` counts the
    records and marks that the store keeps. `lasting` says that data outlives the clients, `closable` that a client
    refuses calls once closed. `longest_key` is how many characters a key may have here. `before_end` runs when the
    check is over, `end` when all clients are closed.
    """

    face: Face
    connect: Callable[[str], Store]
    clock: MovableClock | None = None
    move: Callable[[float], None] | None = None
    now: Callable[[], float] = time.monotonic
    unit: float = 20.0
    prefix: str = ""
    numbers: Literal["key", "store"] = "store"
    marks: Literal["key", "store"] = "store"
    size: Callable[[], int] | None = None
    lasting: bool = True
    closable: bool = True
    longest_key: int = MAX_KEY_LENGTH
    before_end: Callable[[], Coroutine[Any, Any, None]] | None = None
    end: Callable[[], None] | None = None
    store: Store = field(init=False)
    _clients: list[Store] = field(default_factory=list)
    _keys: int = 0

    def __post_init__(self) -> None:
        if self.clock:
            self.move, self.now = self.clock.move, self.clock.now
        self.store = self.another()

    def another(self, namespace: str = "") -> Store:
        """A further client of the same data, or of that in another namespace."""
        client = self.connect(namespace)
        self._clients.append(client)
        return client

    def fresh_key(self, ending: str = "") -> str:
        """A key that nobody else uses; it ends as told."""
        self._keys += 1
        return f"{self.prefix}{self._keys:04}{ending}"

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass for the store: at once where its time can be moved, else by waiting."""
        if self.move:
            self.move(seconds)
        else:
            await self.face.sleep(seconds)

    async def until(self, condition: Callable[[], bool], *, seconds: float = 5.0) -> bool:
        """Whether the condition came true within so many real seconds; it is asked again and again."""
        give_up_at = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= give_up_at:
                return False
            await self.face.sleep(_POLL)
        return True

    async def close(self) -> None:
        """Close all clients, then whatever lies beneath them."""
        try:
            if self.before_end:
                await self.before_end()
            for client in self._clients:
                await client.close()
        finally:
            if self.end:
                self.end()


@dataclass(frozen=True, slots=True)
class Place:
    """A store and a face, by name, and how to open a new world there (inside what drives it)."""

    store: str
    face: Face
    open: Callable[[], World]

    def __str__(self) -> str:
        """Short, for test ids."""
        return f"{self.store}-{self.face.name}"


def memory(face: Face) -> Place:
    """The in-memory store. All its clients are one object, for its data is nowhere else."""

    def open_world() -> World:
        clock = MovableClock(flowing=False)
        stores: dict[str, MemoryStore] = {}
        return World(
            face=face,
            connect=lambda namespace: stores.setdefault(namespace, MemoryStore(clock)),
            clock=clock,
            size=lambda: sum(len(store._records) + len(store._marks) for store in stores.values()),
            lasting=False,
        )

    return Place("memory", face, open_world)


def sqlite(face: Face) -> Place:
    """The SQLite store, each world with a file of its own and a host clock that stands still until it is moved."""

    def open_world() -> World:
        from leased.stores._sqlite_clock import HostClock
        from leased.stores.sqlite import SqliteStore

        directory = tempfile.TemporaryDirectory(prefix="leased-", dir=_QUICK if os.path.isdir(_QUICK) else None)
        path = os.path.join(directory.name, "locks.db")
        clock = MovableClock(flowing=False)
        host = HostClock(
            boot=lambda: round(clock.now() * 1e6), wall=lambda: round(clock.wall() * 1e6), boot_id=lambda: "boot"
        )

        def connect(namespace: str) -> Store:
            store = SqliteStore(path, namespace=namespace, clock=host)
            if face.name == "blocking":
                return store
            from leased.stores._threaded import ThreadedStore

            return ThreadedStore(store)

        return World(
            face=face, connect=connect, clock=clock, size=lambda: _rows(path, "record", "mark"), end=directory.cleanup
        )

    return Place("sqlite", face, open_world)


def _rows(path: str, *tables: str) -> int:
    """How many rows there are, read by the library that the store uses: two in one process undo each other's locks."""
    from leased.stores._sqlite_driver import driver

    if not os.path.exists(path):
        return 0
    with closing(driver().connect(path)) as connection:
        counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables]  # noqa: S608
    return sum(int(count[0]) for count in counts)


def joined(place: Place) -> Place:
    """The same place behind what joins concurrent calls into batches, as `connect` opens it for users."""

    def open_world() -> World:
        from leased.join import Joined

        world = place.open()
        clock = world.clock or MovableClock()
        connect = world.connect
        callers = clock if place.face.name == "blocking" else clock.for_loop()
        world.connect = lambda namespace: Joined(connect(namespace), callers)
        world.store = world.another()
        return world

    return Place(f"{place.store}-joined", place.face, open_world)
