"""Where a check runs: a store, whoever drives it, and how time passes there. No check and no verdict is in here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from leased.clocks import ThreadSignal, step
from leased.store import Store
from leased.stores.memory import MemoryStore

_T = TypeVar("_T")
_POLL = 0.002


class NotRunHere(Exception):
    """This place cannot show the property; the text says why."""


class Face(Protocol):
    """Who drives a store: blocking callers or an event loop."""

    name: Literal["blocking", "async"]

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run work to its end and give its result."""
        ...

    async def together(self, calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
        """Run calls at the same time, each as a caller of its own, and give their results in order."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let real time pass."""
        ...


class Blocking:
    """Blocking callers: threads that step."""

    name: Literal["blocking", "async"] = "blocking"

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run work in this thread."""
        return step(work)

    async def together(self, calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
        """One thread for each call."""
        with ThreadPoolExecutor(max_workers=max(1, len(calls))) as threads:
            return list(threads.map(step, calls))

    async def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)


class Async:
    """An event loop, and tasks in it."""

    name: Literal["blocking", "async"] = "async"

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run work in a loop of its own."""
        import asyncio

        return asyncio.run(work)

    async def together(self, calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
        """One task for each call."""
        import asyncio

        return await asyncio.gather(*calls)

    async def sleep(self, seconds: float) -> None:
        """Suspend this task."""
        import asyncio

        await asyncio.sleep(seconds)


class MovableClock:
    """A clock that stands still until it is moved, for stores and for blocking callers: `sleep` moves it.

    `move` moves both hands; `set_wall` only what people would read from a wall, as an operator or time server may.
    """

    def __init__(self, *, now: float = 1_000.0, wall: float = 1_750_000_000.0) -> None:
        self._now = now
        self._wall = wall
        self._mutex = threading.Lock()

    def now(self) -> float:
        """Monotonic seconds."""
        return self._now

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._wall

    def move(self, seconds: float) -> None:
        """Let so many seconds pass at once."""
        with self._mutex:
            self._now += seconds
            self._wall += seconds

    def set_wall(self, wall: float) -> None:
        """Set the wall clock, forward or back, while no time passes."""
        self._wall = wall

    async def sleep(self, seconds: float) -> None:
        """Let so many seconds pass at once."""
        self.move(max(seconds, 0.0))

    def signal(self) -> ThreadSignal:
        """A signal between threads, which waits in real time."""
        return ThreadSignal()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work here and now, to its end."""
        step(work)


@dataclass(slots=True)
class World:
    """What one check runs in, used once.

    `connect(namespace)` opens a client of the data in that namespace ("" is the one that checks use); every client
    it opened is closed with the world. `move` lets seconds pass for all those clients, `None` where time cannot be
    moved. `now` tells their time, differences of it only. `unit` is a time that calls never take here.
    """

    face: Face
    connect: Callable[[str], Store]
    move: Callable[[float], None] | None
    now: Callable[[], float] = time.monotonic
    unit: float = 20.0
    prefix: str = ""
    end: Callable[[], None] | None = None
    store: Store = field(init=False)
    _clients: list[Store] = field(default_factory=list)
    _keys: int = 0

    def __post_init__(self) -> None:
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
        for client in self._clients:
            await client.close()
        if self.end:
            self.end()


@dataclass(frozen=True, slots=True)
class Place:
    """A store and a face, by name, and how to open a new world there (inside the face's `run`)."""

    store: str
    face: Face
    open: Callable[[], World]

    def __str__(self) -> str:
        """Short, for test ids."""
        return f"{self.store}-{self.face.name}"


def memory(face: Face) -> Place:
    """The in-memory store. All its clients are one object, for its data is nowhere else."""

    def open_world() -> World:
        clock = MovableClock()
        stores: dict[str, MemoryStore] = {}
        return World(
            face=face,
            connect=lambda namespace: stores.setdefault(namespace, MemoryStore(clock)),
            move=clock.move,
            now=clock.now,
        )

    return Place("memory", face, open_world)
