"""Answers of HTTP/1.1 from the bytes that arrive, and requests as bytes. It knows no sockets and no locks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from leased.stores._drivers import driver

_MOST_HEAD = 65_536
_MOST_BODY = 33_554_432
_BEGIN = b"HTTP/1."
_SHOWN = 200
_ACCEPT = ("Accept: application/json, application/problem+json", "Accept-Encoding: identity")


_raw_decode = json.JSONDecoder().raw_decode


class NotHttp(ValueError):
    """What came is no answer of HTTP/1.1, or one that is too long. `first`: how it begins, where not as HTTP does."""

    def __init__(self, what: str, *, first: bytes = b"") -> None:
        super().__init__(what)
        self.first = first


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered. `keep`: another request may follow on this connection. `location`: where it says to go.
    `date`: the time there, as HTTP writes it, in whole seconds."""

    status: int
    body: bytes
    keep: bool
    location: str = ""
    date: str = ""


@lru_cache(maxsize=1)
def _library() -> Any:
    return driver("httptools", extra="http")


class Reading:
    """The answer to one request, as it arrives. `answer` is there once it is complete, `begun` once any of it is.

    The parser of httptools reads; this keeps what counts, and refuses what is too long or nobody asked for.
    """

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.begun = False
        self._library = _library()
        self._parser: Any = self._library.HttpResponseParser(self)
        self._fields: dict[bytes, bytes] = {}
        self._body = bytearray()
        self._in_body = False
        self._head_size = 0
        self._first = b""
        self._problem: NotHttp | None = None

    def feed(self, arrived: bytes) -> None:
        """Read on; raises `NotHttp`."""
        self._check_incomplete()
        self._first = self._first or arrived[:_SHOWN]
        self.begun = True
        # In pieces, for heads, lines of chunks and trailers have no bounds of their own.
        for begin in range(0, len(arrived), _MOST_HEAD):
            piece = arrived[begin : begin + _MOST_HEAD]
            before = len(self._body)
            self._read(piece)
            self._head_size = 0 if len(self._body) > before else self._head_size + len(piece)
            if self.answer is None and self._head_size > _MOST_HEAD:
                raise NotHttp("it has a head, a line of a chunk or trailers that do not end")

    def _check_incomplete(self) -> None:
        if self.answer is not None:
            raise NotHttp("more came than was asked for")

    def _read(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece)
        except self._library.HttpParserUpgrade:
            raise NotHttp("it changes to another protocol") from None
        except self._library.HttpParserError as error:
            if self._problem is None and self.answer is None:
                strange = not self._first.startswith(_BEGIN[: len(self._first)])
                raise NotHttp(str(error), first=self._first if strange else b"") from None
        if self._problem is not None:
            raise self._problem

    @property
    def status(self) -> int:
        """That of the answer, once its head is there; else 0."""
        return int(self._parser.get_status_code()) if self._in_body else 0

    def take(self) -> bytes:
        """What has arrived of the body and was not taken yet, of an answer that goes on."""
        taken = bytes(self._body)
        self._body.clear()
        return taken

    def end(self) -> bool:
        """The connection has ended; whether that ends the answer as it should."""
        if self.answer is None and self._in_body and not self._framed():
            self._complete(keep=False)
        return self.answer is not None

    def on_message_begin(self) -> None:
        """As the parser asks: an answer begins, perhaps one that nobody asked for."""
        if self.answer is not None:
            self.answer = replace(self.answer, keep=False)
        self._fields.clear()
        self._in_body = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """As the parser asks; what is there twice counts as one with commas."""
        before = self._fields.get(name := name.lower())
        self._fields[name] = value if before is None else b"%b, %b" % (before, value)

    def on_headers_complete(self) -> None:
        """As the parser asks."""
        self._in_body = self._parser.get_status_code() >= 200
        coding = self._fields.get(b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            self._problem = NotHttp(f"it has the transfer encoding {coding[:20]!r}")
        elif int(self._fields.get(b"content-length", b"0")) > _MOST_BODY:
            self._problem = NotHttp(f"it has the length {self._fields[b'content-length'][:20]!r}")

    def on_body(self, part: bytes) -> None:
        """As the parser asks."""
        if self.answer is None:
            self._body += part
            if len(self._body) > _MOST_BODY:
                self._problem = NotHttp(f"it has more than {_MOST_BODY} bytes")

    def on_message_complete(self) -> None:
        """As the parser asks: also after an interim answer, which is followed by another."""
        if self._in_body and self.answer is None:
            self._complete(keep=self._parser.should_keep_alive())

    def _framed(self) -> bool:
        """Whether the answer says itself where it ends."""
        return b"content-length" in self._fields or b"transfer-encoding" in self._fields

    def _complete(self, *, keep: bool) -> None:
        location = self._fields.get(b"location", b"").decode("latin-1")
        date = self._fields.get(b"date", b"").decode("latin-1")
        self.answer = Answer(self._parser.get_status_code(), bytes(self._body), keep, location, date)


class Requests:
    """Writes requests to one service."""

    def __init__(
        self, authority: str, *, path: str = "", credential: str | None = None, fields: Sequence[str] = ()
    ) -> None:
        """`fields` are lines of the head besides."""
        self._path = path
        lines = [f"Host: {authority}", "User-Agent: leased", *_ACCEPT, *fields]
        if credential is not None:
            lines.append(f"Authorization: Bearer {credential}")
        self._fields = "".join(f"{line}\r\n" for line in lines)
        self._posts: dict[str, bytes] = {}

    def get(self, target: str) -> bytes:
        """A request for what this path and query name."""
        return f"GET {self._path}{target} HTTP/1.1\r\n{self._fields}\r\n".encode("ascii")

    def stream(self, target: str) -> bytes:
        """The head of a request whose body goes on while the answer comes: `part` after `part`.

        Unless the connection is to be closed afterwards, servers in Go read such a request to its end before they
        answer.
        """
        how = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
        return f"POST {self._path}{target} HTTP/1.1\r\n{self._fields}{how}\r\n".encode("ascii")

    def post(self, target: str, body: bytes) -> bytes:
        """A request that sends a JSON object to this path."""
        head = self._posts.get(target)
        if head is None:
            fields = f"{self._fields}Content-Type: application/json\r\nContent-Length: "
            head = self._posts[target] = f"POST {self._path}{target} HTTP/1.1\r\n{fields}".encode("ascii")
        return b"%b%d\r\n\r\n%b" % (head, len(body), body)


def read_json(body: bytes) -> Any:
    """The value in a body; `ValueError` or `RecursionError` where there is none. Twice as fast as `json.loads`."""
    text = body.decode().strip()
    value, end = _raw_decode(text)
    if end != len(text):
        raise ValueError("more follows")
    return value


def part(data: bytes) -> bytes:
    """A part of the body of a request that goes on."""
    return b"%x\r\n%b\r\n" % (len(data), data)
