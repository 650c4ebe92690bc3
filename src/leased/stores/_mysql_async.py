"""One connection to MySQL or MariaDB for an event loop: one exchange at a time, each with its own end in time."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from typing import Any

from leased.errors import StoreUnavailable
from leased.stores._drivers import driver
from leased.stores._loops import close_without_loop
from leased.stores._mysql_failures import CUT, GARBAGE, Trouble, failure, trouble
from leased.stores._mysql_link import FAREWELL, SETTINGS, Answer, open_words
from leased.stores._mysql_place import Place


class AsyncLink:
    """A signed-in connection; see `leased.stores._pool.Connection`."""

    def __init__(self, connection: Any, *, errors: type[Exception]) -> None:
        """`errors` is the class of all that the driver raises."""
        self._connection = connection
        self._errors = errors
        self._transport = connection._transport  # for `abort`, which the driver does not offer
        self._loop = asyncio.get_running_loop()
        self._asking = False
        self._socket = self._transport.get_extra_info("socket")
        self._unasked = select.poll()
        self._unasked.register(self._socket.fileno(), select.POLLIN)

    async def ask(self, statement: str, *, seconds: float) -> Answer:
        """The answer to one statement within so many seconds, or `Trouble`."""
        self._asking = True
        alarm = self._loop.call_later(max(seconds, 0.0), self._transport.abort)
        connection = self._connection
        try:
            changed = await connection.query(statement)  # what a cursor would do, without one
        except (self._errors, *GARBAGE) as error:
            found = trouble(error)
            if self._loop.time() >= alarm.when():
                found = Trouble(CUT, f"there was no answer within {seconds:.3g} s")
            self._asking = not found.answered
            raise found from error
        finally:
            alarm.cancel()
        self._asking = False
        return Answer(connection._result.rows or (), changed, connection.insert_id())

    def usable(self) -> bool:
        """Nothing comes unasked while all is well: what can be read is the end, or the news of it."""
        return not self._asking and not self._transport.is_closing() and not self._unasked.poll(0)

    def close(self) -> None:
        """See `leased.stores._pool.Connection`; with a farewell, if that needs no waiting."""
        if self._loop.is_closed():
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # the server notices now
            close_without_loop(self._transport)
            return
        if not self._asking and not self._transport.is_closing():
            self._transport.write(FAREWELL)
        self._transport.abort()  # `close` would wait, with TLS for the server as well


async def open_async_link(place: Place, *, seconds: float) -> AsyncLink:
    """Connect and sign in within so many seconds; `StoreUnavailable` where that fails."""
    drivers = driver("asyncmy.connection", extra="mysql")
    errors = driver("asyncmy.errors", extra="mysql")
    context = place.tls.context() if place.tls is not None else None
    until = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout_at(until), contextlib.AsyncExitStack() as undo:
            connection = drivers.Connection(
                host=place.host,
                port=place.port,
                unix_socket=place.socket,
                user=place.user,
                password=place.password,
                database=place.database,
                charset="utf8mb4",
                autocommit=True,
                ssl=context,
                auth_plugin_map={} if place.private else open_words(errors.OperationalError),
            )
            undo.callback(connection.close)
            await connection.connect()
            link = AsyncLink(connection, errors=errors.MySQLError)
            for statement in SETTINGS:
                await link.ask(statement, seconds=seconds)
            undo.pop_all()
            return link
    except TimeoutError as error:
        message = f"{place.shown} did not answer within {seconds:.3g} s: there is no connection"
        raise StoreUnavailable(message, applied=False) from error
    except Trouble as found:
        raise failure(found, place=place.shown, writing=False) from found
    except (errors.MySQLError, OSError, *GARBAGE) as error:
        raise failure(trouble(error), place=place.shown, writing=False) from error
