"""The application without a socket: requests as a server would hand them over, whose clients vanish when told to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from leased.server.app import App
from leased.server.calls import Message


class Conversation:
    """One request and its answer. As with a real server, what is said to a client who has gone is lost without a word,
    and that he has gone can be seen from the turn on in which he went."""

    def __init__(self, app: App, path: str, body: Any, *, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self._app = app
        self._path = path.encode()
        self.asked = body
        self._body = json.dumps(body).encode()
        self._headers = headers
        self._read = False
        self._came = asyncio.Event()
        self.gone = False
        self.status: int | None = None
        self.answer: Any = None
        self.over = False

    def vanish(self) -> None:
        """The client goes: before the answer, or too late."""
        if not self.over:
            self.gone = True
            self._came.set()

    async def run(self) -> None:
        """Let the application serve it."""
        scope = {
            "type": "http",
            "method": "POST",
            "path": self._path.decode(),
            "raw_path": self._path,
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), *self._headers],
        }
        try:
            await self._app(scope, self._receive, self._send)
        finally:
            self.over = True

    async def _receive(self) -> Message:
        if not self._read and not self.gone:
            self._read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        if not self.over:
            await self._came.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self.gone:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.answer = json.loads(message["body"])
            self.over = True
            self._came.set()
