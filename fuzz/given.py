"""What a target is given: bytes, cut into what it needs. The same bytes always give the same."""

from __future__ import annotations

import json
from typing import Any


def text_of(data: bytes) -> str:
    """A text; bytes that are no UTF-8 become what Python makes of them in arguments and file names."""
    return data.decode("utf-8", "surrogateescape")


def parts_of(data: bytes, count: int) -> list[bytes]:
    """So many parts, cut at zero bytes; missing ones are empty."""
    found = data.split(b"\0", count - 1)
    return found + [b""] * (count - len(found))


def object_of(data: bytes) -> dict[str, Any] | None:
    """A JSON object as a program gets it from its reader, or `None` for what is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
