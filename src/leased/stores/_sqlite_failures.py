"""How failures of SQLite and of the file system are told: what, which file, why, what next; and how long to try."""

from __future__ import annotations

import errno
import os
import random
import time

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores import _sqlite_driver as library

_NAP_FIRST = 0.0001
_NAP_LONGEST = 0.001
OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors that say nothing of the file, only of how many this process or machine has open."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PERMIT = "give this user permission to write the file and its directory"
_ADVICE = {
    errno.EACCES: _PERMIT,
    errno.EPERM: _PERMIT,
    errno.EROFS: _PERMIT,
    errno.ENOSPC: "free some space on this disk",
    errno.EDQUOT: "free some space on this disk",
}


class Patience:
    """How long a call may go on trying: short naps with jitter, so that no process is the unlucky one for long."""

    __slots__ = ("_nap", "_until", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until = time.monotonic() + seconds
        self._nap = _NAP_FIRST

    def left(self) -> float:
        """Seconds that remain, at least 0."""
        return max(0.0, self._until - time.monotonic())

    def nap(self) -> bool:
        """Sleep a little; false, and at once, when the time is up."""
        left = self.left()
        if left <= 0:
            return False
        time.sleep(min(left, self._nap * (0.5 + random.random())))
        self._nap = min(2 * self._nap, _NAP_LONGEST)
        return True


def busy(path: str, patience: Patience) -> StoreUnavailable:
    """Somebody else kept the file locked all the time."""
    return StoreUnavailable(
        f"{path} stayed locked by others for {patience.seconds:.3g} s: nothing was changed",
        applied=False,
        hint="ask again; a longer time-out helps where many processes share the file",
    )


def replaced(path: str) -> StoreNotUsable:
    """The path leads to another file than the one that was opened, or to none."""
    return StoreNotUsable(
        f"{path} was deleted or replaced while it was in use: the leases in it are lost",
        hint="never delete the file while anything uses it; the next call opens what is there now",
    )


def from_system(path: str, error: OSError) -> StoreUnavailable:
    """What the file system refused."""
    cause = f"{path} cannot be used: {error.strerror or error}"
    if error.errno in OUT_OF_FILES:
        return StoreUnavailable(cause, applied=False, hint="raise the limit of open files, or close some")
    advice = _ADVICE.get(error.errno or 0, "choose another path")
    if error.errno in _FULL:
        return StoreUnavailable(cause, applied=False, hint=advice)
    return StoreNotUsable(cause, hint=advice)


def from_library(path: str, error: Exception, *, committing: bool = False) -> StoreUnavailable:
    """What SQLite refused. Only a commit can leave open whether it took place."""
    if library.code(error) == library.MOVED:
        return replaced(path)
    cause = f"SQLite cannot use {path}: {error}"
    if library.cannot_open(error) and _out_of_files():
        return StoreUnavailable(cause, applied=False, hint="raise the limit of open files, or close some")
    if library.verdict(error) == "unusable":
        return StoreNotUsable(cause, hint=library.advice(error))
    applied = None if committing and not library.settled(error) else False
    return StoreUnavailable(cause, applied=applied, hint=library.advice(error))


def _out_of_files() -> bool:
    """Whether this process may open no more files, which SQLite does not tell."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in OUT_OF_FILES
    return False
