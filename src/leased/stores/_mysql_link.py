"""One connection to MySQL or MariaDB for blocking callers: one exchange at a time, each with its own end in time."""

from __future__ import annotations

import contextlib
import io
import math
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from leased.stores._drivers import driver
from leased.stores._mysql_failures import CUT, CUT_WHILE_SENDING, GARBAGE, Trouble, failure, trouble
from leased.stores._mysql_packets import HEADER, Answer, as_packet, length_of, read_change
from leased.stores._mysql_place import Place

_VARIABLES = {
    "time_zone": "'+00:00'",
    "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "autocommit": "1",
    "innodb_lock_wait_timeout": "1",
    "lock_wait_timeout": "1",
}
_OF_MARIADB = " /*M!100301 , idle_transaction_timeout=2 */"
SETTINGS = (
    f"SET SESSION {', '.join(f'{name}={value}' for name, value in _VARIABLES.items())}{_OF_MARIADB}",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
"""What every connection begins with.

Time is in UTC, so that no zone's daylight saving changes it. Nothing is cut to fit. What waits for somebody's lock is
told so after a second, and asks again: it never runs long after its caller has gone. Rows that are there are locked,
and not the gaps between them: fresh keys do not block each other. A process that is stopped in the middle of a
transaction keeps nobody out for longer than two seconds (MariaDB; MySQL has no such limit).
"""

FAREWELL = b"\x01\x00\x00\x00\x01"
"""The packet that ends a connection; without it the server notes in its log that one was aborted."""


_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_OK_ENOUGH = 512


def open_words(refusal: Callable[[int, str], Exception]) -> dict[bytes, Callable[[Any], Any]]:
    """Ways to sign in that send the password in the clear, each as one that refuses: whoever asks may be anybody."""

    def refuse(_connection: Any) -> Any:
        raise refusal(2059, "the server asks for the password in the clear, on a connection that others may read")

    return dict.fromkeys((b"mysql_clear_password", b"mysql_old_password", b"dialog"), refuse)


class _TimedSocket:
    """A socket on which everything ends at one instant, as a driver sees a socket; its own time-outs do not count."""

    def __init__(self, plain: socket.socket, *, until: float) -> None:
        self.until = until
        self._socket = plain
        self._socket.settimeout(0.0)  # who has to wait asks `_poll`, which costs less than a time-out for each call
        self._encrypted = False
        self._poll = select.poll()
        self._poll.register(plain.fileno(), select.POLLIN)

    def settimeout(self, seconds: float | None) -> None:
        """The driver's time-outs are for each read: a server that drips could make it last for ever."""

    def sendall(self, data: bytes) -> None:
        """Send all of it in time, or raise `TimeoutError`."""
        while True:
            try:
                sent = self._socket.send(data)
            except _NOT_NOW as error:
                self._wait(writing=not isinstance(error, ssl.SSLWantReadError))
                continue
            if sent == len(data):
                return
            data = data[sent:]

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What the driver reads from."""
        return io.BufferedReader(_Reader(self))

    def recv_into(self, buffer: Any) -> int:
        """Read what has come, in time, or raise `TimeoutError`."""
        if not self._encrypted:  # else what was decrypted may be here already
            self._wait()
        while True:
            try:
                return self._socket.recv_into(buffer)
            except _NOT_NOW as error:
                self._wait(writing=isinstance(error, ssl.SSLWantWriteError))

    def fileno(self) -> int:
        """The descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def silent(self) -> bool:
        """Whether there is nothing to read."""
        return not self._poll.poll(0)

    def try_to_send(self, data: bytes) -> None:
        """Send it if that needs no waiting, and is possible at all."""
        with contextlib.suppress(OSError, ValueError):
            self._socket.send(data)

    def encrypt(self, context: ssl.SSLContext, *, host: str) -> None:
        """Speak TLS from now on."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._socket.settimeout(0.0)
        self._encrypted = True

    def _wait(self, *, writing: bool = False) -> None:
        poll = self._poll
        if writing:
            poll = select.poll()
            poll.register(self._socket.fileno(), select.POLLOUT)
        left = self.until - time.monotonic()
        if left <= 0 or not poll.poll(math.ceil(left * 1000.0)):
            raise TimeoutError("timed out")


class _Reader(io.RawIOBase):
    """The reading side of a timed socket."""

    def __init__(self, source: _TimedSocket) -> None:
        self._source = source

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has come."""
        return self._source.recv_into(buffer)


class _Encryption:
    """What the driver takes for an `ssl.SSLContext`, since it wraps the socket itself."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def wrap_socket(self, timed: _TimedSocket, *, server_hostname: str) -> _TimedSocket:
        """The same socket, encrypted."""
        timed.encrypt(self._context, host=server_hostname)
        return timed


class BlockingLink:
    """A signed-in connection; see `leased.stores._pool.Connection`."""

    def __init__(self, connection: Any, timed: _TimedSocket, *, errors: type[Exception]) -> None:
        """`errors` is the class of all that the driver raises."""
        self._connection = connection
        self._errors = errors
        self._timed = timed
        self._asking = False
        self._buffer = bytearray(_OK_ENOUGH)

    async def ask(self, statement: str, *, seconds: float) -> Answer:
        """The answer to one statement within so many seconds, or `Trouble`."""
        self._timed.until = time.monotonic() + seconds
        self._asking = True
        connection = self._connection
        try:
            changed = connection.query(statement)  # what a cursor would do, without one
        except (self._errors, *GARBAGE) as error:
            found = trouble(error)
            self._asking = not found.answered
            raise found from error
        self._asking = False
        return Answer(connection._result.rows or (), changed, connection.insert_id())

    async def change(self, statement: str, *, seconds: float) -> Answer:
        """The same for a statement that has no rows to answer. It is most of what a lock needs, and of what it costs:
        what the driver does for any answer costs more than the rest of it."""
        packet = as_packet(statement)
        self._timed.until = time.monotonic() + seconds
        self._asking = True
        try:
            self._timed.sendall(packet)
        except OSError as error:
            raise Trouble(CUT_WHILE_SENDING, f"the connection ended: {error}") from error
        try:
            answer = read_change(self._packet())
        except OSError as error:
            raise Trouble(CUT, f"no answer came: {error}") from error
        except Trouble as found:
            self._asking = not found.answered
            raise
        self._asking = False
        return answer

    def _packet(self) -> bytes:
        """The one packet of an answer."""
        buffer, have, wanted = self._buffer, 0, HEADER
        while have < wanted:
            if have == len(buffer):
                buffer = buffer + bytearray(wanted - have)  # a long error
            got = self._timed.recv_into(memoryview(buffer)[have:])
            if not got:
                raise ConnectionError("the server closed the connection")
            have += got
            if wanted == HEADER <= have:
                wanted = HEADER + length_of(buffer)
        if have > wanted:
            raise Trouble(0, "it said more than it was asked")
        return bytes(memoryview(buffer)[HEADER:wanted])

    def idle(self) -> bool:
        """Whether no exchange is open."""
        return not self._asking

    def usable(self) -> bool:
        """Nothing comes unasked while all is well: what can be read is the end, or the news of it."""
        return not self._asking and self._timed.silent()

    def close(self) -> None:
        """See `leased.stores._pool.Connection`; with a farewell, if that needs no waiting."""
        if not self._asking:
            self._timed.try_to_send(FAREWELL)
        self._timed.close()


async def open_link(place: Place, *, seconds: float) -> BlockingLink:
    """Connect and sign in within so many seconds; `StoreUnavailable` where that fails."""
    pymysql = driver("pymysql", extra="mysql")
    until = time.monotonic() + seconds
    context = place.tls.context() if place.tls is not None else None
    with contextlib.ExitStack() as undo:
        try:
            timed = _TimedSocket(_dial(place, until=until), until=until)
            undo.callback(timed.close)
            connection = pymysql.connections.Connection(
                host=place.host,
                port=place.port,
                user=place.user,
                password=place.password,
                database=place.database,
                charset="utf8mb4",
                autocommit=True,
                ssl=context,
                ssl_disabled=context is None,
                auth_plugin_map={} if place.private else open_words(pymysql.OperationalError),
                defer_connect=True,
            )
            if context is not None:
                connection.ctx = _Encryption(context)
            connection.connect(timed)
            link = BlockingLink(connection, timed, errors=pymysql.MySQLError)
            for statement in SETTINGS:
                await link.ask(statement, seconds=until - time.monotonic())
        except Trouble as found:
            raise failure(found, place=place.shown, writing=False) from found
        except (pymysql.MySQLError, OSError, *GARBAGE) as error:
            raise failure(trouble(error), place=place.shown, writing=False) from error
        undo.pop_all()
        return link


def _dial(place: Place, *, until: float) -> socket.socket:
    """A connected socket: to the first address of the host that answers in its share of the time."""
    if place.socket is not None:
        return _connected(socket.AF_UNIX, place.socket, until=until)
    refused: OSError = OSError("the name of the host leads nowhere")
    addresses = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    for number, (family, _, _, _, address) in enumerate(addresses):
        share = (until - time.monotonic()) / (len(addresses) - number)
        try:
            found = _connected(family, address, until=time.monotonic() + share)
        except OSError as error:
            refused = error
            continue
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return found
    raise refused


def _connected(family: int, address: Any, *, until: float) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        found.settimeout(left)
        found.connect(address)
    except BaseException:
        found.close()
        raise
    return found
