"""Whose turn it is to write next among the processes of one file: for fairness and speed only, never for exclusion."""

from __future__ import annotations

import contextlib
import fcntl
import os

from leased.stores._doorbell import share
from leased.stores._sqlite_failures import Patience

_LONGEST_WAIT = 0.25


class Turn:
    """Without it, the process that has just written writes again before the others, who sleep, have noticed.

    The one whose turn it is asks SQLite for the right to write again and again, and everybody else asks for the turn. A
    process that dies loses it. One that is stopped keeps it, so nobody waits for the turn for long.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self._ours = False

    def open(self, path: str) -> None:
        """Begin to take part, for the file at this path. Where that cannot be, there are no turns."""
        if self._file is not None:
            return
        beside = f"{os.path.realpath(path)}-turn"
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # or a pipe in its place would hold us
        with contextlib.suppress(OSError):
            try:
                self._file = os.open(beside, flags)
            except FileNotFoundError:
                found = os.stat(path)
                self._file = os.open(beside, flags | os.O_CREAT, 0o600)
                share(beside, mode=found.st_mode & 0o666, group=found.st_gid)

    def take(self, patience: Patience) -> None:
        """Wait until it is this process's turn, but not for long."""
        if self._file is None:
            return
        waiting = Patience(min(_LONGEST_WAIT, patience.left()))
        while not self._ours:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._ours = True
            except OSError:
                if not waiting.nap():
                    return

    def give(self) -> None:
        """Let another one have it."""
        if self._ours and self._file is not None:
            self._ours = False
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; it stays where it is, for others have it open."""
        file, self._file, self._ours = self._file, None, False
        if file is not None:
            os.close(file)
