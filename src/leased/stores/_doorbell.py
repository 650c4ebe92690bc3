"""Waking the waiters of other processes by named pipes beside the store's file; a hint that never waits for anybody."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
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
_doorbells: weakref.WeakValueDictionary[str, Doorbell] = weakref.WeakValueDictionary()


def doorbell(directory: str) -> Doorbell:
    """The one of this process for that directory: all stores of the process on one file share it."""
    return _doorbells.get(directory) or _doorbells.setdefault(directory, Doorbell(directory))


def chime(namespace: str, key: str) -> bytes:
    """What is written into a pipe for a key. Two keys may share it: a bell may ring for nothing."""
    return blake2b(f"{namespace}\0{key}".encode(), digest_size=_SIZE).digest()


class Doorbell:
    """Watches of this process, and the pipes of others.

    A process that watches has one pipe in the directory, read by one thread, which sleeps until somebody writes. The
    pipe has a further name for each sound that is watched, so that a release wakes nobody who waits for something
    else. It gets these names when it is open for reading: under them, a pipe that nobody reads is a dead one.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._mutex = ForkMutex()
        self._bells: dict[bytes, dict[object, Bell]] = {}
        self._pipe: _Pipe | None = None
        follow_forks(self)

    def watch(self, sound: bytes, bell: Bell, *, mode: int, group: int) -> Callable[[], None]:
        """Ring `bell` for this sound from now on. `mode` and `group` are those of the file: who may use it may ring.

        Where there can be no pipe, bells ring for releases of this process only, and waiters poll.
        """
        ticket = object()  # the same bell may be given twice
        with self._mutex.lock:
            bells = self._bells.setdefault(sound, {})
            bells[ticket] = bell
            try:
                if self._pipe is None:
                    self._pipe = self._open(mode=mode & 0o666, group=group)
                if len(bells) == 1:
                    self._pipe.answer_to(sound)
            except (OSError, RuntimeError) as error:
                _log.debug("no waking up between processes: %s", error)
        return lambda: self._unwatch(sound, ticket)

    def ring(self, sounds: Iterable[bytes]) -> None:
        """Wake whoever watches for these sounds, here and in other processes."""
        for sound in sounds:
            self._ring_here(sound)
        pipe = self._pipe
        own = "" if pipe is None else pipe.name
        rooms = _by_room(self._directory, sounds)
        if len(rooms) > 1:  # a batch: one look tells in which of its rooms anybody has ever waited
            try:
                entered = {os.path.join(self._directory, name) for name in os.listdir(self._directory)}
            except OSError:
                return
            rooms = {room: ringing for room, ringing in rooms.items() if room in entered}
        for room, ringing in rooms.items():
            try:
                names = os.listdir(room)
            except OSError:
                continue
            for name in names:
                rung = ringing.get(name[: 2 * _SIZE])
                if rung is not None and name[2 * _SIZE + 1 :] != own:
                    _write(os.path.join(room, name), rung)

    def _open(self, *, mode: int, group: int) -> _Pipe:
        """A pipe, and the thread that reads it; raises `RuntimeError` where no thread can be started."""
        pipe = _Pipe(self._directory, mode=mode, group=group)
        try:
            threading.Thread(target=self._listen, args=(pipe,), name="leased-doorbell", daemon=True).start()
        except RuntimeError:
            pipe.stop()
            pipe.close()
            raise
        return pipe

    def _unwatch(self, sound: bytes, ticket: object) -> None:
        with self._mutex.lock:
            bells = self._bells.get(sound, {})
            if bells.pop(ticket, None) is None:
                return
            if bells:
                return
            del self._bells[sound]
            if self._pipe is not None:
                self._pipe.ignore(sound)
                if not self._bells:
                    self._pipe.stop()
                    self._pipe = None

    def _ring_here(self, sound: bytes) -> None:
        if self._bells:
            with self._mutex.lock:
                bells = tuple(self._bells.get(sound, {}).values())
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

    def __init__(self, directory: str, *, mode: int, group: int) -> None:
        self.name = secrets.token_hex(_SIZE)
        self._directory = directory
        self._folder_mode = mode | (mode & 0o444) >> 2
        self._group = group
        self._ending = threading.Lock()
        self._stopped = False
        self._make_folder(directory)
        _remove_dead(directory)
        self._path = os.path.join(directory, f".{self.name}")
        os.mkfifo(self._path, 0o600)
        try:
            share(self._path, mode=mode, group=group)
            self._reading = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
            self._writing = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            os.unlink(self._path)
            raise
        os.set_blocking(self._reading, True)

    def answer_to(self, sound: bytes) -> None:
        """Let those who ring this sound find the pipe."""
        self._make_folder(_room(self._directory, sound))
        os.link(self._path, self._name_for(sound))

    def ignore(self, sound: bytes) -> None:
        """Be found by them no more."""
        with contextlib.suppress(OSError):
            os.unlink(self._name_for(sound))

    def read(self) -> bytes:
        """Wait for sounds; nothing once the pipe was stopped, and then it is closed."""
        sounds = os.read(self._reading, _READ)
        with self._ending:
            if not self._stopped:
                return sounds
            self.close()
        return b""

    def stop(self) -> None:
        """Take the pipe away and let the reader end."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        with self._ending:  # or the reader could close, and another file get, the number that is written to here
            self._stopped = True
            with contextlib.suppress(BlockingIOError):  # full: then the reader is awake
                os.write(self._writing, _STOP)

    def close(self) -> None:
        """Close both ends."""
        os.close(self._reading)
        os.close(self._writing)

    def _name_for(self, sound: bytes) -> str:
        return os.path.join(_room(self._directory, sound), f"{sound.hex()}-{self.name}")

    def _make_folder(self, path: str) -> None:
        if not os.path.isdir(path):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
                share(path, mode=self._folder_mode, group=self._group)


def share(path: str, *, mode: int, group: int) -> None:
    """Give a path the mode and, where allowed, the group of the file it belongs to."""
    with contextlib.suppress(PermissionError):
        os.chown(path, -1, group)
    os.chmod(path, mode)


def _room(directory: str, sound: bytes) -> str:
    """The folder of a sound: there are a few, so that none ever has very many names."""
    return os.path.join(directory, sound[:1].hex())


def _by_room(directory: str, sounds: Iterable[bytes]) -> dict[str, dict[str, bytes]]:
    """The sounds of each folder, by the text with which names of their pipes begin."""
    rooms: dict[str, dict[str, bytes]] = {}
    for sound in sounds:
        rooms.setdefault(_room(directory, sound), {})[sound.hex()] = sound
    return rooms


def _remove_dead(directory: str) -> None:
    """Remove the pipes of processes that ended without doing so."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError):
            if name.startswith(".") and time.time() - os.stat(path).st_mtime > _UNFINISHED:
                _write(path, b"")


def _write(path: str, sound: bytes) -> None:
    """Write into somebody's pipe without ever waiting; a pipe that nobody reads goes."""
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:
            with contextlib.suppress(OSError):
                os.unlink(path)
        return
    try:
        if sound and stat.S_ISFIFO(os.fstat(pipe).st_mode):
            os.write(pipe, sound)
    except OSError:
        return  # full, or just closed: a hint may be lost
    finally:
        os.close(pipe)
