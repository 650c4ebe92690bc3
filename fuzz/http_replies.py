"""Answers of HTTP as they arrive at a client: the same in whatever pieces they come."""

from fuzz.given import parts_of
from leased.stores._http_wire import Answer, NotHttp, Reading


def check(data: bytes) -> None:
    """Only `NotHttp` is raised; where the bytes are cut changes nothing."""
    cut, stream = parts_of(data, 2)
    at = sum(cut) % (len(stream) + 1)
    whole, pieces = _read([stream]), _read([stream[:at], stream[at:]])
    if whole is not None and pieces is not None:
        assert (whole.status, whole.body, whole.location) == (pieces.status, pieces.body, pieces.location)


def _read(arriving: list[bytes]) -> Answer | None:
    reading = Reading()
    try:
        for piece in arriving:
            if piece:
                reading.feed(piece)
    except NotHttp:
        return None
    reading.end()
    assert reading.status == 0 or 200 <= reading.status < 65536
    return reading.answer
