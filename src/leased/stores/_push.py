"""Hearing of releases by push: one listening connection per process and server, read by one thread; a hint only."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol

from leased.store import Bell, Clock, Signal
from leased.stores._forks import ForkMutex, follow_forks, keep_forever

LINGER = 5.0
"""Seconds a channel, and at last the connection, is kept after its last watch: the next one is often near."""

_CONFIRM = 0.1
_RETRY_MIN, _RETRY_MAX = 0.1, 5.0
_log = logging.getLogger("leased.push")


class Feed(Protocol):
    """A driver's listening connection; only the listening thread calls it. Every error of the driver ends it."""

    def fileno(self) -> int:
        """What to wait for until there is something to read."""
        ...

    def listen(self, channels: list[str]) -> None:
        """Ask for what is told on these channels from now on."""
        ...

    def unlisten(self, channels: list[str]) -> None:
        """Ask for no more of it."""
        ...

    def read(self) -> tuple[list[str], list[str]]:
        """Channels whose `listen` is in force now, and channels that rang; whatever has arrived, without waiting."""
        ...

    def close(self) -> None:
        """Close it; never waits, never raises."""
        ...


class _Channel:
    """What is known of one channel: who listens here, whether the server knows, since when nobody listens."""

    __slots__ = ("bells", "confirmed", "late", "left_at", "waiting")

    def __init__(self) -> None:
        self.bells: dict[object, Bell] = {}
        self.waiting: list[Signal] = []
        self.confirmed = False
        self.late = False  # somebody has given up waiting for the confirmation
        self.left_at = 0.0


class Listener:
    """Rings the bells of this process for what others tell on channels of one server.

    The thread starts with the first watch and ends some seconds after the last; it does not keep a program running.
    When the connection breaks every bell rings, for something may have been missed, and it connects again; where it
    cannot, waiters poll.
    """

    def __init__(self, connect: Callable[[], Feed], *, name: str) -> None:
        """`connect` opens the connection, blocking, within a time of its own. `name` is for the log: no secret."""
        self._connect = connect
        self._name = name
        self._mutex = ForkMutex()
        self._channels: dict[str, _Channel] = {}
        self._new: deque[str] = deque()
        self._thread: _Thread | None = None
        follow_forks(self)

    async def watch(self, channel: str, bell: Bell, *, clock: Clock) -> Callable[[], None]:
        """Ring `bell` for this channel until the returned function is called.

        On return the server has confirmed it. Where that takes longer than a moment the bell rings when it has, and the
        waiter polls meanwhile.
        """
        ticket = object()  # the same bell may be given twice
        signal: Signal | None = None
        with self._mutex.lock:
            found = self._channels.get(channel)
            if found is None:
                found = self._channels[channel] = _Channel()
                self._new.append(channel)
            found.bells[ticket] = bell
            if not found.confirmed:
                signal = clock.signal()
                found.waiting.append(signal)
            running = self._run()
            if running is not None and signal is not None:
                running.wake()
        if running is not None and signal is not None:
            try:
                in_time = await signal.wait(_CONFIRM)
                if not in_time:
                    with self._mutex.lock:
                        found.late = not found.confirmed
            except BaseException:
                self._unwatch(channel, ticket)
                raise
        return lambda: self._unwatch(channel, ticket)

    def _run(self) -> _Thread | None:
        """The thread; a new one if there is none. `None` where none can be started. The mutex is held."""
        if self._thread is None:
            try:
                self._thread = _Thread(self._serve)
            except (RuntimeError, OSError) as error:
                _log.debug("no push from %s: %s", self._name, error)
        return self._thread

    def _unwatch(self, channel: str, ticket: object) -> None:
        with self._mutex.lock:
            found = self._channels.get(channel)
            if found is not None and found.bells.pop(ticket, None) is not None and not found.bells:
                found.left_at = time.monotonic()

    def _serve(self, thread: _Thread) -> None:
        """The thread: connect, listen, and again after every failure, until nobody has listened for a while."""
        retry = _RETRY_MIN
        while self._wanted(thread):
            feed: Feed | None = None
            try:
                feed = thread.feed = self._connect()
                retry = _RETRY_MIN
                self._listen(thread, feed)
            except Exception as error:  # noqa: BLE001 - whatever ends it, waiters poll until there is another
                _log.debug("the push from %s stopped: %r", self._name, error)
                thread.nap(retry)
                retry = min(_RETRY_MAX, retry * 2)
            finally:
                thread.feed = None
                if feed is not None:
                    feed.close()
                self._start_over()
            self._forget_left()

    def _listen(self, thread: _Thread, feed: Feed) -> None:
        reading = select.poll()
        reading.register(feed.fileno(), select.POLLIN)
        reading.register(thread.fileno(), select.POLLIN)
        tidy_at = time.monotonic() + LINGER
        while True:
            self._ask(feed)
            if time.monotonic() >= tidy_at:
                tidy_at = time.monotonic() + LINGER
                feed.unlisten(self._forget_left())
                if not self._wanted(thread):
                    return
            reading.poll(LINGER * 1000.0)
            thread.woken()
            confirmed, rung = feed.read()
            for channel in confirmed:
                self._confirm(channel)
            for channel in rung:
                self._ring(channel)

    def _ask(self, feed: Feed) -> None:
        """Tell the server which channels are wanted now as well."""
        if not self._new:
            return
        with self._mutex.lock:
            wanted = [channel for channel in self._new if channel in self._channels]
            self._new.clear()
        if wanted:
            feed.listen(wanted)

    def _forget_left(self) -> list[str]:
        """The channels on which nobody has listened for a while; they are known no more."""
        with self._mutex.lock:
            left = [name for name, found in self._channels.items() if _is_left(found)]
            for name in left:
                del self._channels[name]
            return left

    def _confirm(self, channel: str) -> None:
        with self._mutex.lock:
            found = self._channels.get(channel)
            if found is None:
                return
            found.confirmed = True
            waiting, found.waiting = found.waiting, []
            late, found.late = found.late, False
        for signal in waiting:
            signal.set()
        if late:
            self._ring(channel)

    def _ring(self, channel: str) -> None:
        with self._mutex.lock:
            found = self._channels.get(channel)
            bells = [] if found is None else list(found.bells.values())
        for bell in bells:
            bell()

    def _start_over(self) -> None:
        """The connection is gone: let nobody wait for it, and let everybody look for himself."""
        with self._mutex.lock:
            self._new = deque(self._channels)
            waiting: list[Signal] = []
            bells: list[Bell] = []
            for found in self._channels.values():
                found.confirmed = False
                waiting += found.waiting
                found.waiting = []
                bells += found.bells.values()
        for signal in waiting:
            signal.set()
        for bell in bells:
            bell()

    def _wanted(self, thread: _Thread) -> bool:
        """Whether anybody listens, or did a moment ago; if not, the thread ends, and a watch starts another."""
        with self._mutex.lock:
            if self._channels:
                return True
            self._thread = None
            thread.close()
            return False

    def before_fork(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.before_fork()

    def after_fork_in_parent(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """See `leased.stores._forks`. The connection is the parent's: neither used nor closed."""
        self._mutex.after_fork_in_child()
        if self._thread is not None:
            keep_forever(self._thread)
            self._thread.close()  # this process's ends of the pipe that woke it
        self._channels, self._new, self._thread = {}, deque(), None


class _Thread:
    """The listening thread, and the pipe that wakes it."""

    def __init__(self, serve: Callable[[_Thread], None]) -> None:
        self.feed: Feed | None = None
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._closed = False
        try:
            threading.Thread(target=serve, args=(self,), name="leased-push", daemon=True).start()
        except RuntimeError:
            self.close()
            raise

    def fileno(self) -> int:
        """What becomes readable when the thread is woken."""
        return self._reading

    def wake(self) -> None:
        """Let it look again."""
        with contextlib.suppress(OSError):  # full: then it is awake
            os.write(self._writing, b"\0")

    def woken(self) -> None:
        """Forget how often it was woken."""
        with contextlib.suppress(OSError):
            os.read(self._reading, 4096)

    def nap(self, seconds: float) -> None:
        """Wait so long: a server that is away is not hammered."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close the pipe; under the listener's mutex, so that nobody writes into what another has opened since."""
        if not self._closed:
            self._closed = True
            os.close(self._reading)
            os.close(self._writing)


_listeners: weakref.WeakValueDictionary[Hashable, Listener] = weakref.WeakValueDictionary()
_turn = threading.Lock()


def listener(place: Hashable, connect: Callable[[], Feed], *, name: str) -> Listener:
    """The one of this process for that place, a server as seen by one user in one way: all stores there share it."""
    with _turn:
        found = _listeners.get(place)
        if found is None:
            found = _listeners[place] = Listener(connect, name=name)
        return found


def _forget_parents() -> None:
    global _turn
    _turn = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)


def _is_left(channel: _Channel) -> bool:
    return not channel.bells and time.monotonic() - channel.left_at > LINGER
