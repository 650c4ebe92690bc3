"""The protocol of Redis, version 2, as bytes: commands out, replies in. It opens nothing and waits for nothing."""

from __future__ import annotations

from typing import Any, Protocol


class ServerError(Exception):
    """What the server answered instead of a result. It stands in the place of the reply."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class NotRedis(Exception):
    """What came is no reply in this protocol: something else listens there."""


class Replies(Protocol):
    """Makes replies from what is fed to it."""

    def feed(self, data: bytes, /) -> None:
        """Take what has arrived."""
        ...

    def gets(self) -> Any:
        """The next reply: bytes, a number, a list, `None` or a `ServerError`; `False` while it is not complete.

        Raises `NotRedis`."""
        ...


def bulk(value: bytes) -> bytes:
    """One argument of a command."""
    return b"$%d\r\n%b\r\n" % (len(value), value)


def packed(*arguments: bytes) -> bytes:
    """A whole command."""
    return b"*%d\r\n%b" % (len(arguments), b"".join(map(bulk, arguments)))


def replies() -> Replies:
    """A new reader: that of hiredis where it is installed, else one that is slower."""
    try:
        from hiredis import Reader
    except ImportError:
        return PlainReplies()
    return Reader(protocolError=NotRedis, replyError=ServerError, errors="replace")


class PlainReplies:
    """A reader in Python alone."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    def feed(self, data: bytes, /) -> None:
        """See `Replies`."""
        self._data = self._data[self._at :] + data
        self._at = 0

    def gets(self) -> Any:
        """See `Replies`."""
        began = self._at
        try:
            return self._next()
        except _Incomplete:
            self._at = began
            return False
        except RecursionError:
            raise NotRedis("a reply has lists in each other without end") from None

    def _next(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return ServerError(rest.decode(errors="replace"))
        try:
            number = int(rest)
        except ValueError:
            raise NotRedis(f"a reply begins with {line[:20]!r}") from None
        if kind == b":":
            return number
        if kind == b"$":
            return None if number < 0 else self._bytes(number)
        if kind == b"*":
            return None if number < 0 else [self._next() for _ in range(number)]
        raise NotRedis(f"a reply begins with {line[:20]!r}")

    def _line(self) -> bytes:
        end = self._data.find(b"\r\n", self._at)
        if end < 0:
            if self._at < len(self._data) and self._data[self._at] not in b"+-:$*":
                raise NotRedis(f"a reply begins with {self._data[self._at : self._at + 20]!r}")
            raise _Incomplete
        line, self._at = self._data[self._at : end], end + 2
        return line

    def _bytes(self, number: int) -> bytes:
        if len(self._data) < self._at + number + 2:
            raise _Incomplete
        value, self._at = self._data[self._at : self._at + number], self._at + number + 2
        return value


class _Incomplete(Exception):
    pass
