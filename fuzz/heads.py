"""Heads of requests, as the service's own HTTP parser gives them: read strictly."""

from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl

import httptools

from fuzz.given import parts_of
from leased.errors import InvalidRequest
from leased.server.heads import Head, Refused, peer_of, read_query


class _Collected:
    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """As the parser asks."""
        self.headers.append((name.lower(), value))


def check(data: bytes) -> None:
    """Only the service's own refusals are raised; an address comes from where it was configured to come from."""
    raw, query = parts_of(data, 2)
    collected = _Collected()
    with suppress(httptools.HttpParserError):
        httptools.HttpRequestParser(collected).feed_data(b"POST /v1/locks/acquire HTTP/1.1\r\n" + raw + b"\r\n\r\n")
    with suppress(Refused):
        head = Head(collected.headers)
        head.host_name()
        scope: dict[str, Any] = {"client": ("192.0.2.1", 1)}
        assert peer_of(scope, head, hops=0) == "192.0.2.1"
        assert isinstance(peer_of(scope, head, hops=2), str)
        head.check_json()
        assert b"application/json" in head.content_type.lower()
    with suppress(InvalidRequest):
        found = read_query(query, known=("key", "limit"))
        assert set(found) <= {"key", "limit"}
        assert dict(parse_qsl(query.decode(), keep_blank_values=True)) == found
