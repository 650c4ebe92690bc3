"""Every error a caller can meet, in one tree; nothing here does any work.

```
LeasedError
├── InvalidRequest (ValueError)          what was passed cannot work
├── RequestConflict                      a request id was used with other parameters
├── Unauthenticated (PermissionError)    no credential, or not a valid one
├── AccessDenied (PermissionError)       a rule refuses this principal
├── LockNotAcquired                      somebody else holds the key
│   └── LockTimeout (TimeoutError)       ... and still did when `wait` ran out
├── LockDeadlock                         waiting for a block that encloses the caller
├── LockNotHeld                          the handle does not hold the key now
├── LockLost                             the lease ended before the work did
│   └── LeaseDeadlineExceeded            ... at the end of an enforced lease
├── RateLimited                          too many requests; `retry_after` says when
├── StoreUnavailable (ConnectionError)   no answer; `applied` says what is known of the effect
│   └── StoreNotUsable                   this store cannot work here; trying again will not help
└── StaleFencingToken                    a guarded write came from an older lease
```

No message ever holds a secret: a token, a password or an API key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from leased.model import Status


class LeasedError(Exception):
    """The root of all errors raised by this package.

    `code` is stable and meant for programs. `retryable` says whether the same call can succeed later, `retry_after`
    in how many seconds at the earliest (`None`: not known). `hint` is what a person can do, or `None`.
    """

    code: str = "LEASED_ERROR"
    http_status: ClassVar[int | None] = None
    exit_status: ClassVar[int] = 1
    retryable: bool = False
    retry_after: float | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """The message, and the hint where there is one."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidRequest(LeasedError, ValueError):
    """What was passed cannot work: the message names the value, the limit and the next step."""

    code: str = "LOCK_INVALID_REQUEST"
    http_status = 400
    exit_status = 64

    def __init__(self, message: str, *, code: str = "LOCK_INVALID_REQUEST", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class RequestConflict(LeasedError):
    """This request id belongs to a request with other parameters or of another principal."""

    code = "LOCK_REQUEST_CONFLICT"
    http_status = 409
    exit_status = 64


class Unauthenticated(LeasedError, PermissionError):
    """The service asks for a credential, and none or no valid one was sent."""

    code = "UNAUTHENTICATED"
    http_status = 401
    exit_status = 77


class AccessDenied(LeasedError, PermissionError):
    """A rule of the service refuses this principal. It reads the same whether the key is held, free or unknown."""

    code = "LOCK_ACCESS_DENIED"
    http_status = 403
    exit_status = 77


class LockNotAcquired(LeasedError):
    """The key was not granted: the work must not run. `holder` is what anyone may see of who has it (or `None`)."""

    code = "LOCK_NOT_ACQUIRED"
    http_status = 409
    exit_status = 75
    retryable = True

    def __init__(self, message: str, *, key: str = "", holder: Status | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.holder = holder


class LockTimeout(LockNotAcquired, TimeoutError):
    """The key was still not free when `wait` ran out. `timeout` is that wait in seconds."""

    code = "LOCK_TIMEOUT"

    def __init__(
        self,
        message: str,
        *,
        key: str = "",
        holder: Status | None = None,
        timeout: float = 0.0,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, key=key, holder=holder, hint=hint)
        self.timeout = timeout


class LockDeadlock(LeasedError):
    """The caller would wait for a block that encloses it: that wait could never end well. `taken_at` is file:line."""

    code = "LOCK_DEADLOCK"
    exit_status = 75

    def __init__(self, message: str, *, key: str = "", taken_at: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.taken_at = taken_at


class LockNotHeld(LeasedError):
    """This handle does not hold its key now. `reason` says what ended it."""

    code = "LOCK_NOT_HELD"
    exit_status = 76

    def __init__(self, message: str, *, key: str = "", reason: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.reason = reason


class LockLost(LeasedError):
    """The lease ended before the work did: others may have run beside it. `reason` says what ended it."""

    code = "LOCK_LOST"
    exit_status = 76

    def __init__(self, message: str, *, key: str = "", reason: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.reason = reason


class LeaseDeadlineExceeded(LockLost):
    """An enforced lease ran out and its body was interrupted."""

    code = "LEASE_DEADLINE_EXCEEDED"


class RateLimited(LeasedError):
    """Too many requests of this principal or project. `retry_after` is in seconds."""

    code = "lock_rate_limited"
    http_status = 429
    exit_status = 75
    retryable = True

    def __init__(self, message: str, *, retry_after: float = 0.0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class StoreUnavailable(LeasedError, ConnectionError):
    """The store gave no answer. `applied`: `False` it did not happen, `True` it did, `None` nobody knows."""

    code = "LOCK_STORE_UNAVAILABLE"
    http_status = 503
    exit_status = 69
    retryable = True

    def __init__(self, message: str, *, applied: bool | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.applied = applied


class StoreNotUsable(StoreUnavailable):
    """This store cannot work here, and trying again will not help. Nothing was applied."""

    code = "LOCK_STORE_NOT_USABLE"
    retryable = False

    def __init__(self, message: str, *, applied: bool | None = False, hint: str | None = None) -> None:
        super().__init__(message, applied=applied, hint=hint)


class StaleFencingToken(LeasedError):
    """A guarded write carried a lower fencing token than one already seen: its lease is over. Nothing was written."""

    code = "STALE_FENCING_TOKEN"
    http_status = 409
    exit_status = 76

    def __init__(
        self, message: str, *, fencing_token: int | None = None, seen: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.fencing_token = fencing_token
        self.seen = seen
