"""A few connections to PostgreSQL for callers of one event loop, each call bounded in time. It knows no statements."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from leased.checks import shown
from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.server.registry_silence import Silence
from leased.stores._drivers import driver
from leased.stores._postgres_failures import refused
from leased.targets import hide_secrets

_T = TypeVar("_T")

MAX_CONNECTIONS = 8
_LASTING = ("22", "23", "28", "3D", "3F", "42", "P0")
_NO_TABLE = "42P01"
_AT_REST = 0  # no transaction is open


class Pool:
    """Runs work on a connection. One whose call was cut short is closed, and never used again."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._url = url
        self._name = f"the registry in {hide_secrets(url)}"
        self._timeout = timeout
        self._psycopg = driver("psycopg", extra="postgres")
        self._idle: list[Any] = []
        self._turns = asyncio.Semaphore(MAX_CONNECTIONS)
        self._silence = Silence()
        self._closed = False

    async def run(self, work: Callable[[Any], Awaitable[_T]], *, applied: bool | None) -> _T:
        """What work returns. `applied`: what an answer that did not come says of its effect."""
        if self._closed:
            raise StoreNotUsable(f"{self._name} was closed", hint="connect again")
        began = self._silence.begin()
        task = asyncio.get_running_loop().create_task(self._run(work, applied=applied, began=began))
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout)
            if done:
                return task.result()
            problem = StoreUnavailable(f"{self._name} did not answer within {self._timeout:g} s", applied=applied)
            raise self._silence.failed(problem, began=began)
        finally:
            task.cancel()  # ends quickly: see `_held`
            self._silence.over(began)

    async def close(self) -> None:
        """Close what is idle; what is in use is closed after that."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    async def _run(self, work: Callable[[Any], Awaitable[_T]], *, applied: bool | None, began: float) -> _T:
        async with self._turns:
            connection = await self._connection(began)
            try:
                found = await self._held(connection, work)
                self._silence.ended()
                return found
            except LeasedError:
                self._silence.ended()
                raise
            except self._psycopg.Error as error:
                raise self._failure(error, applied=applied, began=began) from error
            finally:
                if not self._closed and not connection.closed and connection.pgconn.transaction_status == _AT_REST:
                    self._idle.append(connection)
                else:
                    connection.pgconn.finish()

    async def _held(self, connection: Any, work: Callable[[Any], Awaitable[_T]]) -> _T:
        """Do the work. If it is cut short the connection is broken first: else the driver would ask the server to
        cancel, and wait for its answer."""
        task = asyncio.get_running_loop().create_task(_coroutine(work, connection))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            _break(connection)
            with contextlib.suppress(Exception):
                await task
            raise

    async def _connection(self, began: float) -> Any:
        """One that is idle and was not closed at the other end, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not _was_closed_there(connection):
                return connection
            connection.pgconn.finish()
        try:
            return await self._psycopg.AsyncConnection.connect(self._url, autocommit=True, prepare_threshold=None)
        except self._psycopg.OperationalError as error:
            problem = refused(str(error).encode(), name=self._name, password=False)
            raise self._silence.failed(problem, began=began) from error
        except self._psycopg.Error:  # whose text may show the URL whole
            raise StoreNotUsable(
                f"the URL of {self._name} cannot be read", hint="write postgresql://USER@HOST/DATABASE"
            ) from None

    def _failure(self, error: Any, *, applied: bool | None, began: float) -> StoreUnavailable:
        code = error.sqlstate
        if code is None and isinstance(error, self._psycopg.DataError):  # the driver's own: nothing was sent
            self._silence.ended()
            return StoreUnavailable(f"{self._name} can keep no such text: {shown(str(error))}", applied=False)
        if code is None:
            problem = StoreUnavailable(f"{self._name} ended the connection", applied=applied)
            return self._silence.failed(problem, began=began)
        self._silence.ended()
        text = shown(" ".join((error.diag.message_primary or "an error without a text").split()))
        if code == _NO_TABLE:
            return StoreNotUsable(
                f"{self._name} has lost tables: {text}", hint="restore them from a backup, or make a new registry"
            )
        if code.startswith(_LASTING):
            return StoreNotUsable(f"{self._name} cannot be used: {text} ({code})", hint="see docs/service/replicas")
        return StoreUnavailable(f"{self._name} answered: {text} ({code})", applied=False)


async def _coroutine(work: Callable[[Any], Awaitable[_T]], connection: Any) -> _T:
    return await work(connection)


def _was_closed_there(connection: Any) -> bool:
    """Whether something came that nobody has asked for: the end, or why it ends."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _break(connection: Any) -> None:
    """End the connection at once, so that whoever waits for an answer of it is told so."""
    if not connection.closed:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)
