"""Whoever may listen where a lock service should: proxies, strangers, and services that break in the middle."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

Behaviour = Callable[[str, socket.socket], None]
"""What a peer does about a request, given its first line; it writes to the socket, or closes it."""

ASSURANCE = {
    "exclusive": "primary",
    "earlyLoss": False,
    "durable": "yes",
    "takeover": "clock",
    "fence": "always",
    "clockMargin": 0.02,
    "notes": [],
    "known": True,
}


def answer(body: Any, status: int = 200, *, fields: str = "", length: int | None = None) -> bytes:
    """An answer with a body as JSON, or as it is."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} As Told\r\n{fields}Content-Length: {len(text) if length is None else length}\r\n\r\n"
    return head.encode() + text


CAPABILITIES = answer({"assurance": ASSURANCE})
"""What a service answers that gives `primary`."""


class Peer:
    """Listens on a port of its own; every request is noted by its first line, and treated as the behaviour says."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Peer:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all connections, and listen no more."""
        for ending in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                ending.shutdown(socket.SHUT_RDWR)
            ending.close()
        for thread in self._threads:
            thread.join(10.0)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as reading:
                while first := reading.readline():
                    length = 0
                    while (line := reading.readline()).strip():
                        name, _, value = line.partition(b":")
                        if name.lower() == b"content-length":
                            length = int(value)
                    self.bodies.append(reading.read(length))
                    self.requests.append(first.decode().strip())
                    self._behaviour(self.requests[-1], connection)
        except (OSError, ValueError):
            return
