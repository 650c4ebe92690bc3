"""Handles as text: what is no such text is refused, and nothing of it is repeated, for it may be a secret."""

import json

from fuzz.given import text_of
from leased.errors import InvalidRequest
from leased.handle import read_dump


def check(data: bytes) -> None:
    """Only `InvalidRequest` is raised; what is accepted is what was written."""
    text = text_of(data)
    try:
        found = read_dump(text)
    except InvalidRequest:
        return
    plain = json.loads(text)
    assert found == {name: plain.get(name) for name in ("key", "token", "owner")}
