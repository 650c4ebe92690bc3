"""The protocol as bytes: what is packed is what Redis reads, and the reader in Python reads what hiredis does."""

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.stores._redis_wire import NotRedis, PlainReplies, Replies, ServerError, packed, replies

MESSAGES = (
    b"+OK\r\n",
    b"-NOSCRIPT No matching script\r\n",
    b":1795995457390692\r\n",
    b":-1\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$5\r\na\r\nb\xff\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n-ERR inner\r\n",
)


def read(reader: Replies, pieces: list[bytes]) -> list[Any]:
    """All replies in what is fed piece by piece, errors as their text."""
    found = []
    for piece in pieces:
        reader.feed(piece)
        while (reply := reader.gets()) is not False:
            found.append(reply)
    return [plain(reply) for reply in found]


def plain(reply: Any) -> Any:
    """A reply in which errors can be compared."""
    if isinstance(reply, ServerError):
        return ("error", reply.text)
    return [plain(inner) for inner in reply] if isinstance(reply, list) else reply


@given(st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=6), st.lists(st.integers(1, 7), max_size=20))
def test_both_readers_read_the_same(messages: list[bytes], sizes: list[int]) -> None:
    """However the bytes are cut into pieces, the reader in Python gives what hiredis gives."""
    data, pieces = b"".join(messages), []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    pieces.append(data)
    assert read(PlainReplies(), pieces) == read(replies(), pieces)
    assert len(read(PlainReplies(), pieces)) == len(messages)


@pytest.mark.parametrize("made", [PlainReplies, replies])
@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n", b"SSH-2.0-x\r\n", b"\x16\x03\x01"])
def test_what_is_no_redis_is_noticed(made: Any, data: bytes) -> None:
    """Another protocol is told apart at its first bytes."""
    with pytest.raises(NotRedis):
        read(made(), [data])


def test_without_hiredis_there_is_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """hiredis is used where it is installed, and not needed."""
    assert not isinstance(replies(), PlainReplies)
    monkeypatch.setitem(sys.modules, "hiredis", None)
    assert isinstance(replies(), PlainReplies)


def test_commands_are_packed_as_arrays_of_bytes() -> None:
    """Lengths count bytes."""
    assert packed(b"GET", "ä".encode()) == b"*2\r\n$3\r\nGET\r\n$2\r\n\xc3\xa4\r\n"
