"""Replies of a Redis server: both readers, in whatever pieces they come, and what the scripts answer."""

from typing import Any

from fuzz.given import parts_of
from leased.stores._redis_wire import NotRedis, PlainReplies, Replies, ServerError, replies

_MOST = 50
_DEEPEST = 50


def check(data: bytes) -> None:
    """Only `NotRedis` is raised; the plain reader reads what the other one does, wherever the bytes are cut."""
    cut, stream = parts_of(data, 2)
    at = sum(cut) % (len(stream) + 1)
    whole, wrong = _read(PlainReplies(), [stream])
    pieces, also_wrong = _read(PlainReplies(), [stream[:at], stream[at:]])
    assert whole[: len(pieces)] == pieces[: len(whole)]
    assert wrong or also_wrong or whole == pieces
    other, refused = _read(replies(), [stream])
    if not wrong and not refused:
        assert whole == other


def _read(reader: Replies, arriving: list[bytes]) -> tuple[list[Any], bool]:
    found: list[Any] = []
    try:
        for piece in arriving:
            reader.feed(piece)
            while len(found) < _MOST and (reply := reader.gets()) is not False:
                found.append(_plain(reply))
    except NotRedis:
        return found, True
    return found, False


def _plain(reply: Any, depth: int = 0) -> Any:
    if isinstance(reply, list):
        return [_plain(one, depth + 1) for one in reply] if depth < _DEEPEST else "deep"
    return f"error {reply.text}" if isinstance(reply, ServerError) else reply
