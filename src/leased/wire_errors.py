"""How the lock service tells errors, as problem documents; it reads no bytes and opens nothing."""

from __future__ import annotations

import math
from typing import Any

from leased.errors import (
    AccessDenied,
    InvalidRequest,
    LeasedError,
    LockNotAcquired,
    LockTimeout,
    RateLimited,
    RequestConflict,
    StoreNotUsable,
    StoreUnavailable,
    Unauthenticated,
)
from leased.wire import Body, at_least, write_status

_LONGEST_RETRY_AFTER = 86_400
_ERRORS: dict[str, type[LeasedError]] = {
    kind.code: kind
    for kind in (RequestConflict, Unauthenticated, AccessDenied, RateLimited, StoreUnavailable, StoreNotUsable)
}
_INVALID = ("LOCK_INVALID_REQUEST", "LOCK_KEY_INVALID", "LOCK_TTL_OUT_OF_RANGE")


def write_error(error: LeasedError, *, request_id: str | None) -> Body:
    """A problem document: what went wrong, for programs (`code`) and for people (`detail`, `hint`)."""
    body: Body = {
        "type": "about:blank",
        "title": type(error).__name__,
        "status": error.http_status or 500,
        "code": error.code,
        "errorCode": error.code,
        "detail": error.message,
        "requestId": request_id,
    }
    if error.hint is not None:
        body["hint"] = error.hint
    if isinstance(error, RateLimited):
        body["retryAfter"] = math.ceil(error.retry_after or 0.0)
    if isinstance(error, StoreUnavailable):
        body["applied"] = error.applied
    if isinstance(error, LockNotAcquired):
        body["key"] = error.key
        body["holder"] = None if error.holder is None else write_status(error.holder)
    if isinstance(error, LockTimeout):
        body["timeoutMs"] = at_least(error.timeout)
    return body


def read_error(body: Body, *, status: int) -> LeasedError:
    """The error that a problem document stands for; one that is none is a service that gave no answer."""
    code, detail, hint = body.get("code"), body.get("detail"), body.get("hint")
    message = detail if isinstance(detail, str) else f"the service answered with HTTP status {status}"
    hint = hint if isinstance(hint, str) else None
    if code in _INVALID:
        return InvalidRequest(message, code=str(code), hint=hint)
    if code == RateLimited.code:
        retry_after: Any = body.get("retryAfter")
        known = isinstance(retry_after, int | float) and 0 <= retry_after <= _LONGEST_RETRY_AFTER
        seconds = float(retry_after) if known else 0.0
        return RateLimited(message, retry_after=seconds, hint=hint)
    kind = _ERRORS.get(code) if isinstance(code, str) else None
    if kind is None:
        return StoreUnavailable(message, hint=hint)
    if issubclass(kind, StoreUnavailable):
        applied = body.get("applied")
        return kind(message, applied=applied if isinstance(applied, bool) else None, hint=hint)
    return kind(message, hint=hint)
