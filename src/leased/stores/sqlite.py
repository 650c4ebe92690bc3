"""The store of one host: locks in an SQLite file that its processes share. It needs no server and deletes no file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar
from urllib.parse import unquote, urlsplit

from leased.checks import shown
from leased.errors import InvalidRequest, LeasedError, StoreUnavailable
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
from leased.store import Bell, Outcome, Store, again
from leased.stores._doorbell import chime, doorbell
from leased.stores._sql_record import SECOND
from leased.stores._sqlite_clock import HostClock, host_clock
from leased.stores._sqlite_database import Database
from leased.stores._sqlite_driver import Connection, Driver, driver
from leased.stores._sqlite_failures import Patience
from leased.stores._sqlite_steps import Steps
from leased.targets import Face, Options

_T = TypeVar("_T")
_SWEEP_EVERY = 64


def open(url: str, *, face: Face, options: Options) -> Store:  # noqa: A001 - the name every store module has
    """The store for `sqlite:PATH`: relative, absolute or `sqlite:///absolute`. Nothing is opened yet."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise InvalidRequest(
            "the URL of an SQLite store has no parameters but those that begin with leased_",
            hint="write ? and # in the name of a file as %3F and %23",
        )
    if parts.netloc not in ("", "localhost"):
        name = shown(parts.netloc.rpartition("@")[2])
        raise InvalidRequest(
            f"an SQLite file is on this host, not on {name!r}",
            hint=f"write sqlite:{name}, or with its whole path sqlite:///absolute/{name}",
        )
    path = _readable(parts.path)
    if path.startswith("~"):
        raise InvalidRequest(
            f"the path {shown(path)!r} begins with ~, which only a shell expands",
            hint="write the whole path, or let the shell expand it: sqlite:$HOME/…",
        )
    if path == ":memory:":
        raise InvalidRequest("sqlite::memory: would exclude nobody", hint="for this process alone use 'memory:'")
    store = SqliteStore(path, namespace=options.namespace, clock_margin=options.clock_margin)
    if face == "blocking":
        return store
    from leased.stores._threaded import ThreadedStore

    return ThreadedStore(store)


def place_of(url: str) -> str:
    """The file that a URL means, however it is spelled."""
    return os.path.realpath(unquote(urlsplit(url).path))


def _readable(path: str) -> str:
    """The path in a URL as text that both SQLite and the system take; or `InvalidRequest`."""
    try:
        path = unquote(path, errors="strict")
        path.encode()
    except UnicodeError:
        raise InvalidRequest(
            f"the path {shown(path)!r} is not UTF-8", hint="rename the file or its directory"
        ) from None
    if "\0" in path:
        raise InvalidRequest(f"the path {shown(path)!r} has a NUL character", hint="remove it")
    return path


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
            raise InvalidRequest("an SQLite store needs the path of its file", hint="sqlite:/var/lib/locks/locks.db")
        self.offset = 0.0
        self._path = os.path.abspath(path)
        self._namespace = namespace
        self._clock_margin = clock_margin
        self._clock = clock or host_clock()
        self._database = Database(self._path, library=library or driver(), clock=self._clock)
        self._doorbell = doorbell(f"{os.path.realpath(self._path)}-bells")
        self._until_sweep = 0
        self._watches: set[Callable[[], None]] = set()

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        return self._write(lambda steps: steps.acquire(claim), timeout)

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return self._write(lambda steps: steps.renew(key, token, ttl=ttl, number=number), timeout)

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        return self._write(lambda steps: steps.release(key, token, late=late), timeout)

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        self._write(lambda steps: steps.abandon(key, token, heard=heard), timeout)

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
            return [again(error) for _ in operations]

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`. Bells are rung by the process that releases, through a pipe beside the file."""
        self._database.check_open()
        try:
            found = os.stat(self._path)
            mode, group = found.st_mode, found.st_gid
        except OSError:
            mode, group = 0o600, -1
        end = self._doorbell.watch(chime(self._namespace, key), bell, mode=mode, group=group)
        self._watches.add(end)

        def unwatch() -> None:
            self._watches.discard(end)
            end()

        return unwatch

    def assurance(self) -> Assurance:
        """See `leased.store`. Opens nothing: the journal mode is told once the file is in use."""
        library = self._database.library
        journal = f"journal mode {self._database.journal}" if self._database.journal else "not opened yet"
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
        """See `leased.store`. Watches end too."""
        self._database.close()
        while self._watches:
            self._watches.pop()()

    def _write(self, work: Callable[[Steps], _T], timeout: float, *, count: int = 1) -> _T:
        """Run work that may write, tell waiters what it freed, and now and then sweep."""
        freed: list[str] = []

        def transaction(connection: Connection, boot_id: str) -> _T:
            steps = self._steps(connection, boot_id)
            answer = work(steps)
            steps.finish()
            self._until_sweep -= count
            if self._until_sweep <= 0:
                steps.sweep(_SWEEP_EVERY - self._until_sweep)
                self._until_sweep = _SWEEP_EVERY
            freed[:] = steps.freed
            return answer

        answer = self._database.write(transaction, Patience(timeout))
        if freed:
            self._doorbell.ring([chime(self._namespace, key) for key in freed])
        return answer

    def _read(self, work: Callable[[Steps], _T], timeout: float) -> _T:
        """Run work that writes nothing."""
        return self._database.read(lambda *place: work(self._steps(*place)), Patience(timeout))

    def _steps(self, connection: Connection, boot_id: str) -> Steps:
        ahead = int(self.offset * SECOND)
        return Steps(
            connection.execute,
            path=self._path,
            namespace=self._namespace,
            boot_id=boot_id,
            now=self._clock.boot() + ahead,
            wall=self._clock.wall() + ahead,
        )


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
            case Abandon(key, token, heard):
                steps.abandon(key, token, heard=heard)
                return None
            case Look(key, token):
                return steps.look(key, token)
    except LeasedError as error:
        return error
