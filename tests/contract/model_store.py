"""A store that is nothing but the pure model, in one process; to see what suite and machine make of a broken one."""

import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Literal

from leased.errors import StoreNotUsable
from leased.model import (
    Abandon,
    Acquire,
    Assurance,
    Claim,
    Contended,
    Held,
    Look,
    Lost,
    Operation,
    Release,
    Released,
    Renew,
    Status,
)
from leased.store import Bell, Outcome, each
from leased.testing import model
from leased.testing.clocks import MovableClock
from leased.testing.model import Answer, Command, ForceRelease, ShowList, ShowStatus, State
from leased.testing.worlds import Face, Place, World


class ModelStore:
    """The contract as a store: whatever it is told happens as the given model, or mutant of it, says."""

    mode: Literal["blocking", "async", "any"] = "any"

    def __init__(self, clock: MovableClock, rules: ModuleType = model) -> None:
        self._clock = clock
        self._rules = rules
        self._mutex = threading.Lock()
        self._state: State = rules.State()
        self._bells: list[tuple[str, Bell]] = []
        self._closed = False

    def _tell(self, command: Command) -> Answer:
        if self._closed:
            raise StoreNotUsable("this model was closed")
        with self._mutex:
            before = self._state
            now, wall = self._clock.now(), self._clock.wall()
            answer: Answer
            self._state, answer = self._rules.step(before, now, wall, command)
            key = command.key if isinstance(command, Release | Abandon | ForceRelease) else None
            freed = key and (before.records.get(key) != self._state.records.get(key))
            bells = [bell for watched, bell in self._bells if freed and watched == key]
        for bell in bells:
            bell()
        return answer

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        answer = self._tell(Acquire(claim))
        assert isinstance(answer, Held | Contended)
        return answer

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        answer = self._tell(Renew(key, token, ttl, number))
        assert isinstance(answer, Held | Lost)
        return answer

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        answer = self._tell(Look(key, token))
        assert isinstance(answer, Held | Lost)
        return answer

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        answer = self._tell(Release(key, token, late))
        assert isinstance(answer, Released)
        return answer

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        self._tell(Abandon(key, token, heard))

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        return self._tell(ForceRelease(key, fencing_token)) is True

    async def status(self, key: str, *, timeout: float) -> Status:
        answer = self._tell(ShowStatus(key))
        assert isinstance(answer, Status)
        return answer

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        answer = self._tell(ShowList(prefix, after, limit))
        assert isinstance(answer, list)
        return answer

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        return await each(self, operations, timeout=timeout)

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        if self._closed:
            raise StoreNotUsable("this model was closed")
        watch = (key, bell)
        self._bells.append(watch)

        def end() -> None:
            if watch in self._bells:
                self._bells.remove(watch)

        return end

    def assurance(self) -> Assurance:
        return Assurance("process", early_loss=False, durable="nothing", takeover="the clock", fence="always")

    async def close(self) -> None:
        self._closed = True


def place(face: Face, rules: ModuleType = model) -> Place:
    """A world with a model for a store."""

    def open_world() -> World:
        clock = MovableClock(flowing=False)
        stores: dict[str, ModelStore] = {}
        return World(
            face=face,
            connect=lambda namespace: stores.setdefault(namespace, ModelStore(clock, rules)),
            clock=clock,
            lasting=False,
        )

    return Place(rules.__name__.rpartition(".")[2], face, open_world)
