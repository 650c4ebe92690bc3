"""What stores do around a fork: no thread of ours is inside a driver while it happens, and the child starts afresh."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

_PATIENCE = 1.0


class ForkMutex:
    """A mutex that forks wait for a while, so that in most children nothing that it guards is half done.

    `lock` is what to take: a method around it would begin, and could be interrupted, between taking and noting that.
    """

    __slots__ = ("_stopped", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._stopped = False

    def before_fork(self) -> bool:
        """Keep everybody out while the process is copied; whether that could be done."""
        self._stopped = self.lock.acquire(timeout=_PATIENCE)
        return self._stopped

    def after_fork_in_parent(self) -> None:
        """Let them in again."""
        if self._stopped:
            self._stopped = False
            self.lock.release()

    def after_fork_in_child(self) -> None:
        """Be free: whoever had it does not exist here."""
        self.lock = threading.Lock()
        self._stopped = False


def take(lock: threading.Lock, seconds: float, *, taken: list[bool]) -> None:
    """Wait for a lock at most so long, and add to `taken` whether it is ours now.

    An exception that a thread gets from outside waits until the lock is there, and is raised before its caller could
    know: what is noted by the same call is known all the same.
    """
    taken.extend(map(lock.acquire, (True,), (seconds,)))


class Forkable(Protocol):
    """Something with threads, connections or descriptors that a forked child must not use."""

    def before_fork(self) -> None:
        """Let nothing be under way while the process is copied; wait for that at most a second."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Start afresh: what was inherited is neither used nor closed."""
        ...


_members: weakref.WeakSet[Forkable] = weakref.WeakSet()
_turn = threading.Lock()
_kept: list[Any] = []


def follow_forks(member: Forkable) -> None:
    """Call the member around every fork, as long as it lives."""
    with _turn:  # not while a fork goes through them
        _members.add(member)


def keep_forever(inherited: object) -> None:
    """Never close an inherited object, not even when the interpreter ends: that would reach into the parent's files."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
    _kept.append(inherited)


def _before() -> None:
    _turn.acquire()
    for member in list(_members):
        member.before_fork()


def _in_parent() -> None:
    for member in list(_members):
        member.after_fork_in_parent()
    _turn.release()


def _in_child() -> None:
    global _turn
    _turn = threading.Lock()
    for member in list(_members):
        member.after_fork_in_child()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
