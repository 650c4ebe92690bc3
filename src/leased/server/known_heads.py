"""Heads of requests that one client sends again and again: what was read of one holds for the next. It decides nothing.

A client's requests on a connection begin the same but for the length of the body. What is the same, byte for byte,
means the same, so that it need not be read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from leased.server.heads import Head

MOST_HEADS = 8
"""Heads of one connection that are remembered at once."""

LONGEST = 1536
"""Bytes of a head that is remembered: more would let a client take much memory."""

_END = b"\r\n\r\n"
_LENGTH = b"content-length"
_OF_ONE = ("headers", "leased.connection")
_NEVER = frozenset({b"transfer-encoding", b"expect", b"upgrade"})


class KnownHead(NamedTuple):
    """What uvicorn read in a head, without the length of the body; and the head itself, before and after that."""

    before: bytes
    after: bytes
    scope: dict[str, Any]
    fields: list[tuple[bytes, bytes]]
    head: Head


class KnownHeads:
    """Those of one connection, by the first line."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, KnownHead | None] = {}  # none where the head is another one each time

    def find(self, data: bytes) -> tuple[dict[str, Any], bytes] | None:
        """Scope and body, if these bytes are one whole request with such a head, and no more."""
        known = self._known.get(data[: data.find(b"\r\n")])
        if known is None:
            return None
        before, after, same, fields, head = known
        at = len(before)
        end = data.find(b"\r\n", at)
        begin = end + len(after)
        length, body = data[at:end], data[begin:]
        if not data.startswith(before) or data[end:begin] != after or length != b"%d" % len(body):
            return None
        return {**same, "headers": [*fields, (_LENGTH, length)], "leased.head": head}, body

    def remember(self, data: bytes, scope: Mapping[str, Any]) -> None:
        """These bytes were one whole request, of which uvicorn made that scope, after which another one may follow."""
        if scope["method"] != "POST":
            return
        line = data[: data.find(b"\r\n")]
        if line in self._known:
            self._known[line] = None
            return
        end = data.find(_END) + len(_END)
        if end > LONGEST:
            return
        head, fields = data[:end], scope["headers"]
        length = b"%d" % (len(data) - end)
        at = head.lower().find(b"\r\n%b: %b\r\n" % (_LENGTH, length))
        names = {name for name, _ in fields}
        if at < 0 or len(names) != len(fields) or not _NEVER.isdisjoint(names):
            return
        if not head.count(b"\n") == head.count(b"\r\n") == len(fields) + 2:
            return  # a parser that takes other ends of lines may have seen its end elsewhere
        if len(self._known) >= MOST_HEADS:
            del self._known[next(iter(self._known))]
        at += len(b"\r\n%b: " % _LENGTH)
        rest = [field for field in fields if field[0] != _LENGTH]
        same = {name: value for name, value in scope.items() if name not in _OF_ONE}
        self._known[line] = KnownHead(head[:at], head[at + len(length) :], same, rest, Head(rest))
