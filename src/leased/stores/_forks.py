"""What stores do around a fork: no thread of ours is inside a driver while it happens, and the child starts afresh."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

_PATIENCE = 1.0


class ForkMutex:
    """A mutex that forks wait for a while, so that in most children nothing that it guards is half done."""

    __slots__ = ("_lock", "_stopped")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False

    def acquire(self, seconds: float) -> bool:
        """Wait for it at most so long; whether it is ours now."""
        return self._lock.acquire(timeout=seconds)

    def release(self) -> None:
        """Let the next one in."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def before_fork(self) -> bool:
        """Keep everybody out while the process is copied; whether that could be done."""
        self._stopped = self._lock.acquire(timeout=_PATIENCE)
        return self._stopped

    def after_fork_in_parent(self) -> None:
        """Let them in again."""
        if self._stopped:
            self._stopped = False
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Be free: whoever had it does not exist here."""
        self._lock = threading.Lock()
        self._stopped = False


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
