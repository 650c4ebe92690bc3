"""Waking the waiters of other processes by named pipes beside the store's file; a hint that never waits for anybody."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import select
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from hashlib import blake2b

from leased.store import Bell
from leased.stores._forks import ForkMutex, follow_forks

_SIZE = 8
_STOP = bytes(_SIZE)
_READ = 4096
_UNFINISHED = 60.0
_log = logging.getLogger("leased.sqlite")
_rooms: weakref.WeakValueDictionary[str, Doorbell] = weakref.WeakValueDictionary()
_rooms_mutex = threading.Lock()


def doorbell(directory: str) -> Doorbell:
    """The one of this process for that directory: all stores of the process on one file share it."""
    with _rooms_mutex:
        found = _rooms.get(directory)
        if found is None:
            found = _rooms[directory] = Doorbell(directory)
        return found


def chime(namespace: str, key: str) -> bytes:
    """What is written into a pipe for a key. Two keys may share it: a bell may ring for nothing."""
    return blake2b(f"{namespace}\0{key}".encode(), digest_size=_SIZE).digest()


class Doorbell:
    """Watches of this process, and the pipes of others.

    A process that watches has one pipe in the directory, read by one thread, which sleeps until somebody writes. The
    pipe gets its final name when it is open for reading, so that a pipe nobody reads is a dead one and may go.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._mutex = ForkMutex()
        self._bells: dict[bytes, list[Bell]] = {}
        self._pipe: _Pipe | None = None
        follow_forks(self)

    def watch(self, sound: bytes, bell: Bell, *, mode: int, group: int) -> Callable[[], None]:
        """Ring `bell` for this sound from now on. `mode` and `group` are those of the file: who may use it may ring."""
        with self._mutex:
            if self._pipe is None:
                self._pipe = _open_pipe(self._directory, mode=mode, group=group)
                if self._pipe is not None:
                    name = "leased-doorbell"
                    threading.Thread(target=self._listen, args=(self._pipe,), name=name, daemon=True).start()
            self._bells.setdefault(sound, []).append(bell)
        return lambda: self._unwatch(sound, bell)

    def ring(self, sounds: Iterable[bytes]) -> None:
        """Wake whoever watches for these sounds, here and in other processes."""
        for sound in sounds:
            self._ring_here(sound)
        try:
            names = os.listdir(self._directory)
        except OSError:
            return
        own = self._pipe
        message = b"".join(sounds)
        for name in names:
            if not name.startswith(".") and (own is None or own.name != name):
                _write(os.path.join(self._directory, name), message)

    def _unwatch(self, sound: bytes, bell: Bell) -> None:
        with self._mutex:
            bells = self._bells.get(sound, [])
            if bell in bells:
                bells.remove(bell)
            if not bells:
                self._bells.pop(sound, None)
            if not self._bells and self._pipe is not None:
                self._pipe.stop(self._directory)
                self._pipe = None

    def _ring_here(self, sound: bytes) -> None:
        if self._bells:
            with self._mutex:
                bells = tuple(self._bells.get(sound, ()))
            for bell in bells:
                bell()

    def _listen(self, pipe: _Pipe) -> None:
        while sounds := pipe.read():
            for at in range(0, len(sounds), _SIZE):
                self._ring_here(sounds[at : at + _SIZE])

    def before_fork(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.before_fork()

    def after_fork_in_parent(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """See `leased.stores._forks`. The pipe stays the parent's: only this process's ends are closed."""
        self._mutex.after_fork_in_child()
        self._bells = {}
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


class _Pipe:
    """The named pipe of this process. It has a writing end too, so that it never ends while it is read."""

    def __init__(self, path: str, mode: int) -> None:
        os.mkfifo(path, mode)
        self.name = ""
        self._ending = threading.Lock()
        self._stopped = False
        self._reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._writing = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(self._reading, True)

    def read(self) -> bytes:
        """Wait for sounds; nothing once the pipe was stopped, and then it is closed."""
        sounds = os.read(self._reading, _READ)
        with self._ending:
            if not self._stopped:
                return sounds
            self.close()
        return b""

    def stop(self, directory: str) -> None:
        """Take the name away and let the reader end."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, self.name))
        with self._ending:  # or the reader could close, and another file get, the number that is written to here
            self._stopped = True
            with contextlib.suppress(BlockingIOError):  # full: then the reader is awake
                os.write(self._writing, _STOP)

    def close(self) -> None:
        """Close both ends."""
        os.close(self._reading)
        os.close(self._writing)


def _open_pipe(directory: str, *, mode: int, group: int) -> _Pipe | None:
    """A pipe under its final name, open for reading; `None` where there can be none, and then waiters poll."""
    mode &= 0o666
    name = secrets.token_hex(_SIZE)
    hidden = os.path.join(directory, f".{name}")
    try:
        if not os.path.isdir(directory):
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700)
                share(directory, mode=mode | (mode & 0o444) >> 2, group=group)
        _remove_unfinished(directory)
        pipe = _Pipe(hidden, mode)
        share(hidden, mode=mode, group=group)
        os.rename(hidden, os.path.join(directory, name))
    except OSError as error:
        _log.info("no waking up between processes: %s", error)
        with contextlib.suppress(OSError):
            os.unlink(hidden)
        return None
    pipe.name = name
    return pipe


def share(path: str, *, mode: int, group: int) -> None:
    """Give a path the mode and, where allowed, the group of the file it belongs to."""
    with contextlib.suppress(PermissionError):
        os.chown(path, -1, group)
    os.chmod(path, mode)


def _remove_unfinished(directory: str) -> None:
    """Remove what a process left that died between making its pipe and naming it."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError):
            if name.startswith(".") and time.time() - os.stat(path).st_mtime > _UNFINISHED:
                os.unlink(path)


def _write(path: str, message: bytes) -> None:
    """Write into somebody's pipe without ever waiting; a pipe that nobody reads goes."""
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:
            with contextlib.suppress(OSError):
                os.unlink(path)
        return
    try:
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            for at in range(0, len(message), select.PIPE_BUF):
                os.write(pipe, message[at : at + select.PIPE_BUF])
    except OSError:
        return  # full, or just closed: a hint may be lost
    finally:
        os.close(pipe)
