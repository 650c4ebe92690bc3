"""Bodies of requests: strict, and what is read says the same as Python's own reader of JSON."""

import json
from functools import partial
from typing import Any

import msgspec

from leased.errors import InvalidRequest
from leased.server import manage_requests, requests
from leased.server.requests import MAX_DEPTH, Reader

_READERS: list[Reader[Any]] = [
    Reader(kind)
    for kind in (
        requests.AcquireRequest, requests.RenewRequest, requests.ReleaseRequest, requests.AbandonRequest,
        requests.LookRequest, requests.ForceReleaseRequest, requests.BatchRequest,
        manage_requests.CreateCredentialRequest, manage_requests.RevokeCredentialRequest,
        manage_requests.RuleSetRequest, manage_requests.CheckRulesRequest,
    )
]  # fmt: skip


def check(data: bytes) -> None:
    """Only `InvalidRequest` is raised; nothing that two readers understand differently is accepted."""
    for reader in _READERS:
        try:
            request = reader.read(data)
        except InvalidRequest as error:
            assert "token" not in error.message or b"token" in data or "`" not in error.message
            continue
        twins: list[str] = []
        plain = json.loads(data, object_pairs_hook=partial(_once, twins=twins))
        assert not twins
        assert _depth(plain) <= MAX_DEPTH + 1
        assert msgspec.to_builtins(request) == plain


def _once(pairs: list[tuple[str, Any]], *, twins: list[str]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twins.append("twice")
    return found


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, dict | list) else 0
