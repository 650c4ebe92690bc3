"""Headers with a fencing token, as the middleware of a guarded service reads them."""

from fuzz.given import parts_of
from leased.errors import InvalidRequest
from leased.fences.http import HEADER, _read


def check(data: bytes) -> None:
    """Only `InvalidRequest` is raised, and a token is a number that was written there once."""
    values = parts_of(data, 1 + data.count(b"\0"))
    try:
        token = _read([(HEADER.lower().encode(), value) for value in values])
    except InvalidRequest:
        return
    assert token is not None
    assert [int(value) for value in values] == [token]
