"""Calls to one connection of the registry's file, on a thread of their own, each bounded in time. It knows no table."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any, TypeVar

from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.server.registry_silence import Silence

_T = TypeVar("_T")

MAX_QUEUED = 1_000
"""Calls that wait for their turn at one connection."""

_MOST_TOGETHER = 100
_PAUSE = 0.01

# What is left of its time when a call begins at the latest, as a part of the whole: for the work, and for the end of a
# write, which waits for readers and keeps new ones waiting meanwhile.
_RESERVE_OF_A_READ = 0.1
_RESERVE_OF_A_WRITE = 0.4
_WAIT_FOR_READERS = 0.3

_SETTLED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL}  # a COMMIT that ends so changed nothing


class _Call:
    """Work, its answer, and until when that may take."""

    __slots__ = ("answer", "deadline", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], Any], *, deadline: float) -> None:
        self.work = work
        self.deadline = deadline
        self.answer: Future[Any] = Future()


class Lane:
    """Runs work on its connection; a caller waits no longer than `timeout` for turn and answer.

    What waits is done together, in one transaction: many callers cost one write to the disk. None of them is failed for
    another: work that raises is undone by itself. `writes`: whether its calls change something; one that had begun and
    gave no answer may have happened then. One that had not begun never is. `connect` opens the file, given the seconds
    that it may wait for others; `check` raises where it is not that file any more.
    """

    def __init__(
        self,
        path: str,
        *,
        connect: Callable[[float], sqlite3.Connection],
        check: Callable[[], None],
        timeout: float,
        writes: bool,
    ) -> None:
        self._path = path
        self._connect = connect
        self._check = check
        self._timeout = timeout
        self._writes = writes
        self._reserve = timeout * (_RESERVE_OF_A_WRITE if writes else _RESERVE_OF_A_READ)
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="leased-registry")
        self._queue: deque[_Call] = deque()
        self._silence = Silence()

    async def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """What work returns; all that it did happens as a whole, or not at all."""
        if len(self._queue) >= MAX_QUEUED:
            raise StoreUnavailable(f"the registry {self._path} is asked too much at once", applied=False)
        began = self._silence.begin()
        try:
            found = await self._asked(work)
        except StoreUnavailable as error:
            self._silence.failed(error, began=began)
            raise
        except LeasedError:
            self._silence.ended()
            raise
        finally:
            self._silence.over(began)
        self._silence.ended()
        return found

    async def _asked(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Let the thread do the work, and wait for its answer."""
        call = _Call(work, deadline=monotonic() + self._timeout)
        answer: asyncio.Future[_T] = asyncio.wrap_future(call.answer)
        answer.add_done_callback(_heard)
        self._queue.append(call)
        self._thread.submit(self._serve)
        try:
            await asyncio.wait({answer}, timeout=self._timeout)
        except asyncio.CancelledError:
            call.answer.cancel()
            raise
        if not answer.done():
            applied = False if call.answer.cancel() or not self._writes else None
            message = f"the registry {self._path} did not answer within {self._timeout:g} s"
            raise StoreUnavailable(message, applied=applied)
        return answer.result()

    async def close(self) -> None:
        """Close the connection when what runs has ended; whoever is stuck at the disk is not waited for."""
        ended = asyncio.wrap_future(self._thread.submit(self._disconnect))
        await asyncio.wait({ended}, timeout=self._timeout)
        self._thread.shutdown(wait=ended.done(), cancel_futures=True)

    def _serve(self) -> None:
        """Do all that waits."""
        while self._queue:
            try:
                connection = self._begun()
            except Exception as error:  # noqa: BLE001 - those who wait are told of it
                self._undo()
                self._turn_away(error)
            else:
                self._do(connection, self._taken())

    def _begun(self) -> sqlite3.Connection:
        """The connection with a transaction, for which it waits as long as somebody in the queue can."""
        self._check()
        wait = max(self._queue[-1].deadline - self._reserve - monotonic(), 0.0)
        if self._connection is None:
            self._connection = self._connect(wait)
        _be_patient(self._connection, wait)
        self._connection.execute("BEGIN IMMEDIATE" if self._writes else "BEGIN")
        if not self._writes:
            self._connection.execute("PRAGMA user_version").fetchone()  # takes the lock, which BEGIN alone does not
        return self._connection

    def _turn_away(self, error: Exception) -> None:
        """Tell those in the queue that there was no transaction; where others had the file, those whose time is up."""
        is_over = self._is_late if _is_busy(error) else lambda _: True
        for _ in range(len(self._queue)):
            call = self._queue.popleft()
            if not is_over(call):
                self._queue.append(call)
            elif call.answer.set_running_or_notify_cancel():
                call.answer.set_exception(failure(self._path, error))
        if self._queue:
            sleep(_PAUSE)  # SQLite does not always wait itself

    def _taken(self) -> Sequence[_Call]:
        """Those who are there and have time left, at most so many."""
        calls: list[_Call] = []
        while self._queue and len(calls) < _MOST_TOGETHER:
            call = self._queue.popleft()
            if not call.answer.set_running_or_notify_cancel():
                continue
            if self._is_late(call):
                message = f"the registry {self._path} is in use, or slow: its turn came too late"
                call.answer.set_exception(StoreUnavailable(message, applied=False))
            else:
                calls.append(call)
        return calls

    def _is_late(self, call: _Call) -> bool:
        return monotonic() > call.deadline - self._reserve

    def _do(self, connection: sqlite3.Connection, calls: Sequence[_Call]) -> None:
        """Run the work of all and make it last; only then tell them."""
        ending = False
        try:
            found = [_result(connection, call.work) for call in calls]
            _be_patient(connection, self._timeout * _WAIT_FOR_READERS)
            ending = self._writes
            connection.execute("COMMIT")
            self._check()  # or what was written may lie in a file that is gone
        except Exception as error:  # noqa: BLE001 - those who wait are told of it
            self._undo()
            applied = None if ending and _code(error) not in _SETTLED else False
            for call in calls:
                call.answer.set_exception(failure(self._path, error, applied=applied))
            return
        for call, (result, problem) in zip(calls, found, strict=True):
            if problem is None:
                call.answer.set_result(result)
            else:
                call.answer.set_exception(failure(self._path, problem))

    def _undo(self) -> None:
        """End a transaction without effect; a connection that cannot is not used again."""
        if self._connection is None or not self._connection.in_transaction:
            return
        try:
            self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _result(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], Any]) -> tuple[Any, Exception | None]:
    """What work returned, or what it raised; then nothing of it is left. Raises what ended the whole transaction."""
    connection.execute("SAVEPOINT one")
    try:
        result, problem = work(connection), None
    except Exception as error:
        if not connection.in_transaction:
            raise
        connection.execute("ROLLBACK TO one")
        result, problem = None, error
    connection.execute("RELEASE one")
    return result, problem


def _heard(answer: asyncio.Future[Any]) -> None:
    """An answer for which nobody waits any more is heard all the same."""
    if not answer.cancelled():
        answer.exception()


def _be_patient(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")


def _code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_busy(error: BaseException) -> bool:
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def failure(path: str, error: Exception, *, applied: bool | None = False) -> Exception:
    """What an error at the registry of this file means to callers; one that is none of these as it is."""
    if isinstance(error, LeasedError):  # one of them is an OSError, too
        return error
    if isinstance(error, OSError):
        problem: Exception = StoreNotUsable(
            f"the registry {path} cannot be opened: {error.strerror}",
            hint="give this user permission to read and write the file and its directory",
        )
    elif isinstance(error, sqlite3.OperationalError):  # busy, full, an error of the disk: it may be better next time
        problem = StoreUnavailable(f"the registry {path} gave no answer: {error}", applied=applied)
    elif isinstance(error, sqlite3.Error):
        problem = StoreNotUsable(f"the registry {path} cannot be used: {error}", hint="restore it from a backup")
    else:
        return error
    problem.__cause__ = error
    return problem
