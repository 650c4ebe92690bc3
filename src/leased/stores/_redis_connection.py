"""One connection to a Redis server, for blocking callers or in an event loop. It knows bytes and replies, no locks.

The driver connects, also through TLS; then its socket or transport is taken over, for its way of sending and reading
costs more than the server does.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Iterator
from struct import pack
from typing import TYPE_CHECKING, Any, Protocol, cast

from leased.clocks import now
from leased.errors import InvalidRequest, StoreNotUsable, StoreUnavailable
from leased.stores._dial import dial, dial_in_loop, next_step
from leased.stores._drivers import driver
from leased.stores._loops import close_without_loop, read_little
from leased.stores._redis_url import Address, Node
from leased.stores._redis_wire import NotRedis, replies

if TYPE_CHECKING:
    import asyncio

_READ = 65_536
_AT_ONCE = int(socket.MSG_DONTWAIT)
_MOMENT = 0.05
"""Seconds for which `recv` waits by itself."""
_LEAST = 0.001
"""Seconds: what a time-out of 0 would mean is not to wait at all, which is another kind of socket."""
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""Raised where one would have to wait before anything can be sent."""
_CLOSED = "the server closed the connection"
_TOO_MANY = "there were more answers than questions"
_NO_TLS = "rediss:// needs a server port that speaks TLS; for one that does not write redis://"


class Cut(Exception):
    """An exchange ended before all answers were there: `answers` came, and of the others nobody knows if `sent`."""

    def __init__(self, why: str, *, sent: bool, answers: list[Any]) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent
        self.answers = answers


class Connection(Protocol):
    """A connection for one exchange at a time; after one that did not end well it must be closed.

    `stale` is set from outside once the server is known not to be the right one any more.
    """

    stale: bool

    def usable(self) -> bool:
        """See `leased.stores._pool`."""
        ...

    async def exchange(self, data: bytes, *, count: int, seconds: float) -> list[Any]:
        """Send commands and return their `count` answers, or raise `Cut`."""
        ...

    def close(self) -> None:
        """See `leased.stores._pool`."""
        ...


class BlockingConnection:
    """A socket. What it sends it sends at once; what it waits for comes by `recv` within a moment, nearly always, and
    then by `poll`, which is told each time how long. Through TLS only `poll` waits, for a moment has no meaning there.
    """

    __slots__ = ("__weakref__", "_at_once", "_poll", "_replies", "_socket", "_tls", "stale")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        self._at_once = 0 if self._tls else _AT_ONCE
        if self._at_once:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, pack("@ll", 0, int(_MOMENT * 1_000_000)))
        connected.settimeout(None if self._at_once else 0.0)
        self.stale = False
        self._replies = replies()
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)

    def __del__(self) -> None:
        """One that an interrupted caller has lost is closed without a word."""
        self._socket.close()

    def fileno(self) -> int:
        """What to wait for."""
        return self._socket.fileno()

    def usable(self) -> bool:
        """Whether nothing has come: what comes unasked is the end of the connection."""
        return not self.stale and not self._poll.poll(0)

    async def exchange(self, data: bytes, *, count: int, seconds: float) -> list[Any]:
        """See `Connection`."""
        give_up_at = now() + seconds
        answers: list[Any] = []
        sent = 0
        try:
            try:
                sent = self._socket.send(data, self._at_once)
            except _LATER:
                sent = 0
            while sent < len(data):
                sent += self._send(data[sent:], give_up_at)
            if self._at_once and seconds > _MOMENT:
                self._read(answers, 0)
                if len(answers) == count:
                    return answers
            while len(answers) < count:
                if not self._poll.poll(max(give_up_at - now(), 0.0) * 1000.0):
                    raise TimeoutError
                self._read(answers, self._at_once)
            if len(answers) > count:
                answers.clear()  # nobody knows which answers what
                raise ConnectionAbortedError(_TOO_MANY)
        except (OSError, NotRedis) as error:
            raise Cut(_why(error, seconds), sent=sent > 0, answers=answers) from error
        return answers

    def read(self, answers: list[Any]) -> None:
        """Add the replies in what has arrived, without waiting; `OSError` when the connection has ended."""
        self._read(answers, self._at_once)

    def _read(self, answers: list[Any], flags: int) -> None:
        try:
            while arrived := self._socket.recv(_READ, flags):
                self._replies.feed(arrived)
                while (answer := self._replies.gets()) is not False:
                    answers.append(answer)
                if len(arrived) < _READ and not self._tls:  # a TLS socket may keep more where `poll` does not see it
                    return
                flags = self._at_once
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        raise ConnectionResetError(_CLOSED)

    def tell(self, data: bytes, *, seconds: float) -> None:
        """Send what has no answer of its own; `OSError` when that fails."""
        give_up_at = now() + seconds
        while data:
            data = data[self._send(data, give_up_at) :]

    def close(self) -> None:
        """See `leased.stores._pool`."""
        self._socket.close()

    def _send(self, data: bytes, give_up_at: float) -> int:
        """How much of it was sent; nothing while the other side takes nothing."""
        try:
            return self._socket.send(data, self._at_once)
        except _LATER as wait:
            reading = isinstance(wait, ssl.SSLWantReadError)
            self._wait(give_up_at, for_what=select.POLLIN if reading else select.POLLOUT)
            return 0

    def _wait(self, give_up_at: float, *, for_what: int) -> None:
        poll = select.poll()
        poll.register(self._socket, for_what)
        if not poll.poll(max(give_up_at - now(), 0.0) * 1000.0):
            raise TimeoutError


class LoopConnection:
    """A transport of the running event loop, whose protocol this is."""

    def __init__(self, writer: asyncio.StreamWriter, loop: asyncio.AbstractEventLoop) -> None:
        self.stale = False
        self._loop = loop
        self._writer = writer  # kept: one that is collected closes the transport
        self._transport: Any = writer.transport
        self._socket = self._transport.get_extra_info("socket")
        self._poll = select.poll()
        self._poll.register(self._socket.fileno(), select.POLLIN)
        self._replies = replies()
        self._answers: list[Any] = []
        self._wanted = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended: BaseException | None = None
        self._give_up_at = 0.0
        self._timer: asyncio.TimerHandle | None = None  # never later than the exchange that is under way may take
        self._transport.set_protocol(cast("asyncio.Protocol", self))
        read_little(self._transport)

    def usable(self) -> bool:
        """Whether nothing has come: what comes unasked is the end of the connection."""
        if self.stale or self._ended is not None or self._transport.is_closing():
            return False
        return not self._poll.poll(0)

    async def exchange(self, data: bytes, *, count: int, seconds: float) -> list[Any]:
        """See `Connection`."""
        if self._ended is not None:
            raise Cut(_why(self._ended, seconds), sent=False, answers=[])
        self._answers, self._wanted = [], count
        self._waiter = waiter = self._loop.create_future()
        self._give_up_at = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._give_up_at:
            self._set_timer()
        try:
            self._transport.write(data)
            await waiter
            if len(self._answers) > count:
                self._answers.clear()  # nobody knows which answers what
                raise ConnectionAbortedError(_TOO_MANY)
        except (OSError, NotRedis) as error:
            raise Cut(_why(error, seconds), sent=True, answers=self._answers) from error
        finally:
            self._waiter = None
        return self._answers

    def _set_timer(self) -> None:
        """One for all exchanges: it finds out for itself whether the time is over, for most have ended long before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._give_up_at, self._look_at_time)

    def _look_at_time(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._give_up_at:
            self._set_timer()
        else:
            self._fail(TimeoutError())

    def close(self) -> None:
        """See `leased.stores._pool`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._loop.is_closed():
            close_without_loop(self._transport)
        else:
            self._transport.abort()

    def _fail(self, error: BaseException) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def connection_made(self, transport: object) -> None:
        """As asyncio asks of a protocol."""

    def data_received(self, data: bytes) -> None:
        """As asyncio asks of a protocol."""
        try:
            self._replies.feed(data)
            while (answer := self._replies.gets()) is not False:
                self._answers.append(answer)
        except NotRedis as error:
            self._ended = error
            self._fail(error)
            return
        if self._waiter is not None and len(self._answers) >= self._wanted and not self._waiter.done():
            self._waiter.set_result(None)

    def eof_received(self) -> None:
        """As asyncio asks of a protocol."""
        self.connection_lost(None)

    def connection_lost(self, error: BaseException | None) -> None:
        """As asyncio asks of a protocol."""
        self._ended = error if isinstance(error, OSError) else ConnectionResetError(_CLOSED)
        self._fail(self._ended)

    def pause_writing(self) -> None:
        """As asyncio asks of a protocol; what one exchange sends is bounded."""

    def resume_writing(self) -> None:
        """As asyncio asks of a protocol."""


async def connect_blocking(address: Address, node: Node, *, seconds: float) -> BlockingConnection:
    """Connect from a thread that may block. All addresses of the host share the time."""
    with _failing(node, seconds):
        connecting = _of_driver("redis.connection", address, node, seconds=seconds)
        if node.port is None:
            return BlockingConnection(connecting._connect())
        give_up_at = now() + seconds
        dialed = dial(node.host, node.port, give_up_at=give_up_at)
        try:
            _keep_alive(dialed, connecting)
            if address.tls:
                dialed.settimeout(max(give_up_at - now(), _LEAST))
                with _beginning_tls(node):
                    dialed = connecting._wrap_socket_with_ssl(dialed)
            return BlockingConnection(dialed)
        except BaseException:
            dialed.close()
            raise


def _keep_alive(connected: socket.socket, connecting: Any) -> None:
    """How soon a server that has gone without a word is noticed, as the driver would have it."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, bool(connecting.socket_keepalive))
    if connecting.socket_keepalive:
        for name, value in connecting.socket_keepalive_options.items():
            connected.setsockopt(socket.IPPROTO_TCP, name, value)


async def connect_in_loop(address: Address, node: Node, *, seconds: float) -> LoopConnection:
    """Connect from a task of the running loop. All addresses of the host share the time."""
    import asyncio

    with _failing(node, seconds):
        connecting = _of_driver("redis.asyncio.connection", address, node, seconds=seconds)
        give_up_at = now() + seconds
        async with asyncio.timeout(seconds):
            if node.port is None:
                dialed = await _dial_path(node.host)
            else:
                dialed = await dial_in_loop(node.host, node.port, give_up_at=give_up_at)
        try:
            if node.port is not None:
                _keep_alive(dialed, connecting)
            tls = connecting._connection_arguments().get("ssl") if address.tls else None
            with _beginning_tls(node) if tls else contextlib.nullcontext():
                async with asyncio.timeout(give_up_at - now()):
                    _, writer = await asyncio.open_connection(
                        sock=dialed, ssl=tls, server_hostname=node.host if tls else None
                    )
        except BaseException:
            dialed.close()
            raise
        return LoopConnection(writer, asyncio.get_running_loop())


async def _dial_path(path: str) -> socket.socket:
    """A socket to a server on this machine; the driver would begin to talk on it."""
    import asyncio

    dialed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        dialed.settimeout(0.0)
        await asyncio.get_running_loop().sock_connect(dialed, path)
    except BaseException:
        dialed.close()
        raise
    return dialed


@contextlib.contextmanager
def _failing(node: Node, seconds: float) -> Iterator[None]:
    try:
        yield
    except StoreUnavailable:
        raise
    except OSError as error:
        raise StoreUnavailable(
            f"cannot connect to {node}: {_why(error, seconds)}", applied=False, hint=next_step(error)
        ) from error


@contextlib.contextmanager
def _beginning_tls(node: Node) -> Iterator[None]:
    """A port that does not speak TLS closes the connection, or waits for the end of a line that never comes."""
    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError) as error:
        raise StoreUnavailable(f"{node} closed the connection while TLS began", applied=False, hint=_NO_TLS) from error
    except ssl.SSLError as error:
        raise StoreNotUsable(f"no TLS with {node}: {error.reason or error}", hint=_NO_TLS) from error
    except TimeoutError as error:
        raise StoreUnavailable(f"{node} did not begin TLS in time", applied=False, hint=_NO_TLS) from error


def _of_driver(module: str, address: Address, node: Node, *, seconds: float) -> Any:
    found = driver(module, extra="redis")
    kind = found.SSLConnection if address.tls else found.Connection
    place: dict[str, Any] = {"host": node.host, "port": node.port}
    if node.port is None:
        kind, place = found.UnixDomainSocketConnection, {"path": node.host}
    try:
        return kind(
            **place,
            socket_connect_timeout=seconds,
            socket_timeout=seconds,
            driver_info=None,  # it would read its own metadata for every connection, to send what nobody needs
            **address.options,
        )
    except (TypeError, ValueError, driver("redis", extra="redis").RedisError) as error:
        raise InvalidRequest(f"a parameter of {address.shown} is wrong: {error}") from error


def _why(error: BaseException, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:.3g} s"
    if isinstance(error, NotRedis):
        return f"this is no Redis server: {error}"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
