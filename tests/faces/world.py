"""One set of tests for both faces: a world has a store with faults, a clock to move, and callers of one face."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType, TracebackType
from typing import Any, Protocol

import leased
import leased.aio
from leased import Event
from leased.clocks import step
from leased.store import Store
from leased.stores.memory import MemoryStore
from tests.faces.clocks import Hands, LoopClock, ThreadClock
from tests.faces.faults import FaultyStore

PATIENCE = 8.0
"""Real seconds after which something that should happen at once counts as never happening."""


async def done(value: Any) -> Any:
    """The result of a call to either face."""
    return await value if inspect.isawaitable(value) else value


class Block:
    """`with manager` or `async with manager`, whichever it is."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._is_async = hasattr(manager, "__aenter__")

    async def __aenter__(self) -> Any:
        """Enter it."""
        return await self._manager.__aenter__() if self._is_async else self._manager.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:
        """Leave it."""
        leave = self._manager.__aexit__ if self._is_async else self._manager.__exit__
        return await done(leave(kind, error, traceback))


block = Block
"""Spelled as it is used: `async with block(lock) as held`."""


class Worker(Protocol):
    """A thread or a task with its result."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        ...

    async def result(self) -> Any:
        """What it returned, or what it raised, raised again."""
        ...


class ThreadWorker:
    """A thread that steps one coroutine."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            self._value = step(work())
        except BaseException as error:  # noqa: BLE001 (raised by `result`)
            self._error = error

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    async def result(self) -> Any:
        """What it returned or raised."""
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise AssertionError("a thread did not end")
        if self._error is not None:
            raise self._error
        return self._value


class TaskWorker:
    """A task."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.task = asyncio.get_running_loop().create_task(work())

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.task.done()

    async def result(self) -> Any:
        """What it returned or raised."""
        finished, _ = await asyncio.wait([self.task], timeout=PATIENCE)
        if not finished:
            raise AssertionError("a task did not end")
        return self.task.result()


class Face(Protocol):
    """One of the two faces, and how callers of it run."""

    name: str
    module: ModuleType

    def clock(self, hands: Hands) -> Any:
        """A clock for its callers."""
        ...

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a test."""
        ...

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Worker:
        """Another caller, beside this one."""
        ...

    async def breathe(self) -> None:
        """Let others go on for a moment."""
        ...

    def settled(self, locks: Any) -> bool:
        """Whether all that is due now in the background of these locks has been done."""
        ...


class Blocking:
    """Threads."""

    name = "blocking"
    module: ModuleType = leased

    def clock(self, hands: Hands) -> ThreadClock:
        """A clock for threads."""
        return ThreadClock(hands)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Step it in this thread."""
        step(work)

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Worker:
        """A thread."""
        return ThreadWorker(work)

    async def breathe(self) -> None:
        """Give the processor away."""
        time.sleep(0.0005)

    def settled(self, locks: Any) -> bool:
        """The renewal thread waits for a later time, and its workers have nothing to do, or hang."""
        client = locks._opening._client
        if client is None:
            return True
        keeper = client.closers[0].__self__
        resting = not keeper._running or keeper._signal.rests
        hanging = sum(signal.rests for signal in getattr(client.store, "hanging", ()))
        return bool(resting and keeper._env.clock._workers._pending <= hanging)


class Async:
    """Tasks of one loop."""

    name = "async"
    module: ModuleType = leased.aio

    def clock(self, hands: Hands) -> LoopClock:
        """A clock for tasks."""
        return LoopClock(hands)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it in a loop of its own."""
        asyncio.run(work)

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Worker:
        """A task."""
        return TaskWorker(work)

    async def breathe(self) -> None:
        """Let the loop turn."""
        await asyncio.sleep(0.0005)

    def settled(self, locks: Any) -> bool:
        """No callback of the loop is ready."""
        return not asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # there is no public way to ask


class Sitter:
    """Somebody inside a block, who does not leave it before `leave`."""

    def __init__(self, world: World, lock: Any) -> None:
        self.held: Any = None
        self._world = world
        self._lock = lock
        self._may_leave = threading.Event()
        self.worker = world.start(self._sit)

    async def leave(self) -> Any:
        """Leave the block; what the block raised is raised."""
        self._may_leave.set()
        return await self.worker.result()

    async def _sit(self) -> None:
        async with block(self._lock) as self.held:
            while not self._may_leave.is_set():
                with suppress(asyncio.CancelledError):
                    await self._world.face.breathe()


class World:
    """A store, a clock and the locks of one face on them. `elsewhere` gives the locks of another process."""

    def __init__(self, face: Face, *, flowing: bool = True) -> None:
        self.face = face
        self.hands = Hands(flowing=flowing)
        self.clock = face.clock(self.hands)
        self.memory = MemoryStore(self.clock)
        self.store = FaultyStore(self.memory, self.clock)
        self.events: list[Event] = []
        self.opened: list[Any] = []
        self.kept: list[Any] = []
        self.sitters: list[Sitter] = []
        self.locks = self.connect(self.store)

    def connect(self, store: Store, **options: Any) -> Any:
        """The locks of this face on a store."""
        observer = options.pop("observer", self.events.append)
        locks = self.face.module.connect(store, clock=self.clock, observer=observer, **options)
        self.opened.append(locks)
        return locks

    def elsewhere(self) -> Any:
        """The locks of somebody who shares the store and nothing else, as another process does."""
        return self.connect(FaultyStore(self.memory, self.clock), observer=None)

    def keep(self, handle: Any) -> Any:
        """Release this handle with the world, if the test has not."""
        self.kept.append(handle)
        return handle

    async def take(self, lock: Any, wait: Any = None, *, token: str | None = None) -> Any:
        """Acquire; the handle lives as long as the world."""
        return self.keep(await done(lock.acquire(wait, token=token)))

    async def occupy(self, key: str, **terms: Any) -> Any:
        """Have another process hold the key."""
        return await self.take(self.elsewhere().lock(key, **terms))

    def move(self, seconds: float) -> None:
        """Let so many seconds pass at once, for everybody."""
        self.hands.move(seconds)

    def start(self, work: Callable[[], Any]) -> Worker:
        """Run a call, or a coroutine function, beside this one: in a thread or a task of its own."""

        async def run() -> Any:
            return await done(work())

        return self.face.start(run)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that others will make true."""
        give_up_at = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > give_up_at:
                raise AssertionError("what was waited for did not happen")
            await self.face.breathe()

    async def until_more(self, operation: str, before: int, *, key: str | None = None) -> None:
        """Wait until the store was asked for an operation once more than before."""
        await self.until(lambda: self.store.asked(operation, key=key) > before)

    async def pass_time(self, seconds: float, *, step: float = 0.25) -> None:
        """Let time pass in small steps; before each of them everybody has done what was due."""
        for _ in range(round(seconds / step)):
            await self.until(lambda: all(self.face.settled(locks) for locks in self.opened))
            self.move(step)
        await self.until(lambda: all(self.face.settled(locks) for locks in self.opened))

    async def sit(self, lock: Any) -> Sitter:
        """Have somebody else enter a block of this lock, and stay inside until told, whatever becomes of the lease."""
        sitter = Sitter(self, lock)
        self.sitters.append(sitter)
        await self.until(lambda: sitter.held or sitter.worker.over)
        return sitter

    async def waiting(self, key: str, number: int = 1) -> None:
        """Wait until so many callers stand in line for a key here."""
        lines = self.locks._client().env.lines
        await self.until(lambda: lines.waiting(key) == number)

    async def held(self, key: str) -> bool:
        """Whether the store says that the key is taken."""
        return (await self.memory.status(key, timeout=1.0)).held

    def named(self, name: str) -> list[Event]:
        """The events of one kind, in order."""
        return [event for event in tuple(self.events) if event.name == name]

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a test of this face, and close the world behind it."""

        async def whole() -> None:
            try:
                await main()
            finally:
                await self.close()

        self.face.run(whole())

    async def close(self) -> None:
        """Close everything."""
        self.store.down = False
        self.store.let_go()
        for sitter in self.sitters:
            with suppress(leased.LeasedError):
                await sitter.leave()
        for handle in self.kept:
            with suppress(leased.LeasedError):
                await done(handle.release())
        for locks in self.opened:
            await done(locks.close())


@contextmanager
def recorded(logger: Any, level: int) -> Iterator[list[str]]:
    """Everything that a logger says inside the block."""
    import logging

    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Keep()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
