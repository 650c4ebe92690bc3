"""One connection to PostgreSQL, driven below the driver's cursors: bytes out, results in, and a time for all of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from leased.clocks import now
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._drivers import driver
from leased.stores._postgres_failures import STATEMENT_GONE, broken, code_of, cut_off, from_result, refused
from leased.stores._postgres_statements import Statement
from leased.stores._postgres_waiting import Waiting

Values = Sequence[bytes | None]


class Wire:
    """A connection in use by one call at a time. After an exchange that did not end it is not usable."""

    def __init__(self, connection: Any, waiting: Waiting, *, name: str) -> None:
        """`name` is the server as it may be shown."""
        self.connection = connection
        self.prepares = False
        self._answers = waiting.answers(connection)
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

    def idle(self) -> bool:
        """Whether no exchange or transaction is open."""
        open_ = self._exchanging or self._closed
        return not open_ and self.connection.transaction_status == self._idle

    def usable(self) -> bool:
        """Whether it may be used again: it is idle, and the server has said nothing since."""
        return self.idle() and self._answers.silent()

    def close(self) -> None:
        """Close it at once."""
        self._closed = True
        self._answers.close()
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
        connection, answers = self.connection, self._answers
        started = now()
        self._exchanging = True
        try:
            connection.send_query_prepared(statement.name, values, statement.binary, 1)
            if connection.flush():
                await answers.sent(until)
            await answers.ready(until)
            first = connection.get_result()
            if connection.is_busy():  # the commit comes after the result
                await answers.ready(until)
            second = connection.get_result()
            results = [first] if second is None else [first, second, *await self._results(until)]
        except TimeoutError:
            raise cut_off(name=self._name, seconds=now() - started, writes=may_write) from None
        except self._errors as error:
            raise broken(error, name=self._name, writes=may_write) from error
        self._exchanging = False
        if len(results) == 1 and results[0].status in self._good:
            return results[0]
        return (await self._checked([_last(results, self._good)], until=until, writes=may_write))[0]

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
        if known is False:  # the second time: it is prepared and run in one go
            return await self._pipeline([(statement, values)], until=until)
        self._send(statement, values, prepared=known is True)
        return [_last(await self._results(until), self._good)]

    def _send(self, statement: Statement, values: Values, *, prepared: bool) -> None:
        if prepared:
            self.connection.send_query_prepared(statement.name, values, statement.binary, 1)
        else:
            self._seen.setdefault(statement.name, False)
            self.connection.send_query_params(statement.text, values, statement.types, statement.binary, 1)

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
            await self._ready(until)
            result = self.connection.get_result()
            if result is not None:
                return result
        raise self._errors("the answers to a pipeline ended too early")

    async def _results(self, until: float) -> list[Any]:
        """All results of what was sent. The commit of a statement comes after its own result: an error may follow."""
        results: list[Any] = []
        while True:
            await self._ready(until)
            result = self.connection.get_result()
            if result is None:
                return results
            results.append(result)

    async def _ready(self, until: float) -> None:
        """Wait until the next result is there."""
        if self.connection.flush():
            await self._answers.sent(until)
        await self._answers.ready(until)


def _last(results: list[Any], good: set[Any]) -> Any:
    """The one that counts: an error, wherever it came, else the statement's own."""
    return next((result for result in results if result.status not in good), results[0])


@dataclass(frozen=True, slots=True)
class Address:
    """How libpq is told where to connect: one text for each of the hosts of a URL, in the order they are tried in.

    `patience` is what the URL says that one of them may take, in seconds.
    """

    hosts: tuple[str, ...] = field(repr=False)  # with their passwords
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
            if not await waiting.may_go_on(connection.socket, writing=writing, seconds=max(0.0, until - now())):
                raise late
        connection.nonblocking = 1
        return Wire(connection, waiting, name=name)
    except BaseException:
        connection.finish()
        raise
