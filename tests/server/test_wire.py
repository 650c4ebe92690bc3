"""What service and clients say to each other: what was written is read back the same, nonsense is never believed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leased import errors, wire, wire_batch
from leased.errors import LeasedError, RateLimited, StoreUnavailable
from leased.model import (
    Abandon,
    Acquire,
    Assurance,
    Claim,
    Contended,
    Held,
    Lease,
    Look,
    Lost,
    LostReason,
    Operation,
    Release,
    Released,
    Renew,
    Status,
    Terms,
)
from leased.server.requests import (
    AbandonRequest,
    AcquireRequest,
    BatchRequest,
    LookRequest,
    Reader,
    ReleaseRequest,
    RenewRequest,
)
from leased.store import Outcome
from leased.wire_errors import read_error, write_error

WALL = 1_800_000_000.0
TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)
TOKENS = st.text("0123456789abcdef", min_size=32, max_size=32)
MILLISECONDS = st.integers(1, 90 * 86_400_000).map(lambda whole: whole / 1000.0)
NUMBERS = st.integers(1, 2**53 - 1)
REASONS = st.sampled_from(get_args(LostReason))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
TERMS = st.builds(
    Terms,
    max_hold=MILLISECONDS,
    hold_at_least=st.just(0.0) | MILLISECONDS,
    lock_delay=st.just(0.0) | MILLISECONDS,
    held_by=TEXT,
    metadata=st.sampled_from(["{}", '{"host": "h", "pid": 1}']),
)
CLAIMS = st.builds(Claim, TEXT, TOKENS, MILLISECONDS, st.none() | TEXT, st.none() | TEXT, TERMS, st.booleans())
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Acquire, CLAIMS),
    st.builds(Renew, TEXT, TOKENS, MILLISECONDS, st.integers(0, 2**40)),
    st.builds(Release, TEXT, TOKENS, st.booleans()),
    st.builds(Abandon, TEXT, TOKENS),
    st.builds(Look, TEXT, TOKENS),
)
READERS: dict[type, Reader[Any]] = {
    Acquire: Reader(AcquireRequest),
    Renew: Reader(RenewRequest),
    Release: Reader(ReleaseRequest),
    Abandon: Reader(AbandonRequest),
    Look: Reader(LookRequest),
}


def sent(body: Any) -> Any:
    """What arrives of a body."""
    return json.loads(json.dumps(body))


@given(OPERATIONS, st.sampled_from([0.0, 0.0004, 2.5]))
def test_the_service_reads_what_a_client_writes(operation: Operation, wait: float) -> None:
    """Every operation that a client can send is a request that the service takes, with the same members."""
    body = wire.write_operation(operation, wait=wait if isinstance(operation, Acquire) else 0.0)
    request = READERS[type(operation)].read(json.dumps(body).encode())
    if isinstance(operation, Acquire):
        claim = operation.claim
        assert (request.key, request.token, request.ttl_ms) == (claim.key, claim.token, round(claim.ttl * 1000))
        assert (request.late, request.client) == (claim.late, claim.terms.held_by)
        assert bool(request.wait_ms) == (wait > 0)
    else:
        assert (request.key, request.token) == (operation.key, operation.token)


@given(st.lists(OPERATIONS, min_size=1, max_size=5))
def test_the_service_reads_a_batch_that_a_client_writes(operations: list[Operation]) -> None:
    """A batch holds the same operations in the same order."""
    request = Reader(BatchRequest).read(json.dumps(wire_batch.write_batch(operations)).encode())
    assert [type(one).__name__.removesuffix("Member").lower() for one in request.operations] == [
        wire.name_of(one) for one in operations
    ]


def key_of(operation: Operation) -> str:
    return operation.claim.key if isinstance(operation, Acquire) else operation.key


def token_of(operation: Operation) -> str:
    return operation.claim.token if isinstance(operation, Acquire) else operation.token


STATUSES = st.one_of(
    st.builds(Status, TEXT),
    st.builds(
        Status,
        TEXT,
        st.just("held"),
        st.none() | TEXT,
        TEXT,
        MILLISECONDS,
        st.just(WALL),
        MILLISECONDS,
        st.just(WALL + 1),
        NUMBERS,
        st.just(WALL - 1),
        st.dictionaries(st.text(max_size=4), JSON, max_size=3),
        st.none() | st.integers(0, 9),
    ),
)


@given(OPERATIONS, MILLISECONDS, NUMBERS, STATUSES, REASONS, st.booleans())
def test_outcomes_are_read_back_the_same(
    operation: Operation, left: float, number: int, status: Status, reason: Any, flag: bool
) -> None:
    """Every outcome of every operation comes back as it was, in whole milliseconds."""
    key, token = key_of(operation), token_of(operation)
    owner = operation.claim.owner if isinstance(operation, Acquire) else "o"
    held = Held(Lease(key, token, number, left, owner, left, waited=0.001, renewal=3))
    outcomes: dict[type, list[Any]] = {
        Acquire: [held, Contended(status, flag, waited=left), Contended(None)],
        Renew: [held, Lost(reason)],
        Look: [held, Lost(reason)],
        Release: [Released(), Released("not_holder"), Released("expired")],
        Abandon: [None],
    }
    for outcome in outcomes[type(operation)]:
        assert wire.read_outcome(operation, sent(wire.write_outcome(operation, outcome, wall=WALL))) == outcome


@given(STATUSES)
def test_a_status_is_read_back_the_same(status: Status) -> None:
    """M11: all that anyone may see of a key."""
    assert wire.read_status(sent(wire.write_status(status))) == status
    assert wire_batch.read_page(sent(wire_batch.write_page([status]))) == [status]


@given(st.floats(0, 1e7))
def test_times_are_rounded_so_that_nobody_believes_too_long(seconds: float) -> None:
    """M5: what is asked for is rounded up and what is left is rounded down, by less than a millisecond; a time in whole
    milliseconds stays what it is."""
    assert 0 <= wire.at_least(seconds) / 1000.0 - seconds + 1e-6 < 0.001 + 2e-6
    assert 0 <= seconds - wire.at_most(seconds) / 1000.0 + 1e-6 < 0.001 + 2e-6
    whole = round(seconds * 1000) / 1000.0
    assert wire.at_least(whole) == wire.at_most(whole)


RAISED: list[LeasedError] = [
    errors.InvalidRequest("m", code="LOCK_KEY_INVALID", hint="h"),
    errors.InvalidRequest("m", code="LOCK_TTL_OUT_OF_RANGE"),
    errors.InvalidRequest("m"),
    errors.RequestConflict("m"),
    errors.Unauthenticated("m"),
    errors.AccessDenied("m", hint="h"),
    errors.StoreNotUsable("m"),
    *(StoreUnavailable("m", applied=applied, hint="h") for applied in (True, False, None)),
    RateLimited("m", retry_after=7.0),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: f"{error.code}")
def test_errors_are_read_back_the_same(error: LeasedError) -> None:
    """V2: class, code, message, hint, and what belongs to the class, come back from a problem document."""
    body = sent(write_error(error, request_id="r"))
    assert (body["status"], body["code"], body["requestId"]) == (error.http_status, body["errorCode"], "r")
    back = read_error(body, status=body["status"])
    assert (type(back), back.code, back.message, back.hint) == (type(error), error.code, error.message, error.hint)
    assert (back.retry_after, getattr(back, "applied", 0)) == (error.retry_after, getattr(error, "applied", 0))


def test_a_limit_is_never_told_too_short() -> None:
    """R2: whole seconds, rounded up: who waits that long is let through."""
    assert write_error(RateLimited("m", retry_after=1.01), request_id=None)["retryAfter"] == 2


@given(OPERATIONS, JSON)
def test_nonsense_is_no_outcome(operation: Operation, nonsense: Any) -> None:
    """What is no answer of a service is `Unreadable` (or an abandon's flag): never a grant, never contention."""
    body = nonsense if isinstance(nonsense, dict) else {"acquired": nonsense, "held": nonsense, "renewed": nonsense}
    try:
        outcome = wire.read_outcome(operation, body)
    except wire.Unreadable:
        return
    assert not isinstance(outcome, Held)


@given(JSON, st.integers(400, 599))
def test_a_strange_error_is_an_unknown_effect(nonsense: Any, status: int) -> None:
    """O6: a page that is no problem document of ours says nothing of the effect."""
    error = read_error(nonsense if isinstance(nonsense, dict) else {"code": nonsense}, status=status)
    assert isinstance(error, StoreUnavailable)
    assert error.applied is None


@pytest.mark.parametrize("member", ["fencingToken", "leftMs", "ttlMs", "waitedMs", "renewal"])
@pytest.mark.parametrize("value", [None, -1, 1.5, "1", True, [], 2.0])
def test_a_grant_with_a_wrong_number_is_none(member: str, value: Any) -> None:
    """A fencing token or a time that is no whole number is not believed."""
    claim = Claim("k", "t" * 32, 1.0)
    body = wire.write_outcome(Acquire(claim), Held(Lease("k", "t" * 32, 1, 1.0, None, 1.0)), wall=WALL)
    with pytest.raises(wire.Unreadable):
        wire.read_outcome(Acquire(claim), {**body, member: value})


def test_an_assurance_is_read_back_the_same() -> None:
    """S10: what the store behind the service gives is what its clients are told."""
    given_ = Assurance("primary", True, "d", "t", "f", 0.02, ("one", "two"))
    assert wire.read_assurance(sent(wire.write_assurance(given_))) == given_
    for wrong in ({"exclusive": "very"}, {"earlyLoss": 1}, {"notes": "x"}, {"clockMargin": "x"}, {"known": None}):
        with pytest.raises(wire.Unreadable):
            wire.read_assurance({**wire.write_assurance(given_), **wrong})


def test_a_batch_of_outcomes_must_be_complete() -> None:
    """An answer for fewer or more operations than were asked is none; an error stands in its place."""
    looks: list[Operation] = [Look("k", "t" * 32), Look("k", "u" * 32)]
    outcomes: list[Outcome] = [Lost("taken"), StoreUnavailable("m", applied=None)]
    body = sent(wire_batch.write_outcomes(looks, outcomes, wall=WALL))
    lost, error = wire_batch.read_outcomes(looks, body)
    assert lost == Lost("taken")
    assert isinstance(error, StoreUnavailable)
    for wrong in ({"outcomes": body["outcomes"][:1]}, {"outcomes": None}, {"outcomes": [1, 2]}, {}):
        with pytest.raises(wire.Unreadable):
            wire_batch.read_outcomes(looks, wrong)


def test_no_token_is_in_what_others_see() -> None:
    """SEC3: contention, status and errors carry no token."""
    claim = replace(Claim("k", "canary" * 6, 1.0), owner="o")
    status = Status("k", "held", "o", "somebody")
    for body in (
        wire.write_outcome(Acquire(claim), Contended(status), wall=WALL),
        wire.write_status(status),
        write_error(errors.LockNotAcquired("m", key="k", holder=status), request_id=None),
    ):
        assert "canary" not in json.dumps(body)


@given(st.integers(-(10**9), 4 * 10**9), st.integers(0, 999_999))
@example(59, 999_999)
@example(1_796_070_221, 550_000)
@example(-1, 999_999)
def test_an_instant_is_written_to_the_millisecond(second: int, micro: int) -> None:
    """V1: as RFC 3339 writes it, cut and never rounded up."""
    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second, microseconds=micro)
    assert wire.instant(second + micro / 1e6) == f"{found:%Y-%m-%dT%H:%M:%S}.{micro // 1000:03d}Z"
