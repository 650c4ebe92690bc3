"""The terms of a claim, of what a request sets. Clients send the same again and again: it is read once."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import msgspec

from leased.errors import InvalidRequest
from leased.model import Terms
from leased.policy import DEFAULT_MAX_HOLD
from leased.server.requests import MAX_WHOLE_METADATA, check_depth

_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=1024)
def terms_of(max_hold: int | None, hold_at_least: int, *, lock_delay: int, held_by: str, metadata: str) -> Terms:
    """The terms that a request sets, in milliseconds."""
    longest = DEFAULT_MAX_HOLD if max_hold is None else max_hold / 1000.0
    return Terms(longest, hold_at_least / 1000.0, lock_delay / 1000.0, held_by, metadata)


def metadata_text(metadata: dict[str, Any]) -> str:
    """Metadata as the store keeps them, or `InvalidRequest` for those that cannot be kept."""
    return _metadata_text(_encode(metadata))


@lru_cache(maxsize=256)  # a client sends the same with each request
def _metadata_text(encoded: bytes) -> str:
    metadata = json.loads(encoded)
    check_depth(metadata)
    try:
        text = json.dumps(metadata, allow_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"metadata cannot be kept: {error}") from None
    if len(text) > MAX_WHOLE_METADATA:
        raise InvalidRequest(f"metadata has {len(text)} bytes as JSON; {MAX_WHOLE_METADATA} are allowed")
    return text
