"""Whatever JSON an answer holds, it is an outcome that the contract knows, or a `LeasedError`, and nothing else."""

import json
import math
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leased.errors import LeasedError
from leased.model import (
    Abandon,
    Acquire,
    Claim,
    Contended,
    Held,
    Look,
    Lost,
    Operation,
    Release,
    Released,
    Renew,
    Status,
)
from leased.stores._http_answers import understand
from leased.stores._http_names import Names
from leased.stores._http_url import Address
from leased.stores._http_wire import Answer
from leased.wire import read_forced, read_status, write_outcome
from leased.wire_batch import read_outcomes, read_page

ADDRESS = Address(host="h", port=1, tls=False, path="", shown="http://h:1")
TOKEN = "0123456789abcdef"
OPERATIONS: list[Operation] = [
    Acquire(Claim("key", TOKEN, 30.0, owner="run")),
    Renew("key", TOKEN, 30.0, 1),
    Look("key", TOKEN),
    Release("key", TOKEN),
    Abandon("key", TOKEN),
]
NAMES = Names("staging")
MEMBERS = [
    "acquired", "renewed", "held", "released", "abandoned", "key", "token", "owner", "fencingToken", "ttlMs", "leftMs",
    "waitedMs", "renewal", "holder", "ended", "reason", "lostReason", "code", "detail", "hint", "retryAfter", "applied",
    "status", "state", "heldBy", "expiresInMs", "expiresAt", "freeInMs", "freeAt", "acquiredAt", "metadata", "waiters",
    "outcomes", "locks",
]  # fmt: skip
WORDS = ["", "key", "staging::key", TOKEN, "run", "held", "free", "closed", "expired", "taken", "not_holder"]
WORDS += ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999Z", "2026-01-01T00:00:00Z", "LOCK_KEY_INVALID"]
WORDS += ["LOCK_STORE_UNAVAILABLE", "LOCK_STORE_NOT_USABLE", "lock_rate_limited", "UNAUTHENTICATED", "\ud800"]
PLAIN = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 30_000, 2**53, 2**64, 10**400])
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=5)
)
JSON = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=8),
    max_leaves=20,
)
ODD = st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=3)
GRANT = {"key": "staging::key", "token": TOKEN, "owner": "run", "fencingToken": 7, "ttlMs": 30_000, "leftMs": 30_000}
GRANT |= {"waitedMs": 0, "renewal": 0}
SEEN = {"key": "staging::key", "state": "held", "owner": "run", "heldBy": "", "expiresInMs": 1, "metadata": {"a": 1}}
SEEN |= {"expiresAt": "2026-01-01T00:00:00Z", "freeInMs": None, "freeAt": None, "fencingToken": 7, "waiters": 0}
STATUSES = st.builds(lambda odd: {**SEEN, **odd}, ODD)
RIGHT = st.sampled_from([
    {**GRANT, "acquired": True},
    {**GRANT, "renewed": True, "held": True},
    {"released": True, "abandoned": True},
    {"released": False, "reason": "expired", "renewed": False, "held": False, "lostReason": "taken"},
    SEEN,
])  # fmt: skip
REFUSED = st.builds(lambda holder: {"acquired": False, "holder": holder, "waitedMs": 0}, STATUSES)
BODIES = st.builds(lambda right, odd: {**right, **odd}, RIGHT | REFUSED, ODD)
CODES = [*(word for word in WORDS if word.isupper()), "lock_rate_limited", "LOCK_NOT_ACQUIRED", "", 7]
PROBLEMS = st.builds(
    lambda code, wait, odd: {"code": code, "detail": "no", "retryAfter": wait, **odd},
    st.sampled_from(CODES),
    PLAIN,
    ODD,
)


def read(body: Any, reading: Callable[[Any], Any], *, status: int = 200) -> Any:
    """What comes of an answer with this body: a value, or a `LeasedError`."""
    try:
        return understand(Answer(status, json.dumps(body).encode(), keep=True), reading, address=ADDRESS)
    except LeasedError as error:
        return error


@given(body=BODIES, which=st.sampled_from(OPERATIONS))
def test_an_outcome_is_one_that_its_operation_can_have(body: dict[str, Any], which: Operation) -> None:
    """S2: what cannot have been meant is `StoreUnavailable`; a grant is for this key and token, and ends."""
    found = read(body, lambda answer: NAMES.outcome(which, answer))
    kinds = {
        Acquire: (Held, Contended),
        Renew: (Held, Lost),
        Look: (Held, Lost),
        Release: (Released,),
        Abandon: (type(None),),
    }
    assert isinstance(found, (*kinds[type(which)], LeasedError))
    if isinstance(found, Held):
        lease = found.lease
        assert (lease.key, lease.token) == ("key", TOKEN)
        assert all(math.isfinite(value) and value >= 0 for value in (lease.left, lease.ttl, lease.waited))
    if isinstance(found, Contended) and found.status is not None:
        assert isinstance(found.status, Status)


@given(body=PROBLEMS, status=st.sampled_from([400, 401, 403, 404, 409, 429, 500, 502, 503]))
def test_an_error_is_a_leased_error(body: dict[str, Any], status: int) -> None:
    """Whatever a refusal says, it is raised as one, and says how long to wait only in numbers that end."""
    found = read(body, lambda answer: answer, status=status)
    assert isinstance(found, LeasedError)
    assert found.retry_after is None or 0 <= found.retry_after < math.inf


@given(seen=st.lists(STATUSES | PROBLEMS, max_size=2), odd=ODD)
def test_pages_batches_and_the_rest_are_read_or_refused(seen: list[dict[str, Any]], odd: dict[str, Any]) -> None:
    """A page, a status, a batch or a forced release that cannot be read is `StoreUnavailable`."""
    body = {"locks": seen, "outcomes": seen, **(seen[0] if seen else {}), **odd}
    readers: list[Callable[[Any], Any]] = [
        read_page,
        read_status,
        read_forced,
        lambda answer: read_outcomes(OPERATIONS[:1], answer, read=NAMES.outcome),
    ]
    for reading in readers:
        found = read(body, reading)
        assert isinstance(found, list | Status | bool | LeasedError)


@given(which=st.sampled_from(OPERATIONS), wall=st.sampled_from([0.0, 1.7e9, 4e9]))
def test_what_the_service_writes_is_what_is_read(which: Operation, wall: float) -> None:
    """An outcome goes to JSON and back unchanged, but for milliseconds."""
    outcomes: dict[type[Operation], list[Any]] = {
        Acquire: [Contended(None), Contended(None, ended=True, waited=1.5)],
        Renew: [Lost("taken"), Lost("max_hold")],
        Look: [Lost("expired")],
        Release: [Released(), Released("not_holder"), Released("expired")],
        Abandon: [None],
    }
    for outcome in outcomes[type(which)]:
        body = write_outcome(which, outcome, wall=wall)
        assert read(body, lambda answer: NAMES.outcome(which, answer)) == outcome
