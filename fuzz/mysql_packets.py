"""What a server answers in the wire protocol of MySQL: a change, or a trouble."""

from contextlib import suppress

from leased.stores._mysql_failures import Trouble
from leased.stores._mysql_packets import HEADER, Answer, length_of, read_change


def check(data: bytes) -> None:
    """Only `Trouble` is raised, and numbers are numbers."""
    with suppress(Trouble):
        assert 0 <= length_of(bytearray(data[:HEADER].ljust(HEADER, b"\0"))) < 2**24
    with suppress(Trouble):
        answer = read_change(data)
        assert isinstance(answer, Answer)
        assert answer.changed >= 0 <= answer.number
