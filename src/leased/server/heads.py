"""The head of a request, read strictly: what its headers and its query say. It reads no body and decides nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import parse_qsl

from leased.errors import InvalidRequest, LeasedError

MAX_QUERY = 8 * 1024

OF_BROWSERS = frozenset({b"cookie", b"origin", b"sec-fetch-site", b"leased-csrf"})
"""Headers that count where a browser asks."""

_HOST = re.compile(r"([^:\[\]]+|\[[^\[\]]+\])(?::[0-9]{0,5})?")
_BETWEEN = {**dict.fromkeys(OF_BROWSERS, b","), b"cookie": b";", b"x-forwarded-host": b",", b"x-forwarded-proto": b","}


class Refused(LeasedError):
    """A request that is none for this service; `http_status` says of which kind. Its code is that of a bad request."""

    code = "LOCK_INVALID_REQUEST"

    def __init__(self, status: int, message: str, *, hint: str | None = None, allow: str = "") -> None:
        """`allow`: the methods that the path takes, if it was one of those."""
        super().__init__(message, hint=hint)
        self.status = status
        self.allow = allow


class Head:
    """What counts of a request's headers."""

    __slots__ = ("authorization", "content_type", "forwarded", "host", "length", "more")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Read them; those that may stand only once and stand twice are refused."""
        self.authorization: str | None = None
        self.content_type = b""
        self.host = b""
        self.forwarded = b""
        self.length = 0  # of the body, where that is known
        self.more: dict[bytes, bytes] | None = None  # what only browsers send, and proxies write
        for name, value in headers:
            if name == b"authorization":
                if self.authorization is not None:
                    raise Refused(400, "the request has two Authorization headers")
                self.authorization = value.decode("latin-1")
            elif name == b"content-type":
                self.content_type = value
            elif name == b"content-length":
                self.length = int(value)
            elif name == b"host":
                if self.host:
                    raise Refused(400, "the request has two Host headers")
                self.host = value
            elif name == b"x-forwarded-for":
                self.forwarded = b",".join((self.forwarded, value)) if self.forwarded else value
            elif name in _BETWEEN:
                more = self.more = self.more or {}
                more[name] = more[name] + _BETWEEN[name] + value if name in more else value

    def check_json(self) -> None:
        """Raise `Refused` unless the body says that it is JSON: a web page cannot send that without being asked."""
        kind = self.content_type
        if kind != b"application/json" and kind.partition(b";")[0].strip().lower() != b"application/json":
            raise Refused(415, "the body must be JSON", hint="send Content-Type: application/json")

    def host_name(self) -> str:
        """The name by which the service was called, without a port."""
        return name_in(self.host.decode("latin-1").lower())


def name_in(host: str) -> str:
    """The name of a host without its port. What is no name with a port is given back as it is, and so is no one's."""
    found = _HOST.fullmatch(host)
    return found[1] if found else host


def peer_of(scope: Any, head: Head, *, hops: int) -> str:
    """The address of the caller: of the connection, or as the `hops`-th proxy from the right has written it."""
    client = scope.get("client")
    address = client[0] if client else ""
    if not hops:
        return str(address)
    written = [part.strip() for part in head.forwarded.decode("latin-1").split(",") if part.strip()]
    return written[-hops] if len(written) >= hops else str(address)


def read_query(query: bytes, *, known: Collection[str]) -> dict[str, str]:
    """The parameters of a query; unknown ones, those given twice and text that is no UTF-8 are refused."""
    if not query:
        return {}
    if len(query) > MAX_QUERY:
        raise InvalidRequest(f"the query has {len(query)} bytes; {MAX_QUERY} are allowed")
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=20
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the query cannot be read: {error}") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidRequest("the query names a parameter twice")
    unknown = sorted(found.keys() - set(known))
    if unknown:
        raise InvalidRequest(
            f"the query has the unknown parameter {unknown[0][:40]!r}", hint=f"known are {', '.join(known) or 'none'}"
        )
    return found
