"""Transactions on the file: one connection, one transaction at a time, whatever other threads and processes do."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from leased.errors import StoreNotUsable
from leased.stores._forks import ForkMutex, follow_forks, keep_forever, take
from leased.stores._sqlite_clock import HostClock
from leased.stores._sqlite_driver import Connection, Driver, verdict
from leased.stores._sqlite_failures import Patience, busy, from_library, replaced
from leased.stores._sqlite_file import OpenFile, identity_of, open_file
from leased.stores._sqlite_turn import Turn

_T = TypeVar("_T")
_CLOSE_TIME = 1.0


class _Busy(Exception):
    """Somebody else was in the way; nothing was changed."""


class Database:
    """The file as a series of transactions. It is opened when needed, and again when the path leads elsewhere.

    Nothing is answered but from a file that the path still leads to afterwards: who goes on with a deleted file is
    told so, and holds nothing any more. Around a fork the file is closed, since SQLite keeps what it knows of locks in
    memory, and in the child that would be wrong.
    """

    def __init__(self, path: str, *, library: Driver, clock: HostClock) -> None:
        self.path = path
        self.library = library
        self._clock = clock
        self._inside = ForkMutex()
        self._line = threading.Lock()
        self._turn = Turn()
        self._file: OpenFile | None = None
        self._process = os.getpid()
        self._spoiled = False
        self._closed = False
        follow_forks(self)

    @property
    def journal(self) -> str | None:
        """How the open file keeps its journal; `None` before it is opened."""
        return None if self._file is None else self._file.journal

    def read(self, work: Callable[[Connection, str], _T], patience: Patience) -> _T:
        """Run work on one state of the file; it is given the connection and the id of the boot."""
        self._check_process()
        while True:
            try:
                return self._once(work, patience, writing=False)
            except _Busy as error:
                if not patience.nap():
                    raise busy(self.path, patience) from error

    def write(self, work: Callable[[Connection, str], _T], patience: Patience) -> _T:
        """The same with the right to write from the beginning; what was written is on disk before the answer.

        Work may run several times: what it did in vain has been rolled back.
        """
        self._check_process()
        taken: list[bool] = []
        try:
            take(self._line, patience.left(), taken=taken)
            if not taken[0]:
                raise busy(self.path, patience)
            self._turn.take(patience)
            while True:
                try:
                    return self._once(work, patience, writing=True)
                except _Busy as error:
                    if not patience.nap():
                        raise busy(self.path, patience) from error
        finally:
            if taken and taken[0]:
                try:
                    self._turn.give()
                finally:
                    self._line.release()

    def check_open(self) -> None:
        """Raise `StoreNotUsable` once it was closed."""
        if self._closed:
            raise StoreNotUsable(f"the store in {self.path} was closed", hint="connect again")

    def close(self) -> None:
        """Close the file; a later call raises `StoreNotUsable`."""
        self._closed = True
        patience = Patience(_CLOSE_TIME)
        for lock, end in ((self._inside.lock, self._forget), (self._line, self._turn.close)):
            taken: list[bool] = []
            try:
                take(lock, patience.left(), taken=taken)
                if taken[0]:
                    end()
            finally:
                if taken and taken[0]:
                    lock.release()

    def before_fork(self) -> None:
        """See `leased.stores._forks`."""
        if self._inside.before_fork():
            self._forget()

    def after_fork_in_parent(self) -> None:
        """See `leased.stores._forks`."""
        self._inside.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """See `leased.stores._forks`. A file that was open all the same is neither used nor closed."""
        self._process = os.getpid()
        self._inside.after_fork_in_child()
        self._line = threading.Lock()
        self._turn.close()
        if self._file is not None:
            # SQLite takes locks of the parent for ours. That is harmless where it holds none between transactions.
            self._spoiled = self._file.journal == "wal"
            keep_forever(self._file.connection)
            self._file = None

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self.after_fork_in_child()  # forked behind Python's back

    def _once(self, work: Callable[[Connection, str], _T], patience: Patience, *, writing: bool) -> _T:
        """One attempt at a transaction."""
        taken: list[bool] = []
        try:
            take(self._inside.lock, patience.left(), taken=taken)
            if not taken[0]:
                raise busy(self.path, patience)
            file = self._opened(patience)
            try:
                file.connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
                if writing:
                    self._turn.give()
                answer = work(file.connection, file.boot_id)
                self._commit(file, patience)
            except self.library.error as error:
                self._roll_back(file)
                if verdict(error) == "busy":
                    raise _Busy from error
                self._forget()
                raise from_library(self.path, error) from error
            except BaseException:
                self._roll_back(file)
                raise
            self._check_place(file)
            return answer
        finally:
            if taken and taken[0]:
                self._inside.lock.release()

    def _commit(self, file: OpenFile, patience: Patience) -> None:
        """Commit, again and again while readers are in the way: until then the transaction stands."""
        while True:
            try:
                file.connection.execute("COMMIT")
                return
            except self.library.error as error:
                if verdict(error) == "busy":
                    if patience.nap():
                        continue
                    raise busy(self.path, patience) from error
                self._roll_back(file)
                self._forget()
                raise from_library(self.path, error, committing=True) from error

    def _roll_back(self, file: OpenFile) -> None:
        """End a transaction that must leave nothing; a connection that cannot even do that goes."""
        try:
            if file.connection.in_transaction:
                file.connection.execute("ROLLBACK")
        except self.library.error:
            self._forget()

    def _opened(self, patience: Patience) -> OpenFile:
        self.check_open()
        if self._spoiled:
            raise StoreNotUsable(
                f"{self.path} was open while this process was forked from another by a program that told Python"
                " nothing of it; SQLite cannot be used here any more",
                hint="use locks only after such a fork",
            )
        if self._file is None:
            boot_id = self._clock.boot_id()
            self._file = open_file(self.path, library=self.library, boot_id=boot_id, patience=patience)
            self._turn.open(self.path)
        else:
            self._check_place(self._file)
        return self._file

    def _check_place(self, file: OpenFile) -> None:
        if identity_of(self.path) != file.identity:
            self._forget()
            raise replaced(self.path)

    def _forget(self) -> None:
        """Close the file; the next call opens what is there then."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(self.library.error):
                file.connection.close()
