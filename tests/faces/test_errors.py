"""The error tree as a table: classes, codes, statuses, what a retry library needs, and messages."""

import inspect

import pytest

import leased
import leased.errors
from leased import (
    AccessDenied,
    InvalidRequest,
    LeaseDeadlineExceeded,
    LeasedError,
    LockDeadlock,
    LockLost,
    LockNotAcquired,
    LockNotHeld,
    LockTimeout,
    RateLimited,
    RequestConflict,
    StaleFencingToken,
    StoreNotUsable,
    StoreUnavailable,
    Unauthenticated,
)

# class, the classes it also is, code, HTTP status, exit status, retryable
TABLE: list[tuple[type[LeasedError], tuple[type[BaseException], ...], str, int | None, int, bool]] = [
    (InvalidRequest, (ValueError,), "LOCK_INVALID_REQUEST", 400, 64, False),
    (RequestConflict, (), "LOCK_REQUEST_CONFLICT", 409, 64, False),
    (Unauthenticated, (PermissionError,), "UNAUTHENTICATED", 401, 77, False),
    (AccessDenied, (PermissionError,), "LOCK_ACCESS_DENIED", 403, 77, False),
    (LockNotAcquired, (), "LOCK_NOT_ACQUIRED", 409, 75, True),
    (LockTimeout, (LockNotAcquired, TimeoutError), "LOCK_TIMEOUT", 409, 75, True),
    (LockDeadlock, (), "LOCK_DEADLOCK", None, 75, False),
    (LockNotHeld, (), "LOCK_NOT_HELD", None, 76, False),
    (LockLost, (), "LOCK_LOST", None, 76, False),
    (LeaseDeadlineExceeded, (LockLost,), "LEASE_DEADLINE_EXCEEDED", None, 76, False),
    (RateLimited, (), "lock_rate_limited", 429, 75, True),
    (StoreUnavailable, (ConnectionError,), "LOCK_STORE_UNAVAILABLE", 503, 69, True),
    (StoreNotUsable, (StoreUnavailable,), "LOCK_STORE_NOT_USABLE", 503, 69, False),
    (StaleFencingToken, (), "STALE_FENCING_TOKEN", 409, 76, False),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].__name__)
def test_the_table_of_errors(
    row: tuple[type[LeasedError], tuple[type[BaseException], ...], str, int | None, int, bool],
) -> None:
    """P2: each class has its code, HTTP and exit status, its built-in ancestors, and says whether to try again."""
    kind, also, code, http_status, exit_status, retryable = row
    error = kind("what happened", hint="what to do")
    assert isinstance(error, LeasedError)
    for ancestor in also:
        assert isinstance(error, ancestor)
    assert (error.code, error.http_status, error.exit_status) == (code, http_status, exit_status)
    assert error.retryable is retryable
    assert (error.message, error.hint) == ("what happened", "what to do")
    assert str(error) == "what happened (what to do)"
    assert str(kind("what happened")) == "what happened"
    assert getattr(leased, kind.__name__) is kind


def test_the_table_is_complete() -> None:
    """P2: no class of the tree is missing from the table, and no two share a code."""
    classes = {kind for _, kind in inspect.getmembers(leased.errors, inspect.isclass) if issubclass(kind, LeasedError)}
    assert classes - {LeasedError} == {row[0] for row in TABLE}
    assert len({row[2] for row in TABLE}) == len(TABLE)


def test_errors_carry_their_data() -> None:
    """The data is in attributes, for programs."""
    holder = leased.Status("k", "held")
    refused = LockNotAcquired("m", key="k", holder=holder)
    assert (refused.key, refused.holder) == ("k", holder)
    late = LockTimeout("m", key="k", holder=holder, timeout=2.5)
    assert (late.key, late.holder, late.timeout) == ("k", holder, 2.5)
    assert LockDeadlock("m", key="k", taken_at="f.py:1").taken_at == "f.py:1"
    for kind in (LockNotHeld, LockLost, LeaseDeadlineExceeded):
        error = kind("m", key="k", reason="expired")
        assert (error.key, error.reason) == ("k", "expired")
    limited = RateLimited("m", retry_after=7.0)
    assert limited.retry_after == 7.0
    assert [StoreUnavailable("m", applied=applied).applied for applied in (None, False, True)] == [None, False, True]
    assert StoreUnavailable("m").applied is None
    assert StoreNotUsable("m").applied is False
    stale = StaleFencingToken("m", fencing_token=1, seen=2)
    assert (stale.fencing_token, stale.seen) == (1, 2)
    assert InvalidRequest("m", code="LOCK_KEY_INVALID").code == "LOCK_KEY_INVALID"


def test_one_line_plugs_them_into_a_retry_library() -> None:
    """P2: `retryable` and `retry_after` are there on every error, so that a predicate needs no list of classes."""
    for kind, *_ in TABLE:
        error = kind("m")
        assert isinstance(error.retryable, bool)
        assert error.retry_after is None or error.retry_after >= 0


def test_a_time_out_is_caught_as_the_built_in_one() -> None:
    """The built-in ancestors are what callers already catch."""
    with pytest.raises(TimeoutError):
        raise LockTimeout("m")
    with pytest.raises(ConnectionError):
        raise StoreNotUsable("m")
    with pytest.raises(PermissionError):
        raise AccessDenied("m")
