"""Connects sockets: all addresses of a host share the time there is. It knows nothing of what is said on them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from leased.clocks import now

_LEAST = 0.001
"""Seconds: what a time-out of 0 would mean is not to wait at all, which is another kind of socket."""

CHECK_HOST = "check the host in the URL"
NOTHING_THERE = "nothing listens there: start the server, or check host and port of the URL"


def next_step(error: BaseException | None) -> str | None:
    """What to do about a connection that could not be made, where the error tells."""
    if isinstance(error, socket.gaierror):
        return CHECK_HOST
    if isinstance(error, ConnectionRefusedError):
        return NOTHING_THERE
    return None


def dial(host: str, port: int, *, give_up_at: float) -> socket.socket:
    """A socket to the first address that answers, from a thread that may block; one that hangs leaves time for others.

    Finding the addresses is the system's, and cannot be bounded: a name server that hangs takes what time it takes.
    Raises `OSError`.
    """
    with _known_to_nobody():
        found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    problem: OSError = OSError("the host has no address")
    for asked, (family, kind, protocol, _, place) in enumerate(found):
        dialed = socket.socket(family, kind, protocol)
        try:
            dialed.settimeout(max((give_up_at - now()) / (len(found) - asked), _LEAST))
            dialed.connect(place)
            _prepare(dialed)
        except OSError as error:
            dialed.close()
            problem = error
        except BaseException:
            dialed.close()
            raise
        else:
            dialed.settimeout(0.0)
            return dialed
    raise problem


async def dial_in_loop(host: str, port: int, *, give_up_at: float) -> socket.socket:
    """As `dial`, from a task. The loop's own way to try several leaves sockets open when it is cancelled."""
    import asyncio

    loop = asyncio.get_running_loop()
    with _known_to_nobody():
        try:  # a numeric address is no name: the loop would find it in a thread, which then stays
            found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem: OSError = OSError("the host has no address")
    for asked, (family, kind, protocol, _, place) in enumerate(found):
        dialed = socket.socket(family, kind, protocol)
        try:
            dialed.settimeout(0.0)
            async with asyncio.timeout((give_up_at - now()) / (len(found) - asked)):
                await loop.sock_connect(dialed, place)
            _prepare(dialed)
        except OSError as error:
            dialed.close()
            problem = error
        except BaseException:
            dialed.close()
            raise
        else:
            return dialed
    raise problem


@contextlib.contextmanager
def _known_to_nobody() -> Iterator[None]:
    """A text that is no name, such as one with two dots in a row, is one without an address."""
    try:
        yield
    except UnicodeError as error:
        why = "no name server can know this host: labels between dots have 1 to 63 characters"
        raise socket.gaierror(socket.EAI_NONAME, why) from error


def _prepare(connected: socket.socket) -> None:
    """Send at once, and let the system notice a server that has gone without a word."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
