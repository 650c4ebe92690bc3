"""What goes over the wire to MySQL for a statement that has no rows to answer, and comes back. It does no I/O."""

from __future__ import annotations

from typing import Any, NamedTuple

from leased.stores._mysql_failures import Trouble

HEADER = 4
"""Bytes before each packet: its length in three, and its number in the exchange."""

_QUERY = b"\x03"
_MOST = 0xFFFFFF
_NO_SENSE = "it said what no server says to a statement without rows"
_TOO_LONG = 1153
_LENGTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


class Answer(NamedTuple):
    """What a statement said: its rows, how many it changed, and the number it handed to `LAST_INSERT_ID`."""

    rows: tuple[tuple[Any, ...], ...]
    changed: int
    number: int


def as_packet(statement: str) -> bytes:
    """The statement as it is sent."""
    text = statement.encode("ascii")
    if len(text) + 1 >= _MOST:
        raise Trouble(_TOO_LONG, "the statement is too long")
    return b"%b%b%b" % ((len(text) + 1).to_bytes(HEADER, "little"), _QUERY, text)


def length_of(answer: bytearray) -> int:
    """How long the packet is that begins so; `Trouble` if it cannot be the answer to what was sent."""
    if answer[3] != 1:
        raise Trouble(0, _NO_SENSE)
    return int.from_bytes(answer[:3], "little")


def read_change(packet: bytes) -> Answer:
    """What the whole packet says; `Trouble` for a refusal and for what makes no sense."""
    try:
        if packet[0] == 0:
            changed, place = _number(packet, 1)
            return Answer((), changed, _number(packet, place)[0])
        if packet[0] == 0xFF:
            text = packet[9:] if packet[3:4] == b"#" else packet[3:]
            raise Trouble(int.from_bytes(packet[1:3], "little"), text.decode(errors="replace"))
    except IndexError:
        pass
    raise Trouble(0, _NO_SENSE)


def _number(packet: bytes, place: int) -> tuple[int, int]:
    """The number there, and where it ends."""
    first = packet[place]
    if first < 0xFB:
        return first, place + 1
    end = place + 1 + _LENGTHS.get(first, len(packet))
    if end > len(packet):
        raise IndexError(end)
    return int.from_bytes(packet[place + 1 : end], "little"), end
