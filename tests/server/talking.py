"""A plain HTTP client for tests: one request, and what came back."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 20.0
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (names in small letters) and body; `json` is the body read."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def ask(
    port: int,
    path: str,
    body: Any = None,
    *,
    method: str | None = None,
    headers: Mapping[str, str] = JSON,
    timeout: float = PATIENCE,
) -> Answer:
    """Send one request to a service on this machine, with a body as JSON (or as it is, if it is bytes)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method or ("GET" if body is None else "POST"), path, body=sent, headers=dict(headers))
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


class Caller:
    """A connection on which one request was sent; its answer may be awaited, or the caller may vanish."""

    def __init__(self, port: int, path: str, body: Any, *, headers: Mapping[str, str] = JSON) -> None:
        """Connect and send."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        text = json.dumps(body).encode()
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(text)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + text)

    def answer(self) -> Answer:
        """Wait for the answer, and close."""
        answer = http.client.HTTPResponse(self._socket)
        answer.begin()
        found = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        self._socket.close()
        return found

    def close(self) -> None:
        """Vanish politely."""
        self._socket.close()

    def reset(self) -> None:
        """Vanish with a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def until(condition: Callable[[], object], *, what: str = "it") -> None:
    """Wait until something can be observed; fail after a while."""
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at, f"{what} did not happen"
        time.sleep(0.005)
