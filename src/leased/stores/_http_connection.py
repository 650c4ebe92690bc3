"""One connection to a lock service, for blocking callers or in an event loop. It knows bytes and answers, no locks."""

from __future__ import annotations

import contextlib
import os
import select
import ssl
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

from leased.clocks import now
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._dial import dial, dial_in_loop
from leased.stores._http_proxy import Proxy, proxy_to, tunnel, tunnel_in_loop
from leased.stores._http_strangers import NO_TLS, hint_of, said
from leased.stores._http_url import Address
from leased.stores._http_wire import Answer, NotHttp, Reading
from leased.stores._loops import close_without_loop, read_little

if TYPE_CHECKING:
    import asyncio
    import socket

Trust = Callable[[], ssl.SSLContext]
"""What TLS trusts, and what this side shows; asked for each time it connects."""

_READ = 65_536
_LONGEST_REST = 50.0
"""Seconds a connection may rest and be used again: after a minute many balancers close one, or forget it silently."""
_CLOSED = "the service closed the connection"


class Cut(Exception):
    """An exchange ended before its answer was there: whether the request was `sent`, and the answer had `begun`."""

    def __init__(self, why: str, *, sent: bool, begun: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent
        self.begun = begun


class Connection(Protocol):
    """A connection for one exchange at a time; after one that did not end well it must be closed.

    `used` says that an exchange ended well here: then the other side may have closed it since.
    """

    used: bool

    def usable(self) -> bool:
        """See `leased.stores._pool`."""
        ...

    async def exchange(self, request: bytes, *, seconds: float) -> Answer:
        """Send a request and return its answer, or raise `Cut`."""
        ...

    def close(self) -> None:
        """See `leased.stores._pool`."""
        ...


class BlockingConnection:
    """A socket. It never blocks by itself: what waits is `poll`, which is told each time how long."""

    __slots__ = ("__weakref__", "_poll", "_rests_since", "_socket", "used")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self._rests_since = now()
        self.used = False

    def __del__(self) -> None:
        """One that an interrupted caller has lost is closed without a word."""
        self._socket.close()

    def usable(self) -> bool:
        """Whether nothing has come: what comes unasked is the end of the connection."""
        return now() - self._rests_since < _LONGEST_REST and not self._poll.poll(0)

    async def exchange(self, request: bytes, *, seconds: float) -> Answer:
        """See `Connection`."""
        give_up_at = now() + seconds
        reading = Reading()
        sent = False
        try:
            while request:
                written = self._send(request, give_up_at)
                sent = sent or written > 0
                request = request[written:]
            while reading.answer is None:
                if not self._poll.poll(max(give_up_at - now(), 0.0) * 1000.0):
                    raise TimeoutError
                self.read(reading)
        except (OSError, NotHttp) as error:
            raise Cut(_why(error, seconds), sent=sent, begun=reading.begun) from error
        self.used, self._rests_since = True, now()
        return reading.answer

    def fileno(self) -> int:
        """What becomes readable when something arrives."""
        return self._socket.fileno()

    def tell(self, data: bytes, *, seconds: float) -> None:
        """Send this, and wait for no answer; raises `OSError`."""
        give_up_at = now() + seconds
        while data:
            data = data[self._send(data, give_up_at) :]

    def read(self, reading: Reading) -> None:
        """Take in what has arrived, without waiting; `OSError` when the connection ends too early."""
        while reading.answer is None:
            try:
                arrived = self._socket.recv(_READ)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if arrived:
                reading.feed(arrived)
            elif not reading.end():
                raise ConnectionResetError(_CLOSED)

    def close(self) -> None:
        """See `leased.stores._pool`."""
        self._socket.close()

    def shake_hands(self, *, seconds: float) -> None:
        """Begin TLS, in no more than this time."""
        give_up_at = now() + seconds
        while True:
            try:
                cast("ssl.SSLSocket", self._socket).do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wait:
                self._wait(give_up_at, reading=isinstance(wait, ssl.SSLWantReadError))
            else:
                return

    def _send(self, data: bytes, give_up_at: float) -> int:
        """How much of it was sent; nothing while the other side takes nothing."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError) as wait:
            self._wait(give_up_at, reading=isinstance(wait, ssl.SSLWantReadError))
            return 0

    def _wait(self, give_up_at: float, *, reading: bool) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN if reading else select.POLLOUT)
        if not poll.poll(max(give_up_at - now(), 0.0) * 1000.0):
            raise TimeoutError


class LoopConnection:
    """A transport of the running event loop, whose protocol this is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.used = False
        self._loop = loop
        self._rests_since = now()
        self._reading: Reading | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._ended: BaseException | None = None

    def usable(self) -> bool:
        """Whether nothing has come: what comes unasked is the end of the connection."""
        if self._ended is not None or self._transport.is_closing() or now() - self._rests_since >= _LONGEST_REST:
            return False
        return not self._poll.poll(0)

    async def exchange(self, request: bytes, *, seconds: float) -> Answer:
        """See `Connection`."""
        if self._ended is not None:
            raise Cut(_why(self._ended, seconds), sent=False)
        self._reading = reading = Reading()
        self._waiter = waiter = self._loop.create_future()
        timer = self._loop.call_later(max(seconds, 0.0), self._fail, TimeoutError())
        try:
            self._transport.write(request)
            await waiter
        except (OSError, NotHttp) as error:
            raise Cut(_why(error, seconds), sent=True, begun=reading.begun) from error
        finally:
            timer.cancel()
            self._waiter = self._reading = None
        assert reading.answer is not None  # noqa: S101 (that is when the waiter is woken)
        self.used, self._rests_since = True, now()
        return reading.answer

    def close(self) -> None:
        """See `leased.stores._pool`."""
        if self._loop.is_closed():
            close_without_loop(self._transport)
        else:
            self._transport.abort()

    def _fail(self, error: BaseException) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def connection_made(self, transport: Any) -> None:
        """As asyncio asks of a protocol."""
        self._transport = transport
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        read_little(transport)

    def data_received(self, data: bytes) -> None:
        """As asyncio asks of a protocol."""
        if self._reading is None or self._waiter is None:  # unasked
            self._ended = NotHttp("something came that was not asked for", first=b"" if self.used else data[:200])
            return
        try:
            self._reading.feed(data)
        except NotHttp as error:
            self._ended = error
            self._fail(error)
            return
        if self._reading.answer is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def eof_received(self) -> None:
        """As asyncio asks of a protocol."""
        self.connection_lost(None)

    def connection_lost(self, error: BaseException | None) -> None:
        """As asyncio asks of a protocol."""
        self._ended = error if isinstance(error, OSError) else ConnectionResetError(_CLOSED)
        if self._reading is not None and error is None and self._reading.end():
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
            return
        self._fail(self._ended)

    def pause_writing(self) -> None:
        """As asyncio asks of a protocol; what one exchange sends is bounded."""

    def resume_writing(self) -> None:
        """As asyncio asks of a protocol."""


async def connect_blocking(address: Address, trust: Trust, *, seconds: float) -> BlockingConnection:
    """Connect from a thread that may block."""
    give_up_at = now() + seconds
    proxy = proxy_to(address)
    first = proxy or address
    with _failing(address, seconds, proxy=proxy):
        dialed = dial(first.host, first.port, give_up_at=give_up_at)
        try:
            if proxy is not None:
                tunnel(dialed, proxy, address=address, give_up_at=give_up_at)
            if not address.tls:
                return BlockingConnection(dialed)
            dialed = trust().wrap_socket(dialed, server_hostname=address.host, do_handshake_on_connect=False)
            connection = BlockingConnection(dialed)
            connection.shake_hands(seconds=give_up_at - now())
            return connection
        except BaseException:
            dialed.close()
            raise


async def connect_in_loop(address: Address, trust: Trust, *, seconds: float) -> LoopConnection:
    """Connect from a task of the running loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    connection = LoopConnection(loop)
    give_up_at = now() + seconds
    proxy = proxy_to(address)
    first = proxy or address
    with _failing(address, seconds, proxy=proxy):
        async with asyncio.timeout(seconds):
            dialed = await dial_in_loop(first.host, first.port, give_up_at=give_up_at)
            try:
                if proxy is not None:
                    await tunnel_in_loop(dialed, proxy, address=address)
                tls = trust() if address.tls else None
                await loop.create_connection(
                    lambda: cast("asyncio.Protocol", connection),
                    sock=dialed,
                    ssl=tls,
                    server_hostname=address.host if tls else None,
                )
            except BaseException:
                dialed.close()
                raise
        return connection


def trust_of(address: Address) -> Trust:
    """What TLS with that service trusts: the system's authorities, or those in the file that its URL names."""
    made: list[ssl.SSLContext] = []

    def trust() -> ssl.SSLContext:
        if not made:
            made.append(_context(address))
        return made[-1]

    return trust


def _context(address: Address) -> ssl.SSLContext:
    named = ""
    try:
        if address.ca is not None:
            named = f"leased_ca={address.ca}"
        context = ssl.create_default_context(cafile=address.ca)
        if address.cert is not None:
            named = f"leased_cert={address.cert}"
            # Without a password given, the library would ask for one on the terminal.
            context.load_cert_chain(address.cert, address.cert_key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise StoreNotUsable(
            f"{named} cannot be used: {_why(error, 0.0)}", hint="it has to be a PEM file that this process may read"
        ) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


@contextlib.contextmanager
def _failing(address: Address, seconds: float, *, proxy: Proxy | None) -> Iterator[None]:
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise StoreNotUsable(
            f"the certificate of {address} is not trusted: {error.verify_message or error.reason}",
            hint="leased_ca=FILE names the authority of a private one",
        ) from error
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise StoreUnavailable(
            f"{address} closed the connection while TLS began", applied=False, hint=NO_TLS
        ) from error
    except ssl.SSLError as error:
        raise StoreNotUsable(f"no TLS with {address}: {error.reason or error}", hint=NO_TLS) from error
    except StoreUnavailable:
        raise
    except OSError as error:
        way = "" if proxy is None else f" by {proxy}"
        hint = hint_of(error) if proxy is None else "the environment names that proxy; no_proxy=HOST goes past it"
        raise StoreUnavailable(
            f"cannot connect to {address}{way}: {_why(error, seconds)}", applied=False, hint=hint
        ) from error


def _why(error: BaseException, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:.3g} s"
    if isinstance(error, NotHttp):
        return f"this is no answer of HTTP: {said(error)}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, ConnectionError) and error.errno:  # what asyncio says of it names no cause
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
