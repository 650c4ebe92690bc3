"""One connection to MySQL or MariaDB for an event loop: one exchange at a time, each with its own end in time."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
from typing import Any

from leased.clocks import now
from leased.errors import StoreUnavailable
from leased.stores._alarm import Alarm
from leased.stores._drivers import driver
from leased.stores._loops import close_without_loop
from leased.stores._mysql_failures import CUT, GARBAGE, NO_WAY, Trouble, failure, trouble
from leased.stores._mysql_link import FAREWELL, SETTINGS, open_words
from leased.stores._mysql_packets import Answer
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
        self._alarm = Alarm(self._transport.abort)
        self._socket = self._transport.get_extra_info("socket")
        self._unasked = select.poll()
        self._unasked.register(self._socket.fileno(), select.POLLIN)

    async def ask(self, statement: str, *, seconds: float) -> Answer:
        """The answer to one statement within so many seconds, or `Trouble`."""
        until = now() + max(seconds, 0.0)
        self._alarm.set(until)
        self._asking = True
        connection = self._connection
        try:
            changed = await connection.query(statement)  # what a cursor would do, without one
        except (self._errors, *GARBAGE) as error:
            found = trouble(error)
            if now() >= until:
                found = Trouble(CUT, f"there was no answer within {seconds:.3g} s")
            self._asking = not found.answered
            raise found from error
        finally:
            self._alarm.rest()
        self._asking = False
        return Answer(connection._result.rows or (), changed, connection.insert_id())

    async def change(self, statement: str, *, seconds: float) -> Answer:
        """The same for a statement that has no rows to answer."""
        return await self.ask(statement, seconds=seconds)

    def idle(self) -> bool:
        """Whether no exchange is open."""
        return not self._asking and not self._transport.is_closing()

    def usable(self) -> bool:
        """Nothing comes unasked while all is well: what can be read is the end, or the news of it."""
        return not self._asking and not self._transport.is_closing() and not self._unasked.poll(0)

    def close(self) -> None:
        """See `leased.stores._pool.Connection`; with a farewell, if that needs no waiting."""
        self._alarm.close()
        if self._loop.is_closed():
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # the server notices now
            close_without_loop(self._transport)
            return
        if not self._asking and not self._transport.is_closing():
            self._transport.write(FAREWELL)
        self._transport.abort()  # `close` would wait, with TLS for the server as well


class _Named:
    """What the driver takes for an `ssl.SSLContext`: it is told the address, and the server has to prove the name."""

    def __init__(self, context: ssl.SSLContext, *, name: str) -> None:
        self._context = context
        self._name = name

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **named: Any) -> ssl.SSLObject:
        """What the event loop asks for."""
        return self._context.wrap_bio(incoming, outgoing, **{**named, "server_hostname": self._name})


async def open_async_link(place: Place, *, seconds: float) -> AsyncLink:
    """Connect and sign in within so many seconds; `StoreUnavailable` where that fails."""
    errors = driver("asyncmy.errors", extra="mysql")
    until = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout_at(until):
            return await _first(place, until=until)
    except TimeoutError as error:
        message = f"{place.shown} did not answer within {seconds:.3g} s: there is no connection"
        raise StoreUnavailable(message, applied=False) from error
    except Trouble as found:
        raise failure(found, place=place.shown, writing=False) from found
    except (errors.MySQLError, OSError, *GARBAGE) as error:
        raise failure(trouble(error), place=place.shown, writing=False) from error


async def _first(place: Place, *, until: float) -> AsyncLink:
    """Signed in at the first address of the host that answers in its share of the time."""
    refusal = driver("asyncmy.errors", extra="mysql").OperationalError
    loop = asyncio.get_running_loop()
    *others, last = await _addresses(place)
    for number, address in enumerate(others):
        share = (until - loop.time()) / (len(others) + 1 - number)
        try:
            async with asyncio.timeout(share):
                return await _sign_in(place, address=address, seconds=share)
        except TimeoutError:
            continue
        except refusal as error:
            if error.args[0] != NO_WAY:
                raise
    return await _sign_in(place, address=last, seconds=until - loop.time())


async def _addresses(place: Place) -> list[str]:
    """The addresses of the host, at least one."""
    if place.socket is not None:
        return [place.host]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
    return addresses if len(addresses) > 1 else [place.host]


async def _sign_in(place: Place, *, address: str, seconds: float) -> AsyncLink:
    drivers = driver("asyncmy.connection", extra="mysql")
    errors = driver("asyncmy.errors", extra="mysql")
    context = place.tls.context() if place.tls is not None else None
    with contextlib.ExitStack() as undo:
        connection = drivers.Connection(
            host=address,
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
        if context is not None:
            connection._ssl_context = _Named(context, name=place.host)
        await connection.connect()
        link = AsyncLink(connection, errors=errors.MySQLError)
        for statement in SETTINGS:
            await link.ask(statement, seconds=seconds)
        undo.pop_all()
        return link
