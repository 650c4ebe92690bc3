"""The store of one host: locks in an SQLite file that its processes share. It needs no server and deletes no file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar
from urllib.parse import unquote, urlsplit

from leased.connect import Face, Options
from leased.errors import InvalidRequest, LeasedError, StoreNotUsable, StoreUnavailable
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
from leased.policy import CLOCK_MARGIN
from leased.store import Bell, Outcome, Store
from leased.stores._doorbell import chime, doorbell
from leased.stores._forks import ForkMutex, follow_forks, keep_forever
from leased.stores._sqlite_clock import HostClock, host_clock
from leased.stores._sqlite_driver import Driver, driver, verdict
from leased.stores._sqlite_failures import Patience, busy, from_library, replaced
from leased.stores._sqlite_file import OpenFile, identity_of, open_file
from leased.stores._sqlite_record import SECOND
from leased.stores._sqlite_steps import Steps

_T = TypeVar("_T")
_SWEEP_EVERY = 16
_CLOSE_TIME = 1.0


def open(url: str, *, face: Face, options: Options) -> Store:  # noqa: A001 - the name every store module has
    """The store for `sqlite:PATH`: relative, absolute or `sqlite:///absolute`. Nothing is opened yet."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise InvalidRequest(
            f"the URL of an SQLite store has no parameters such as {parts.query or parts.fragment!r}",
            hint="options of leased begin with leased_; write ? and # in the name of a file as %3F and %23",
        )
    if parts.netloc not in ("", "localhost"):
        raise InvalidRequest(
            f"an SQLite file is on this host, not on {parts.netloc!r}", hint="write sqlite:///absolute/path.db"
        )
    store = SqliteStore(unquote(parts.path), namespace=options.namespace, clock_margin=options.clock_margin)
    if face == "blocking":
        return store
    from leased.stores._threaded import ThreadedStore

    return ThreadedStore(store)


class SqliteStore:
    """Keeps locks in a file: threads and processes of one host exclude each other.

    Opens nothing until it is used. `offset` seconds are added to its clock, always 0 except in tests.
    """

    mode: Literal["blocking", "async", "any"] = "blocking"

    def __init__(
        self,
        path: str,
        *,
        namespace: str = "",
        clock_margin: float = CLOCK_MARGIN,
        clock: HostClock | None = None,
        library: Driver | None = None,
    ) -> None:
        if not path:
            raise InvalidRequest("an SQLite store needs the path of its file", hint="sqlite:/var/lib/leased/locks.db")
        self.offset = 0.0
        self._path = os.path.abspath(path)
        self._namespace = namespace
        self._clock_margin = clock_margin
        self._clock = clock or host_clock()
        self._library = library or driver()
        self._error = self._library.error
        self._mutex = ForkMutex()
        self._file: OpenFile | None = None
        self._closed = False
        self._until_sweep = 0
        self._doorbell = doorbell(f"{os.path.realpath(self._path)}-bells")
        follow_forks(self)

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        return self._write(lambda steps: steps.acquire(claim), timeout)

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return self._write(lambda steps: steps.renew(key, token, ttl=ttl, number=number), timeout)

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        return self._write(lambda steps: steps.release(key, token, late=late), timeout)

    async def abandon(self, key: str, token: str, *, timeout: float) -> None:
        """See `leased.store`."""
        self._write(lambda steps: steps.abandon(key, token), timeout)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return self._read(lambda steps: steps.look(key, token), timeout)

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""
        return self._read(lambda steps: steps.status(key), timeout)

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""
        return self._read(lambda steps: steps.list(prefix, after=after, limit=limit), timeout)

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        return self._write(lambda steps: steps.force_release(key, fencing_token), timeout)

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`. One transaction, so one commit for all; if that fails, each member has the failure."""

        def all_of_them(steps: Steps) -> list[Outcome]:
            return [_outcome(steps, operation) for operation in operations]

        try:
            if all(isinstance(operation, Look) for operation in operations):
                return self._read(all_of_them, timeout)
            return self._write(all_of_them, timeout, count=len(operations))
        except StoreUnavailable as error:
            return [_again(error) for _ in operations]

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`. Bells are rung by the process that releases, through a pipe beside the file."""
        try:
            found = os.stat(self._path)
            mode, group = found.st_mode, found.st_gid
        except OSError:
            mode, group = 0o600, -1
        return self._doorbell.watch(chime(self._namespace, key), bell, mode=mode, group=group)

    def assurance(self) -> Assurance:
        """See `leased.store`. Opens nothing: the journal mode is told once the file is in use."""
        library = self._library
        journal = f"journal mode {self._file.journal}" if self._file else "not opened yet"
        return Assurance(
            exclusive="host",
            early_loss=False,
            durable="survives kill and power loss: on disk before the answer",
            takeover="the clock of this host, which counts suspend and cannot be set; a reboot ends all leases",
            fence="rises while the wall clock is not set back over the loss of the file",
            clock_margin=self._clock_margin,
            notes=(
                f"{self._path}, {journal}, SQLite {library.version_text} ({library.name})",
                "other hosts are not excluded, even if they see the file",
                "containers share locks if they share the file and the boot id of their host",
            ),
        )

    async def close(self) -> None:
        """See `leased.store`."""
        self._closed = True
        if self._mutex.acquire(_CLOSE_TIME):
            try:
                self._forget_file()
            finally:
                self._mutex.release()

    def before_fork(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.before_fork()

    def after_fork_in_parent(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """See `leased.stores._forks`. The child opens the file for itself when it needs it."""
        self._mutex.after_fork_in_child()
        if self._file is not None:
            keep_forever(self._file.connection)
            self._file = None

    def _write(self, work: Callable[[Steps], _T], timeout: float, *, count: int = 1) -> _T:
        """Run work that may write, tell waiters what it freed, and now and then sweep."""
        freed: list[str] = []

        def all_of_it(steps: Steps) -> _T:
            answer = work(steps)
            steps.finish()
            self._until_sweep -= count
            if self._until_sweep <= 0:
                steps.sweep(_SWEEP_EVERY - self._until_sweep)
                self._until_sweep = _SWEEP_EVERY
            freed[:] = steps.freed
            return answer

        answer = self._run("BEGIN IMMEDIATE", all_of_it, patience=Patience(timeout))
        if freed:
            self._doorbell.ring([chime(self._namespace, key) for key in freed])
        return answer

    def _read(self, work: Callable[[Steps], _T], timeout: float) -> _T:
        """Run work that writes nothing, on one state of the file."""
        return self._run("BEGIN", work, patience=Patience(timeout))

    def _run(self, begin: str, work: Callable[[Steps], _T], *, patience: Patience) -> _T:
        """Run work in one transaction and answer when it is on disk, in the file that the path leads to."""
        if not self._mutex.acquire(patience.left()):
            raise busy(self._path, patience)
        try:
            file = self._opened(patience)
            try:
                answer = self._attempt(file, begin, work=work, patience=patience)
                self._commit(file, patience)
            except BaseException:
                self._roll_back(file)
                raise
            self._check_place(file)
            return answer
        finally:
            self._mutex.release()

    def _attempt(self, file: OpenFile, begin: str, *, work: Callable[[Steps], _T], patience: Patience) -> _T:
        """Everything but the commit, from the beginning whenever somebody else was in the way."""
        execute = file.connection.execute
        while True:
            try:
                execute(begin)
                ahead = int(self.offset * SECOND)
                steps = Steps(
                    execute,
                    path=self._path,
                    namespace=self._namespace,
                    boot_id=file.boot_id,
                    now=self._clock.boot() + ahead,
                    wall=self._clock.wall() + ahead,
                )
                return work(steps)
            except self._error as error:
                self._roll_back(file)
                if verdict(error) != "busy":
                    self._forget_file()
                    raise from_library(self._path, error) from error
                if not patience.nap():
                    raise busy(self._path, patience) from error

    def _commit(self, file: OpenFile, patience: Patience) -> None:
        while True:
            try:
                file.connection.execute("COMMIT")
                return
            except self._error as error:
                if verdict(error) == "busy" and patience.nap():
                    continue  # readers are still in the way: the transaction stands
                self._roll_back(file)
                if verdict(error) == "busy":
                    raise busy(self._path, patience) from error
                self._forget_file()
                raise from_library(self._path, error, committing=True) from error

    def _roll_back(self, file: OpenFile) -> None:
        """End a transaction that must leave nothing; a connection that cannot even do that goes."""
        try:
            if file.connection.in_transaction:
                file.connection.execute("ROLLBACK")
        except self._error:
            self._forget_file()

    def _opened(self, patience: Patience) -> OpenFile:
        """The open file, if it is still the one that the path leads to."""
        if self._closed:
            raise StoreNotUsable(f"the store in {self._path} was closed", hint="connect again")
        if self._file is None:
            self._file = open_file(self._path, library=self._library, boot_id=self._clock.boot_id(), patience=patience)
        else:
            self._check_place(self._file)
        return self._file

    def _check_place(self, file: OpenFile) -> None:
        if identity_of(self._path) != file.identity:
            self._forget_file()
            raise replaced(self._path)

    def _forget_file(self) -> None:
        """Close the file; the next call opens what is there then."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(self._error):
                file.connection.close()


def _outcome(steps: Steps, operation: Operation) -> Outcome:
    """One member of a batch."""
    try:
        match operation:
            case Acquire(claim):
                return steps.acquire(claim)
            case Renew(key, token, ttl, number):
                return steps.renew(key, token, ttl=ttl, number=number)
            case Release(key, token, late):
                return steps.release(key, token, late=late)
            case Abandon(key, token):
                steps.abandon(key, token)
                return None
            case Look(key, token):
                return steps.look(key, token)
    except LeasedError as error:
        return error


def _again(error: StoreUnavailable) -> StoreUnavailable:
    """The same failure for another caller: one exception for all would collect the traces of all their threads."""
    return type(error)(error.message, applied=error.applied, hint=error.hint)
