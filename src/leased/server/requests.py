"""What may be asked of the service: the bodies of requests as types, read strictly. It decides nothing.

Unknown and repeated members, numbers that are none, text that is no UTF-8 and depth without end are refused: what two
programs could read differently is not read at all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from leased.errors import InvalidRequest
from leased.policy import MAX_FENCING_TOKEN, MAX_KEY_LENGTH, MAX_METADATA_SIZE, MAX_TTL
from leased.server.mismatches import mismatch
from leased.wire_batch import MOST_OPERATIONS

MAX_BODY = 64 * 1024
"""Bytes of a request's body."""

MAX_DEPTH = 16
"""How deep arrays and objects may lie in each other."""

MAX_CLIENT_LENGTH = 512
MAX_WHOLE_METADATA = MAX_METADATA_SIZE + 1024
"""Bytes of the metadata as JSON: the caller's own, and what each client adds of itself."""

_MOST_MILLISECONDS = int(MAX_TTL * 1000)

Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_LENGTH, description="What is locked.")]
Token = Annotated[str, Meta(max_length=255, description="The secret that proves the hold.")]
NewToken = Annotated[
    str,
    Meta(
        min_length=16,
        max_length=255,
        description="The secret that will prove the hold: 128 random bits at least. Without it the service makes one.",
    ),
]
Owner = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_LENGTH, description="Public name of the work.")]
RequestId = Annotated[
    str,
    Meta(min_length=1, max_length=255, description="Named in answers and logs, and bound to what is asked."),
]
Ttl = Annotated[int, Meta(ge=1, le=_MOST_MILLISECONDS, description="Length of the lease from now.")]
MaxHold = Annotated[
    int, Meta(ge=1, le=_MOST_MILLISECONDS, description="The end that renewals cannot move. Default: 90 days.")
]
HoldAtLeast = Annotated[
    int, Meta(ge=0, le=_MOST_MILLISECONDS, description="The key stays closed until the lease would be that old.")
]
LockDelay = Annotated[
    int, Meta(ge=0, le=_MOST_MILLISECONDS, description="It stays closed so long after a lease that was not released.")
]
Metadata = Annotated[dict[str, Any], Meta(description="Shown to anyone of the project.")]
Wait = Annotated[int, Meta(ge=0, le=2**53 - 1, description="How long to wait for the key; see `maxWaitSliceMs`.")]
Client = Annotated[
    str, Meta(max_length=MAX_CLIENT_LENGTH, description="`program@host:pid`, shown where no credentials are asked for.")
]
FencingToken = Annotated[int, Meta(ge=1, le=MAX_FENCING_TOKEN)]
Heard = Annotated[
    int,
    Meta(
        ge=0,
        le=2**53 - 1,
        description="Nothing is done if the token holds the key, unless it was granted and never renewed, and claims"
        " with it were told so no more often than that.",
    ),
]
Renewal = Annotated[int, Meta(ge=0, le=2**53 - 1, description="Number of this renewal, above that of the last one.")]
Late = Annotated[bool, Meta(description="A copy of the request may arrive after the end of the lease. Default: true.")]


class _Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    key: Key
    request_id: RequestId | UnsetType = UNSET


class _Claim(_Request, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    ttl_ms: Ttl
    token: NewToken | UnsetType = UNSET
    owner: Owner | None | UnsetType = UNSET
    max_hold_ms: MaxHold | UnsetType = UNSET
    hold_at_least_ms: HoldAtLeast | UnsetType = UNSET
    lock_delay_ms: LockDelay | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET
    late: Late | UnsetType = UNSET
    client: Client | UnsetType = UNSET


class AcquireRequest(_Claim, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Take a key, now or within `waitMs`."""

    wait_ms: Wait | UnsetType = UNSET


class RenewRequest(_Request, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Set the end of a lease to `ttlMs` from now."""

    token: Token
    ttl_ms: Ttl
    renewal: Renewal | UnsetType = UNSET


class ReleaseRequest(_Request, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """End a lease."""

    token: Token
    late: Late | UnsetType = UNSET


class AbandonRequest(_Request, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Whatever became of a claim: let it hold nothing, now or later."""

    token: Token
    heard: Heard | UnsetType = UNSET


class LookRequest(_Request, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Whether a token holds its key."""

    token: Token


class ForceReleaseRequest(_Request, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """End a lease without its token."""

    fencing_token: FencingToken | None | UnsetType = UNSET
    reason: Annotated[str, Meta(max_length=255, description="For the audit log.")] | UnsetType = UNSET


class AcquireMember(_Claim, tag_field="operation", tag="acquire", frozen=True, kw_only=True, rename="camel"):
    """An acquire in a batch; it cannot wait."""


class RenewMember(RenewRequest, tag_field="operation", tag="renew", frozen=True, kw_only=True, rename="camel"):
    """A renewal in a batch."""


class ReleaseMember(ReleaseRequest, tag_field="operation", tag="release", frozen=True, kw_only=True, rename="camel"):
    """A release in a batch."""


class AbandonMember(AbandonRequest, tag_field="operation", tag="abandon", frozen=True, kw_only=True, rename="camel"):
    """An abandon in a batch."""


class LookMember(LookRequest, tag_field="operation", tag="look", frozen=True, kw_only=True, rename="camel"):
    """A look in a batch."""


Member = AcquireMember | RenewMember | ReleaseMember | AbandonMember | LookMember


class BatchRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Several operations at once: each as if it ran alone, answered in order."""

    operations: Annotated[list[Member], Meta(min_length=1, max_length=MOST_OPERATIONS)]
    request_id: RequestId | UnsetType = UNSET


Request = (
    AcquireRequest | RenewRequest | ReleaseRequest | AbandonRequest | LookRequest | ForceReleaseRequest | BatchRequest
)

_T = TypeVar("_T", bound=Struct)
_encode = msgspec.json.Encoder().encode


class Reader(Generic[_T]):
    """Reads bodies of one type; raises `InvalidRequest` for all that is not exactly that."""

    __slots__ = ("_decode", "_names", "kind")

    def __init__(self, kind: type[_T]) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(kind).decode
        self._names = kind.__struct_fields__

    def read(self, body: bytes | bytearray) -> _T:
        """The request in this body."""
        try:
            request = self._decode(body)
        except msgspec.ValidationError as error:
            raise mismatch(self.kind, body, complaint=str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"the body is no JSON: {error}") from None
        except RecursionError:
            raise _too_deep() from None
        # Without escapes, a body with each member once has as many quotation marks as the request written anew.
        if b"\\" in body or _may_be_deep(body, request) or body.count(b'"') != _encode(request).count(b'"'):
            _check_members(body)
        return request


def _may_be_deep(body: bytes | bytearray, request: Struct) -> bool:
    """Whether the body may be deeper than `MAX_DEPTH`: of all that is read, only metadata has no depth of its own."""
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return False
    members: Sequence[Any] = request.operations if isinstance(request, BatchRequest) else (request,)
    return any(
        isinstance(value, dict | list)
        for member in members
        for value in (getattr(member, "metadata", UNSET) or {}).values()
    )


def _check_members(body: bytes | bytearray) -> None:
    """Raise `InvalidRequest` if an object in the body names a member twice, or the body is too deep."""

    def no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twin = next(name for name in names if names.count(name) > 1)
            raise InvalidRequest(f"the body names the member {twin[:80]!r} twice")
        return found

    try:
        whole = json.loads(body, object_pairs_hook=no_twins)
    except RecursionError:
        raise _too_deep() from None
    check_depth(whole)


def check_depth(value: object) -> None:
    """Raise `InvalidRequest` if arrays and objects lie deeper in each other than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    if any(isinstance(inner, dict | list) for inner in level):
        raise _too_deep()


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"arrays and objects of the body lie deeper in each other than {MAX_DEPTH}")
