"""Reads answers of HTTP/1.1 from the bytes that arrive, and writes requests. It knows no sockets and no locks."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MOST_HEAD = 65_536
_MOST_BODY = 33_554_432
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n]*)?")
_BODILESS = (204, 304)


class NotHttp(ValueError):
    """What came is no answer of HTTP/1.1, or one that is too long."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered. `keep`: another request may follow on this connection. `location`: where it says to go."""

    status: int
    body: bytes
    keep: bool
    location: str = ""


class Reading:
    """The answer to one request, as it arrives. `answer` is there once it is complete, `begun` once any of it is."""

    __slots__ = ("_body", "_buffer", "_chunked", "_keep", "_left", "_location", "_status", "answer", "begun")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.begun = False
        self._buffer = bytearray()
        self._body = bytearray()
        self._status = 0
        self._keep = True
        self._location = ""
        self._chunked = False
        self._left: int | None = None  # bytes of the body to come; `None` is until the connection ends

    def feed(self, arrived: bytes) -> None:
        """Read on; raises `NotHttp`."""
        if self.answer is not None:
            raise NotHttp("more came than was asked for")
        self.begun = True
        self._buffer += arrived
        while not self._status:
            if not self._read_head():
                return
        if self._chunked:
            self._read_chunks()
        elif self._left is None:
            self._take(len(self._buffer))
        elif len(self._buffer) >= self._left:
            self._take(self._left)
            self._complete()

    def end(self) -> bool:
        """The connection has ended; whether that ends the answer as it should."""
        if self.answer is None and self._status and self._left is None and not self._chunked:
            self._keep = False
            self._complete()
        return self.answer is not None

    def _complete(self) -> None:
        keep = self._keep and not self._buffer
        self.answer = Answer(self._status, bytes(self._body), keep, self._location)

    def _take(self, count: int) -> None:
        if len(self._body) + count > _MOST_BODY:
            raise NotHttp(f"an answer has more than {_MOST_BODY} bytes")
        self._body += self._buffer[:count]
        del self._buffer[:count]

    def _read_head(self) -> bool:
        """Take a head off, which may be that of an interim answer; false while it is not all there."""
        end = self._buffer.find(b"\r\n\r\n", 0, _MOST_HEAD)
        if end < 0:
            if len(self._buffer) >= _MOST_HEAD or not b"HTTP/1.".startswith(bytes(self._buffer[:7])):
                raise NotHttp(f"it begins with {bytes(self._buffer[:20])!r}")
            return False
        first, *lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        status = _STATUS.fullmatch(first)
        if status is None:
            raise NotHttp(f"it begins with {first[:20]!r}")
        code = int(status[2])
        if code == 101:
            raise NotHttp("it changes to another protocol")
        if code < 200:  # another head follows
            return True
        self._read_fields(lines, old=status[1] == b"0")
        if code in _BODILESS:
            self._chunked, self._left = False, 0
        self._status = code
        return True

    def _read_fields(self, lines: list[bytes], *, old: bool) -> None:
        fields: dict[bytes, bytes] = {}
        for line in lines:
            field = _FIELD.fullmatch(line)
            if field is None:
                raise NotHttp(f"it has the header {line[:20]!r}")
            name = field[1].lower()
            fields[name] = b"%b,%b" % (fields[name], field[2]) if name in fields else field[2]
        connection = fields.get(b"connection", b"").lower()
        self._keep = b"keep-alive" in connection if old else b"close" not in connection
        self._location = fields.get(b"location", b"").decode("latin-1")
        coding = fields.get(b"transfer-encoding")
        if coding is not None:
            if coding.lower() != b"chunked":
                raise NotHttp(f"it has the transfer encoding {coding[:20]!r}")
            self._chunked = True
        elif b"content-length" in fields:
            lengths = {length.strip() for length in fields[b"content-length"].split(b",")}
            length = lengths.pop()
            if lengths or not _LENGTH.fullmatch(length) or int(length) > _MOST_BODY:
                raise NotHttp(f"it has the length {fields[b'content-length'][:20]!r}")
            self._left = int(length)

    def _read_chunks(self) -> None:
        while True:
            if self._left is not None:  # in the middle of a chunk, which ends with a line of its own
                if len(self._buffer) < self._left + 2:
                    return
                self._take(self._left)
                if self._buffer[:2] != b"\r\n":
                    raise NotHttp("a chunk has another length than it says")
                del self._buffer[:2]
                self._left = None
            end = self._buffer.find(b"\r\n", 0, _MOST_HEAD)
            if end < 0:
                if len(self._buffer) >= _MOST_HEAD:
                    raise NotHttp("a chunk begins with a line that does not end")
                return
            size = _CHUNK.fullmatch(bytes(self._buffer[:end]))
            if size is None or int(size[1], 16) > _MOST_BODY:
                raise NotHttp(f"a chunk begins with {bytes(self._buffer[:20])!r}")
            if int(size[1], 16):
                del self._buffer[: end + 2]
                self._left = int(size[1], 16)
            else:
                self._read_trailers(end + 2)
                return

    def _read_trailers(self, start: int) -> None:
        """After the last chunk: fields that say nothing to us, up to an empty line."""
        end = start if self._buffer[start : start + 2] == b"\r\n" else self._buffer.find(b"\r\n\r\n", start) + 2
        if end >= start and len(self._buffer) >= end + 2:
            del self._buffer[: end + 2]
            self._complete()
        elif len(self._buffer) >= _MOST_HEAD:
            raise NotHttp("it has trailers that do not end")


class Requests:
    """Writes requests to one service."""

    def __init__(self, authority: str, *, path: str, credential: str | None) -> None:
        self._path = path
        lines = [f"Host: {authority}", "User-Agent: leased", "Accept: application/json, application/problem+json"]
        if credential is not None:
            lines.append(f"Authorization: Bearer {credential}")
        self._fields = "".join(f"{line}\r\n" for line in lines)
        self._posts: dict[str, bytes] = {}

    def get(self, target: str) -> bytes:
        """A request for what this path and query name."""
        return f"GET {self._path}{target} HTTP/1.1\r\n{self._fields}\r\n".encode("ascii")

    def post(self, target: str, body: bytes) -> bytes:
        """A request that sends a JSON object to this path."""
        head = self._posts.get(target)
        if head is None:
            fields = f"{self._fields}Content-Type: application/json\r\nContent-Length: "
            head = self._posts[target] = f"POST {self._path}{target} HTTP/1.1\r\n{fields}".encode("ascii")
        return b"%b%d\r\n\r\n%b" % (head, len(body), body)
