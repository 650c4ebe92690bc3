"""One connection to PostgreSQL, driven below the driver's cursors: bytes out, results in, and a time for all of it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from leased.clocks import now
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._drivers import driver
from leased.stores._postgres_failures import STATEMENT_GONE, broken, code_of, cut_off, from_result, refused
from leased.stores._postgres_statements import Statement

Values = Sequence[bytes | None]


class Waiting(Protocol):
    """How a face waits for a socket."""

    async def ready(self, socket: int, *, writing: bool, seconds: float) -> bool:
        """Wait until there is something to read (or room to write); false if the time is up."""
        ...

    async def answered(self, poll: select.poll, socket: int, *, seconds: float) -> bool:
        """Wait until there is something to read; `poll` waits for that socket. False if the time is up."""
        ...

    async def begin(self, start: Any, address: bytes, *, seconds: float) -> Any:
        """Run what may look up a name; `TimeoutError` where the time is up and can be kept."""
        ...


class BlockingWaiting:
    """Blocks the thread."""

    async def ready(self, socket: int, *, writing: bool, seconds: float) -> bool:
        """See `Waiting`."""
        poll = select.poll()
        poll.register(socket, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
        return bool(poll.poll(math.ceil(seconds * 1000.0)))

    async def answered(self, poll: select.poll, socket: int, *, seconds: float) -> bool:
        """See `Waiting`."""
        return bool(poll.poll(math.ceil(seconds * 1000.0)))

    async def begin(self, start: Any, address: bytes, *, seconds: float) -> Any:
        """See `Waiting`. How long a name is looked up is for the system to say (`timeout` in resolv.conf)."""
        return start(address)


class LoopWaiting:
    """Suspends the task."""

    async def ready(self, socket: int, *, writing: bool, seconds: float) -> bool:
        """See `Waiting`."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bool] = loop.create_future()
        late = loop.call_later(seconds, _expire, found)
        loop.add_reader(socket, _settle, found)
        if writing:
            loop.add_writer(socket, _settle, found)
        try:
            return await found
        finally:
            late.cancel()
            loop.remove_reader(socket)
            if writing:
                loop.remove_writer(socket)

    async def answered(self, poll: select.poll, socket: int, *, seconds: float) -> bool:
        """See `Waiting`."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bool] = loop.create_future()
        late = loop.call_later(seconds, _expire, found)
        loop.add_reader(socket, _settle, found)
        try:
            return await found
        finally:
            late.cancel()
            loop.remove_reader(socket)

    async def begin(self, start: Any, address: bytes, *, seconds: float) -> Any:
        """See `Waiting`. Looking up a name blocks, so a thread does it."""
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().run_in_executor(None, start, address)


def _settle(found: asyncio.Future[bool]) -> None:
    if not found.done():
        found.set_result(True)


def _expire(found: asyncio.Future[bool]) -> None:
    if not found.done():
        found.set_result(False)


class Wire:
    """A connection in use by one call at a time. After an exchange that did not end it is not usable."""

    def __init__(self, connection: Any, waiting: Waiting, *, name: str) -> None:
        """`name` is the server as it may be shown."""
        self.connection = connection
        self.prepares = False
        self._waiting = waiting
        self._name = name
        self._exchanging = False
        self._closed = False
        self._seen: dict[bytes, bool] = {}  # statements sent before; true: the server has it prepared
        self._pq: Any = driver("psycopg.pq", extra="postgres")
        self._errors: type[Exception] = driver("psycopg", extra="postgres").Error
        self._idle = self._pq.TransactionStatus.IDLE
        self._good = {self._pq.ExecStatus.COMMAND_OK, self._pq.ExecStatus.TUPLES_OK}
        self._synced = self._pq.ExecStatus.PIPELINE_SYNC
        self._skipped = self._pq.ExecStatus.PIPELINE_ABORTED
        self._socket: int = connection.socket
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def usable(self) -> bool:
        """Whether it may be used again: no exchange or transaction is open, and the server has said nothing since."""
        if self._exchanging or self._closed:
            return False
        if self.connection.transaction_status != self._idle:
            return False
        return not self._poll.poll(0)

    def close(self) -> None:
        """Close it at once."""
        self._closed = True
        with contextlib.suppress(Exception):  # a driver's complaint about a broken connection helps nobody here
            self.connection.finish()

    async def ask(self, statement: Statement, values: Values, *, until: float, writes: bool | None = None) -> Any:
        """The result of one statement. `writes`: whether it may have been committed when no answer comes.

        The usual way, a statement that the server has and that it answers with success, is all in here: it is the
        floor of what a lock costs.
        """
        may_write = statement.writes if writes is None else writes
        if not self.prepares or not self._seen.get(statement.name) or self._closed:
            (result,) = await self.ask_all([(statement, values)], until=until, writes=may_write)
            return result
        connection, good = self.connection, self._good
        started = now()
        self._exchanging = True
        try:
            connection.send_query_prepared(statement.name, values, (1,) * len(values), 1)
            if connection.flush():
                await self._read(until)
            results = []
            while True:
                while connection.is_busy():
                    if not await self._waiting.answered(self._poll, self._socket, seconds=max(0.0, until - now())):
                        raise TimeoutError
                    connection.consume_input()
                result = connection.get_result()
                if result is None:
                    break
                results.append(result)
        except TimeoutError:
            raise cut_off(name=self._name, seconds=now() - started, writes=may_write) from None
        except self._errors as error:
            raise broken(error, name=self._name, writes=may_write) from error
        self._exchanging = False
        if len(results) == 1 and results[0].status in good:
            return results[0]
        return (await self._checked([_last(results, good)], until=until, writes=may_write))[0]

    async def ask_all(self, statements: Sequence[tuple[Statement, Values]], *, until: float, writes: bool) -> list[Any]:
        """The results of statements sent in one go. The first that fails is raised, and a transaction is undone."""
        started = now()
        if self._closed:
            raise StoreUnavailable(f"the connection to {self._name} is closed", applied=False)
        self._exchanging = True
        try:
            if len(statements) == 1:
                results = await self._one(*statements[0], until=until)
            else:
                results = await self._pipeline(statements, until=until)
        except TimeoutError:
            raise cut_off(name=self._name, seconds=now() - started, writes=writes) from None
        except self._errors as error:
            raise broken(error, name=self._name, writes=writes) from error
        self._exchanging = False
        return await self._checked(results, until=until, writes=writes)

    async def _checked(self, results: list[Any], *, until: float, writes: bool) -> list[Any]:
        """The results, if all are good."""
        failure: Exception | None = None
        for result in results:
            if result.status not in self._good and failure is None and result.status != self._skipped:
                failure = from_result(result, name=self._name, writes=writes)
                if code_of(result) in STATEMENT_GONE:
                    self.prepares = False
                    self._seen.clear()
        if failure is not None:
            await self._undo(until)
            raise failure
        return results

    async def script(self, text: bytes, *, until: float) -> list[Any]:
        """The results of several statements in one text, as one transaction; a failure is among them."""
        started = now()
        self._exchanging = True
        try:
            self.connection.send_query(text)
            results = await self._results(until)
        except TimeoutError:
            raise cut_off(name=self._name, seconds=now() - started, writes=True) from None
        except self._errors as error:
            raise broken(error, name=self._name, writes=True) from error
        self._exchanging = False
        return results

    @contextlib.contextmanager
    def errors_as(self, told: Callable[[Exception], Exception]) -> Iterator[None]:
        """Errors of the driver as what they mean."""
        try:
            yield
        except self._errors as error:
            raise told(error) from error

    def is_failure(self, result: Any) -> bool:
        """Whether a result is an error."""
        return result.status not in self._good

    async def _undo(self, until: float) -> None:
        """Leave a failed transaction, where there is time for that."""
        connection = self.connection
        if connection.transaction_status == self._pq.TransactionStatus.INERROR:
            self._exchanging = True
            with contextlib.suppress(TimeoutError, self._errors):
                connection.send_query_params(b"ROLLBACK", None)
                await self._results(until)
                self._exchanging = False

    async def _one(self, statement: Statement, values: Values, *, until: float) -> list[Any]:
        known = self._seen.get(statement.name) if self.prepares else None
        if known is False:
            self.connection.send_prepare(statement.name, statement.text, statement.types)
            for result in await self._results(until):
                if result.status not in self._good:
                    return [result]
            self._seen[statement.name] = known = True
        self._send(statement, values, prepared=known is True)
        return [_last(await self._results(until), self._good)]

    def _send(self, statement: Statement, values: Values, *, prepared: bool) -> None:
        binary = (1,) * len(values)
        if prepared:
            self.connection.send_query_prepared(statement.name, values, binary, 1)
        else:
            self._seen.setdefault(statement.name, False)
            self.connection.send_query_params(statement.text, values, statement.types, binary, 1)

    async def _pipeline(self, statements: Sequence[tuple[Statement, Values]], *, until: float) -> list[Any]:
        connection = self.connection
        connection.enter_pipeline_mode()
        sent: list[Statement | None] = []  # `None` for the result that counts, a statement for its preparation
        for statement, values in statements:
            known = self._seen.get(statement.name) if self.prepares else None
            if known is False:
                connection.send_prepare(statement.name, statement.text, statement.types)
                sent.append(statement)
            self._send(statement, values, prepared=known is not None)
            sent.append(None)
        connection.pipeline_sync()
        results: list[Any] = []
        for prepared in [*sent, None]:
            result = await self._next(until)
            if result.status == self._synced:
                break  # the connection ended before all were answered, or this is the end
            if prepared is None:
                results.append(result)
            elif result.status in self._good:
                self._seen[prepared.name] = True
            elif result.status != self._skipped:
                results.append(result)
        connection.exit_pipeline_mode()
        return results

    async def _next(self, until: float) -> Any:
        """The next result in a pipeline, where every result is followed by an end of its own."""
        for _ in range(2):
            await self._read(until)
            result = self.connection.get_result()
            if result is not None:
                return result
        raise self._errors("the answers to a pipeline ended too early")

    async def _results(self, until: float) -> list[Any]:
        """All results of what was sent. The commit of a statement comes after its own result: an error may follow."""
        results: list[Any] = []
        while True:
            await self._read(until)
            result = self.connection.get_result()
            if result is None:
                return results
            results.append(result)

    async def _read(self, until: float) -> None:
        """Wait until the next result is there."""
        connection = self.connection
        while connection.flush():
            await self._wait(until, writing=True)
            connection.consume_input()
        while connection.is_busy():
            await self._wait(until)
            connection.consume_input()

    async def _wait(self, until: float, *, writing: bool = False) -> None:
        if not await self._waiting.ready(self.connection.socket, writing=writing, seconds=max(0.0, until - now())):
            raise TimeoutError


def _last(results: list[Any], good: set[Any]) -> Any:
    """The one that counts: an error, wherever it came, else the statement's own."""
    return next((result for result in results if result.status not in good), results[0])


@dataclass(frozen=True, slots=True)
class Address:
    """How libpq is told where to connect: one text for each of the hosts of a URL, in the order they are tried in.

    `patience` is what the URL says that one of them may take, in seconds.
    """

    hosts: tuple[str, ...]
    patience: float = math.inf


async def connect(address: Address, waiting: Waiting, *, name: str, seconds: float) -> Wire:
    """A new connection to the first host that takes one, in UTF-8, within so many seconds.

    The hosts share the time, so that one that is silent leaves some for the others. Where none takes it, what is told
    is what may pass, if anything may.
    """
    until = now() + seconds
    errors: list[StoreUnavailable] = []
    for count, host in enumerate(address.hosts):
        share = min(max(0.0, until - now()) / (len(address.hosts) - count), address.patience)
        try:
            return await _connect(host, waiting, name=name, seconds=share)
        except StoreUnavailable as error:
            errors.append(error)
    raise next((error for error in errors if not isinstance(error, StoreNotUsable)), errors[0])


async def _connect(host: str, waiting: Waiting, *, name: str, seconds: float) -> Wire:
    until = now() + seconds
    pq: Any = driver("psycopg.pq", extra="postgres")
    psycopg: Any = driver("psycopg", extra="postgres")
    late = StoreUnavailable(f"{name} took no connection within {seconds:.3g} s", applied=False)
    try:
        connection = await waiting.begin(pq.PGconn.connect_start, host.encode(), seconds=seconds)
    except TimeoutError:
        raise late from None
    except psycopg.Error as error:
        raise refused(str(error).encode(), name=name, password=False) from None
    try:
        while True:
            step = pq.PollingStatus.FAILED
            if connection.status != pq.ConnStatus.BAD:
                step = connection.connect_poll()
            if step == pq.PollingStatus.OK:
                break
            if step == pq.PollingStatus.FAILED:
                raise refused(connection.error_message, name=name, password=bool(connection.needs_password))
            writing = step == pq.PollingStatus.WRITING
            if not await waiting.ready(connection.socket, writing=writing, seconds=max(0.0, until - now())):
                raise late
        connection.nonblocking = 1
        return Wire(connection, waiting, name=name)
    except BaseException:
        connection.finish()
        raise
