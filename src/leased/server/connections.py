"""A client's connection, with the patience and the room that it is given; what it says is read by uvicorn."""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from leased.server.known_heads import KnownHeads
from leased.server.requests import MAX_BODY
from leased.server.settings import Settings

MAX_HEAD = 16 * 1024
"""Bytes of a request's line and headers; and of the trailers, or a line between chunks, of a body in chunks."""

_MOST_BEHIND = 8  # requests that stand behind the one that is worked on
_LOOK_EVERY = 0.5
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
_LONG_HEAD = f"the head of the request has more than {MAX_HEAD} bytes: send fewer or shorter headers"
_LONG_TRAILERS = (
    f"trailers or a line between chunks of the request have more than {MAX_HEAD} bytes: send Content-Length instead"
)
_OK = STATUS_LINE[200] + b"content-type: application/json\r\n"
_REFUSAL = (
    b'{"type":"about:blank","title":"Refused","status":%d,"code":"LOCK_INVALID_REQUEST",'
    b'"errorCode":"LOCK_INVALID_REQUEST","detail":"%s","requestId":null}'
)


class Connections:
    """All connections of one server: how many there may be, and which of them has kept it waiting too long."""

    def __init__(self, settings: Settings) -> None:
        self.patience = settings.head_timeout
        self.most = settings.max_connections
        self._open: set[Connection] = set()
        self._looking = False
        self.defaults: list[tuple[bytes, bytes]] | None = None
        self.head = b""

    def __call__(self, **given: Any) -> Connection:
        """A new one, as uvicorn makes them."""
        return Connection(self, **given)

    def add(self, connection: Connection) -> bool:
        """Look after it; false if there are too many."""
        if len(self._open) >= self.most:
            return False
        self._open.add(connection)
        if not self._looking:
            self._looking = True
            connection.loop.call_later(_LOOK_EVERY, self._look, connection.loop)
        return True

    def discard(self, connection: Connection) -> None:
        """It is gone."""
        self._open.discard(connection)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for late in [one for one in self._open if one.deadline < now]:
            late.deadline = math.inf
            late.transport.abort()
        for idle in [one for one in self._open if one.idle_until < now]:
            idle.idle_until = math.inf
            idle.transport.close()
        self._looking = bool(self._open)
        if self._looking:
            loop.call_later(_LOOK_EVERY, self._look, loop)


class _Exchange(RequestResponseCycle):
    """One request and its answer, as uvicorn has it, begun with a request that is whole."""

    disconnected = waiting_for_100_continue = response_started = response_complete = more_body = False
    keep_alive = True
    chunked_encoding = None
    expected_content_length = 0

    def __init__(self, connection: Connection, scope: Any, body: bytes) -> None:
        """It keeps no more of the connection than uvicorn's does."""
        self.scope = scope
        self.transport = connection.transport
        self.flow = connection.flow
        self.logger = connection.logger
        self.access_logger = connection.access_logger
        self.access_log = connection.access_log
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete
        self.body = bytearray(body)
        self.message_event = asyncio.Event()
        self.message_event.set()


class Connection(HttpToolsProtocol):
    """Ended when a request does not come in time, or its head is too long."""

    def __init__(self, all_of_them: Connections, **given: Any) -> None:
        """`given`: what uvicorn passes on."""
        super().__init__(**given)
        self._all = all_of_them
        self._in_head = self._in_request = False
        self._unread = 0  # bytes of a request since the parser told of the last part of it that counts
        self._trailers = 0  # bytes
        self._arrived = 0  # bytes, as many as the head that is being read has at the most
        self._begun = 0  # requests in the bytes that are being read
        self._running: Any = None
        self._heads = KnownHeads()
        self.deadline = math.inf
        self.idle_until = math.inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request; a client that vanishes without a word is noticed."""
        super().connection_made(transport)
        if not self._all.add(self):
            transport.abort()
            return
        self.deadline = self.loop.time() + self._all.patience
        plain = transport.get_extra_info("socket")
        if plain is not None and plain.family != getattr(socket, "AF_UNIX", None):
            with suppress(OSError):
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in _KEEPALIVE:
                    if hasattr(socket, name):
                        plain.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it. Whoever works on a request of it hears of that, also if others stand behind that request."""
        self._all.discard(self)
        super().connection_lost(exc)
        running = self._running
        if running is not None and running is not self.cycle:
            running.disconnected = running.disconnected or not running.response_complete
            running.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Read on. A request that is not whole yet has until its deadline."""
        rests = not self._in_request and not self._works() and not self.transport.is_closing()
        if rests and (known := self._heads.find(data)) is not None:
            self.deadline = self.idle_until = math.inf
            self.cycle = _Exchange(self, *known)
            self._start_asgi_task(self.cycle, self.app)
            return
        self.idle_until = math.inf
        self._begun = 0
        self._arrived = self._arrived + len(data) if self._in_head else len(data)
        if self._in_request:
            self._unread += len(data)
        super().data_received(data)
        if self._in_request and self._unread > MAX_HEAD:
            self.send_400_response(_LONG_HEAD if self._in_head else _LONG_TRAILERS)
        elif self.deadline == math.inf and (self._in_request or not self._works()):  # a blank line begins nothing
            self.deadline = self.loop.time() + self._all.patience
        if len(self.pipeline) > _MOST_BEHIND:
            self.transport.abort()
        elif self.pipeline:
            self.flow.resume_reading()  # or the end of the connection would not be noticed
        elif rests and self._begun == 1 and not self._in_request and self.cycle.keep_alive:
            self._heads.remember(data, self.scope)

    def _works(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        cycle.scope["leased.connection"] = self, cycle
        super()._start_asgi_task(cycle, app)

    def take_body(self, cycle: Any) -> bytearray | None:
        """The body of a request, instead of the message that brings it; `None` where there is more to come, or to say.

        What the client does next is received as if the message had been.
        """
        if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue or len(cycle.body) > MAX_BODY:
            return None
        body: bytearray = cycle.body
        cycle.body = bytearray()
        cycle.message_event.clear()
        return body

    def answer(self, cycle: Any, body: bytes) -> bool:
        """Answer 200 with JSON in one piece, where nothing is in the way; false where uvicorn has to do it.

        It does what two messages of ASGI would, for a fifth of the cost.
        """
        if cycle.response_started or cycle.disconnected or not cycle.keep_alive or self.flow.write_paused:
            return False
        defaults = self.server_state.default_headers
        if defaults is not self._all.defaults:
            self._all.defaults, self._all.head = defaults, _OK + b"".join(b"%s: %s\r\n" % one for one in defaults)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self.transport.write(b"%scontent-length: %d\r\n\r\n%s" % (self._all.head, len(body), body))
        cycle.message_event.set()
        cycle.on_response()
        return True

    def on_response_complete(self) -> None:
        """It may rest now, for a while: as uvicorn does it, but without a timer of its own for each request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.idle_until = self.loop.time() + self.timeout_keep_alive

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = self._in_request = True
        self._begun += 1
        self._unread = self._trailers = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is kept. What stands behind the body is none, whatever it says (RFC 9110, 6.5.1): it is counted."""
        if self._in_head:
            super().on_header(name, value)
            return
        self._trailers += len(name) + len(value) + 4
        if self._trailers > MAX_HEAD:
            self._refuse(_LONG_TRAILERS)

    def on_headers_complete(self) -> None:
        """Its head is there; refused if it is too long."""
        self._in_head = False
        self._unread = 0
        self.deadline = math.inf  # the body has its own time
        length = self._arrived  # at the most
        if length > MAX_HEAD:
            length = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if length > MAX_HEAD:
            self._refuse(_LONG_HEAD)
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """The line before a chunk is over."""
        self._unread = 0

    def on_body(self, body: bytes) -> None:
        """More of its body. Behind another request no more is kept than a body may have."""
        self._unread = 0
        super().on_body(body)
        if self.pipeline and len(self.cycle.body) > MAX_BODY:
            self.transport.abort()

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._in_request = False
        self.deadline = math.inf
        super().on_message_complete()

    def _refuse(self, why: str) -> None:
        """Answer and close, and let the parser read no further; uvicorn's own answer to that comes too late."""
        self.send_400_response(why)
        raise ValueError(why)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, and close."""
        if self.transport.is_closing():
            return
        body = _REFUSAL % (400, msg.encode("ascii", "replace"))
        self.transport.write(
            STATUS_LINE[400]
            + b"content-type: application/problem+json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()
