"""One connection to MySQL or MariaDB for blocking callers: one exchange at a time, each with its own end in time."""

from __future__ import annotations

import contextlib
import io
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from leased.stores._drivers import driver
from leased.stores._mysql_failures import GARBAGE, Trouble, failure, trouble
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


class Answer(NamedTuple):
    """What a statement said: its rows, how many it changed, and the number it handed to `LAST_INSERT_ID`."""

    rows: tuple[tuple[Any, ...], ...]
    changed: int
    number: int


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

    def settimeout(self, seconds: float | None) -> None:
        """The driver's time-outs are for each read: a server that drips could make it last for ever."""

    def sendall(self, data: bytes) -> None:
        """Send all of it in time, or raise `TimeoutError`."""
        self._arm()
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What the driver reads from."""
        return io.BufferedReader(_Reader(self))

    def recv_into(self, buffer: Any) -> int:
        """Read what has come, in time, or raise `TimeoutError`."""
        self._arm()
        return self._socket.recv_into(buffer)

    def fileno(self) -> int:
        """The descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def try_to_send(self, data: bytes) -> None:
        """Send it if that needs no waiting, and is possible at all."""
        with contextlib.suppress(OSError, ValueError):
            self._socket.settimeout(0.0)
            self._socket.send(data)

    def encrypt(self, context: ssl.SSLContext, *, host: str) -> None:
        """Speak TLS from now on."""
        self._arm()
        self._socket = context.wrap_socket(self._socket, server_hostname=host)

    def _arm(self) -> None:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)


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
        self._unasked = select.poll()
        self._unasked.register(timed.fileno(), select.POLLIN)

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

    def idle(self) -> bool:
        """Whether no exchange is open."""
        return not self._asking

    def usable(self) -> bool:
        """Nothing comes unasked while all is well: what can be read is the end, or the news of it."""
        return not self._asking and not self._unasked.poll(0)

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
