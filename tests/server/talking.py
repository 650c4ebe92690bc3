"""A plain HTTP client for tests: one request, and what came back."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
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
