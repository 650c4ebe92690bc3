"""Bytes from and to the server of statements without rows: numbers of every size, refusals, and what makes no sense."""

import pytest

from leased.stores._mysql_failures import NO_TABLE, Trouble
from leased.stores._mysql_packets import Answer, as_packet, length_of, read_change

OK_END = b"\2\0\0\0"


def test_a_statement_is_one_packet() -> None:
    """Its length in three bytes, the number 0, the command, the text; one that is too long for that is not sent."""
    assert as_packet("COMMIT") == b"\7\0\0\0\3COMMIT"
    assert as_packet("x" * 0x12345)[:5] == b"\x46\x23\1\0\3"
    with pytest.raises(Trouble, match="too long"):
        as_packet("x" * 0xFFFFFE)


@pytest.mark.parametrize("number", [0, 250, 251, 0xFFFF, 0x10000, 0xFFFFFF, 0x1000000, 2**53 - 1])
def test_numbers_of_every_size(number: int) -> None:
    """What changed, and a fencing token, are read as they were written."""
    for first, width in ((b"", 1), (b"\xfc", 2), (b"\xfd", 3), (b"\xfe", 8)):
        if number < (251 if width == 1 else 256**width):
            written = first + number.to_bytes(width, "little")
            assert read_change(b"\0" + written + written + OK_END) == Answer((), number, number)


def test_a_refusal_has_its_number_and_words() -> None:
    """Also without the state that newer servers put before the words."""
    for state in (b"#42S02", b""):
        with pytest.raises(Trouble, match="no such table") as caught:
            read_change(b"\xff" + NO_TABLE.to_bytes(2, "little") + state + b"no such table")
        assert caught.value.number == NO_TABLE
        assert caught.value.answered


@pytest.mark.parametrize("packet", [b"", b"\0", b"\0\1", b"\0\xfe\1\1", b"\0\xfb\1\1", b"\xfbfile", b"\1", b"\xfe"])
def test_what_no_server_says_is_no_answer(packet: bytes) -> None:
    """Neither a success nor a refusal, so that the connection is not used again."""
    with pytest.raises(Trouble) as caught:
        read_change(packet)
    assert not caught.value.answered


def test_an_answer_to_something_else_is_noticed() -> None:
    """The answer has the number after that of the question."""
    assert length_of(bytearray(b"\7\1\0\1")) == 263
    with pytest.raises(Trouble):
        length_of(bytearray(b"\7\0\0\2"))
