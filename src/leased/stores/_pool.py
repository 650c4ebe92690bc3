"""Connections for calls, one for each that is under way; holding a lease or waiting for one occupies none."""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.store import Clock, Signal
from leased.stores._forks import ForkMutex, follow_forks, keep_forever
from leased.targets import Options

_LOOK_AGAIN = 0.25

CONNECTIONS, MOST_CONNECTIONS = 4, 1000
"""How many a pool has at the most, unless `leased_pool` says otherwise, and how many that may say."""


def pool_size(options: Options) -> int:
    """How many connections there may be at the same time; `InvalidRequest` for what is no such number."""
    return options.own_number("pool", least=1, most=MOST_CONNECTIONS, default=CONNECTIONS)


class Connection(Protocol):
    """What a pool keeps: a driver's connection, or a thin case around one. It must allow weak references."""

    def usable(self) -> bool:
        """Whether it may be used again, without asking the server: false once the other side has closed it."""
        ...

    def close(self) -> None:
        """Close it at once, whatever it was doing; never waits, never raises, and works after its loop has ended."""
        ...


_C = TypeVar("_C", bound=Connection)


class _Opening:
    """A connection that is being opened."""

    __slots__ = ("__weakref__",)


class _Waiter(Generic[_C]):
    """Somebody who waits: given a connection, or called to look for himself."""

    __slots__ = ("called", "connection", "signal")

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self.connection: _C | None = None
        self.called = False


class _Place(Generic[_C]):
    """What belongs to one event loop, or to all blocking callers: connections of one loop are useless in another."""

    __slots__ = ("idle", "living", "opening", "waiting")

    def __init__(self) -> None:
        self.idle: list[_C] = []
        self.living: weakref.WeakSet[_C] = weakref.WeakSet()  # these forget what an interrupted caller could not
        self.opening: weakref.WeakSet[_Opening] = weakref.WeakSet()  # give back or finish
        self.waiting: deque[_Waiter[_C]] = deque()

    def has_room(self, most: int) -> bool:
        """Whether another one may be opened."""
        return len(self.living) + len(self.opening) < most


class Pool(Generic[_C]):
    """At most `most` connections at a time for blocking callers, and as many for each event loop.

    Nothing is opened before it is needed. The one used last is used next. Whoever finds all of them in use waits for
    one, within his own time. A forked child has none of its parent's, and never closes them.
    """

    def __init__(
        self,
        connect: Callable[[float], Coroutine[Any, Any, _C]],
        *,
        clock: Clock,
        most: int,
        loop: Callable[[], Any] | None = None,
    ) -> None:
        """`connect` opens one within so many seconds. `loop` tells where an async caller runs; without it: blocking."""
        self._connect = connect
        self._clock = clock
        self._most = most
        self._loop = loop
        self._mutex = ForkMutex()
        self._places: dict[Any, _Place[_C]] = {}
        self._inherited: set[int] = set()
        self._closed = False
        follow_forks(self)
        _pools.add(self)

    async def take(self, seconds: float) -> _C:
        """A connection for one call, to be given back or dropped. `StoreUnavailable` after so many seconds.

        Those who wait are served in their order; whoever comes meanwhile stands behind them.
        """
        found = self.idle()
        return await self._wait_for_one(seconds) if found is None else found

    def idle(self) -> _C | None:
        """As `take`, if that need not wait: the one used last, if it is idle and nobody stands in line."""
        place = self._places.get(None if self._loop is None else self._loop())
        if place is None or place.waiting:
            return None
        try:
            found = place.idle.pop()
        except IndexError:
            return None
        if found.usable():
            return found
        self.drop(found)
        return None

    async def _wait_for_one(self, seconds: float) -> _C:
        give_up_at = self._clock.now() + seconds
        waiter: _Waiter[_C] | None = None
        opening = _Opening()
        try:
            while True:
                with self._mutex.lock:
                    place = self._place()
                    found, may_open, waiter = self._turn(place, waiter, opening=opening)
                if found is not None:
                    if found.usable():
                        waiter = None
                        return found
                    self.drop(found)
                    continue
                left = give_up_at - self._clock.now()
                if may_open:
                    waiter = None
                    return await self._open(place, opening, seconds=max(left, 0.0))
                if left <= 0 or waiter is None:
                    raise StoreUnavailable(
                        f"all {self._most} connections were in use for {seconds:.3g} s", applied=False
                    )
                await waiter.signal.wait(min(left, _LOOK_AGAIN))
        finally:
            if waiter is not None:
                self._leave(place, waiter)

    def _turn(
        self, place: _Place[_C], waiter: _Waiter[_C] | None, *, opening: _Opening
    ) -> tuple[_C | None, bool, _Waiter[_C] | None]:
        """A connection, or whether to open one, or a place in the line. The mutex is held."""
        found: _C | None
        if waiter is not None and waiter.connection is not None:
            found, waiter.connection, waiter.called = waiter.connection, None, True
            return found, False, waiter
        called = waiter is not None and waiter.called
        if called or not place.waiting or place.waiting[0] is waiter:
            found = _last(place.idle)
            may_open = found is None and place.has_room(self._most)
            if found is not None or may_open:
                if waiter is not None and not called:
                    place.waiting.popleft()
                    waiter.called = True
                if may_open:
                    place.opening.add(opening)
                return found, may_open, waiter
        if waiter is None:
            waiter = _Waiter(self._clock.signal())
            place.waiting.append(waiter)
        elif called:
            waiter.called = False
            place.waiting.appendleft(waiter)
        return None, False, waiter

    def give(self, connection: _C) -> None:
        """Back for the next caller."""
        with self._mutex.lock:
            place = self._places.get(None if self._loop is None else self._loop())
            if place is not None and not self._closed and not (self._inherited and id(connection) in self._inherited):
                if not place.waiting:
                    place.idle.append(connection)
                    return
                waiter = place.waiting.popleft()
                waiter.connection = connection
                waiter.signal.set()
                return
        self._close(connection)

    def drop(self, connection: _C) -> None:
        """Close one that may not be used again: broken, or in the middle of an exchange that was given up."""
        self._close(connection)
        with self._mutex.lock:
            for place in self._places.values():
                if connection in place.living:
                    place.living.discard(connection)
                    _call_next(place)

    def close(self) -> None:
        """Close what is idle, and what is in use once it is given back; a later call raises `StoreNotUsable`."""
        here = self._here_or_nowhere()
        with self._mutex.lock:
            self._closed = True
            idle: list[tuple[Any, _C]] = []
            for loop, place in self._places.items():
                while (connection := _last(place.idle)) is not None:
                    idle.append((loop, connection))
        for loop, connection in idle:
            if loop is here or loop is None or loop.is_closed():
                connection.close()
            else:
                _close_there(loop, connection)

    def check_open(self) -> None:
        """Raise `StoreNotUsable` once closed."""
        if self._closed:
            raise StoreNotUsable("this store was closed", hint="connect again")

    def before_fork(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.before_fork()

    def after_fork_in_parent(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """See `leased.stores._forks`. What is in use is kept as well: no thread here will give it back."""
        self._mutex.after_fork_in_child()
        for place in self._places.values():
            for connection in tuple(place.living):
                keep_forever(connection)
                self._inherited.add(id(connection))
        self._places = {}

    async def _open(self, place: _Place[_C], opening: _Opening, *, seconds: float) -> _C:
        connection: _C | None = None
        try:
            connection = await self._connect(seconds)
            return connection
        finally:
            with self._mutex.lock:
                place.opening.discard(opening)
                if connection is not None:
                    place.living.add(connection)
                else:
                    _call_next(place)

    def close_ended(self) -> None:
        """Close the connections of loops that have ended."""
        with self._mutex.lock:
            self._forget_ended()

    def _forget_ended(self) -> None:
        """The mutex is held."""
        for ended in [loop for loop in self._places if loop is not None and loop.is_closed()]:
            left = self._places.pop(ended)
            for connection in tuple(left.living):  # which has the idle ones as well
                connection.close()

    def _close(self, connection: _C) -> None:
        if id(connection) not in self._inherited:
            connection.close()

    def _here(self) -> Any:
        return None if self._loop is None else self._loop()

    def _here_or_nowhere(self) -> Any:
        try:
            return self._here()
        except RuntimeError:  # no loop is running in this thread
            return None

    def _place(self) -> _Place[_C]:
        """That of the caller; those of loops that have ended go, with their connections. The mutex is held."""
        self.check_open()
        loop = self._here()
        place = self._places.get(loop)
        if place is None:
            self._forget_ended()
            place = self._places[loop] = _Place()
        return place

    def _leave(self, place: _Place[_C], waiter: _Waiter[_C]) -> None:
        """Wait no longer; whoever was given a connection, or called, and does not use that passes it on."""
        with self._mutex.lock:
            connection = waiter.connection
            if waiter in place.waiting:
                place.waiting.remove(waiter)
            elif connection is None and (place.idle or place.has_room(self._most)):
                _call_next(place)
        if connection is not None:
            self.give(connection)


_pools: weakref.WeakSet[Pool[Any]] = weakref.WeakSet()
_leaving: dict[int, tuple[Any, Connection]] = {}
"""Connections that their loops were asked to close, by identity: a loop that ends meanwhile forgets that."""


def _last(idle: list[_C]) -> _C | None:
    """The one used last, taken out in one step: not everybody who takes one has the mutex."""
    try:
        return idle.pop()
    except IndexError:
        return None


def _close_there(loop: Any, connection: Connection) -> None:
    """Close one of another thread's loop, where alone it may be touched; here, if that loop has ended."""

    def close() -> None:
        if _leaving.pop(id(connection), None) is not None:
            connection.close()

    _close_left_behind()
    _leaving[id(connection)] = (loop, connection)
    try:
        loop.call_soon_threadsafe(close)
    except RuntimeError:
        close()


def _close_left_behind() -> None:
    for left, (loop, connection) in list(_leaving.items()):
        if loop.is_closed() and _leaving.pop(left, None) is not None:
            connection.close()


def _close_what_is_left() -> None:
    """At exit: connections of loops that have ended before, which would be reported as left open."""
    for pool in tuple(_pools):
        pool.close_ended()
    _close_left_behind()


atexit.register(_close_what_is_left)


def _call_next(place: _Place[Any]) -> None:
    if place.waiting:
        waiter = place.waiting.popleft()
        waiter.called = True
        waiter.signal.set()
