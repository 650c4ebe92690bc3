"""What the service answers, as types: for the description of its interface, and for tests that hold it to that."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from leased.model import LostReason, State

Milliseconds = Annotated[int, Meta(ge=0)]
Instant = Annotated[str, Meta(description="RFC 3339, for display: clocks of two machines are not to be compared.")]
Number = Annotated[int, Meta(ge=1, le=2**53 - 1)]


class _Answer(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    request_id: str | UnsetType = UNSET


class Status(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What anyone of the project may see of a key: advice, not a test."""

    key: str
    state: State
    held: bool
    owner: str | None
    held_by: str | None
    expires_in_ms: Milliseconds | None
    expires_at: Instant | None
    free_in_ms: Milliseconds | None
    free_at: Instant | None
    fencing_token: Number | None
    acquired_at: Instant | None
    metadata: dict[str, Any]
    waiters: Annotated[int, Meta(ge=0)] | None


class _Lease(_Answer, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    key: str | UnsetType = UNSET
    owner: str | None | UnsetType = UNSET
    fencing_token: Number | UnsetType = UNSET
    ttl_ms: Milliseconds | UnsetType = UNSET
    left_ms: Annotated[int, Meta(ge=0, description="What was left as the store answered.")] | UnsetType = UNSET
    waited_ms: Annotated[int, Meta(ge=0, description="How long the service kept the request.")] | UnsetType = UNSET
    expires_at: Instant | UnsetType = UNSET
    lease_expires_at: Instant | UnsetType = UNSET
    renewal: Annotated[int, Meta(ge=0)] | UnsetType = UNSET


class AcquireAnswer(_Lease, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Granted, with the lease; or not, with the holder. `ended`: this token had its lease and gets no other."""

    acquired: bool
    token: str | UnsetType = UNSET
    holder: Status | None | UnsetType = UNSET
    retry_after_ms: Milliseconds | UnsetType = UNSET
    ended: bool | UnsetType = UNSET


class RenewAnswer(_Lease, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Renewed, with the lease; or lost, with the best knowledge of why."""

    renewed: bool
    reason: Literal["lease_lost"] | UnsetType = UNSET
    lost_reason: LostReason | UnsetType = UNSET


class LookAnswer(_Lease, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Whether this token holds the key."""

    held: bool
    lost_reason: LostReason | UnsetType = UNSET


class ReleaseAnswer(_Answer, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Whether this release freed the key, and why not."""

    released: bool
    reason: Literal["not_holder", "expired"] | UnsetType = UNSET


class AbandonAnswer(_Answer, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """This token holds nothing, and never will."""

    abandoned: bool


class ForceReleaseAnswer(_Answer, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Whether a lease was ended, or a closed key opened."""

    released: bool


class Problem(Struct, kw_only=True, rename="camel"):
    """What went wrong: `code` for programs, `detail` and `hint` for people."""

    type: str
    title: str
    status: int
    code: str
    error_code: str
    detail: str
    request_id: str | None
    hint: str | UnsetType = UNSET
    retry_after: Annotated[int, Meta(ge=0, description="Seconds.")] | UnsetType = UNSET
    applied: Annotated[bool | None, Meta(description="Whether it may have happened; null: unknown.")] | UnsetType = (
        UNSET
    )


class BatchAnswer(_Answer, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """For each operation, in order, what it would be answered alone; a problem where it would be refused."""

    outcomes: list[dict[str, Any]]


class Page(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Keys in the order of their bytes; the last one is where the next page goes on."""

    locks: list[Status]


class StoreAssurance(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What the store behind the service gives."""

    exclusive: str
    early_loss: bool
    durable: str
    takeover: str
    fence: str
    clock_margin: float
    notes: list[str]
    known: bool


class PoliciesAnswer(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What the caller may ask for."""

    keys: Literal["strict", "any"]
    max_key_length: int
    min_ttl_ms: Milliseconds
    max_ttl_ms: Milliseconds
    max_hold_at_least_ms: Milliseconds
    max_lock_delay_ms: Milliseconds
    max_wait_slice_ms: Milliseconds
    max_waiters: int


class SizesAnswer(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How much one request may hold."""

    max_body_bytes: int
    max_operations: int


class SharingAnswer(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What holds for all processes of the service together, and what for each by itself."""

    credentials: Literal["none", "all replicas", "each replica"]
    budgets: Literal["none", "all replicas", "each replica"]
    request_ids: Literal["none", "all replicas", "each replica"]


class Capabilities(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What this service gives and allows."""

    version: str
    store: Annotated[str | None, Meta(description="Its place, for administrators; to others null.")]
    assurance: StoreAssurance
    policies: PoliciesAnswer
    limits: SizesAnswer
    authentication: bool
    sharing: SharingAnswer


class Health(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """That it is so; otherwise the answer is a problem."""

    status: Literal["ok", "ready"]


class SessionMay(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What whoever looks at a page has a right to."""

    list: bool
    force: bool
    manage: bool
    hold: bool


class SessionPrincipal(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Whom the credential of a browser stands for."""

    kind: Literal["member", "function", "service"]
    name: str
    role: Literal["owner", "admin", "member"] | None
    project: str


class SessionAnswer(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Who looks at the dashboard. `acts`: whether it may act, with `csrfToken` as the header `leased-csrf`."""

    mode: Literal["local", "credentials"]
    signed_in: bool
    principal: SessionPrincipal | None
    may: SessionMay
    acts: bool
    csrf_token: str | None
    version: str
    store: str | None
    heartbeat_ms: Milliseconds


class WaiterShown(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A claim that waits. `leftMs` is `null` where its caller asks again and again."""

    held_by: str
    owner: str | None
    metadata: dict[str, Any]
    waited_ms: Milliseconds
    left_ms: Milliseconds | None


class WaitersAnswer(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The first hundred who wait for a key in this process, in order, and how many wait in all."""

    waiters: list[WaiterShown]
    total: Annotated[int, Meta(ge=0)]


class HoldShown(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One hold. `end` is `null` as long as it goes on; `reason` is what was said when it was ended."""

    held_by: str
    owner: str | None
    fencing_token: Number
    acquired_at: Instant
    ended_at: Instant | None
    end: Literal["released", "force_released", "expired", "abandoned"] | None
    waited_ms: Milliseconds
    reason: str | None


class HistoryAnswer(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The last holds of a key that came through the service, the newest first. `kept`: whether any history is."""

    kept: bool
    holds: list[HoldShown]


class ContentionSample(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A minute of a key that began `at`: how often it was asked for in vain, and how many waited at the most."""

    at: Instant
    contended: Annotated[int, Meta(ge=0)]
    waiting: Annotated[int, Meta(ge=0)]


class ContentionAnswer(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The last hour of a key in minutes, the oldest first, as far as this process answered."""

    interval_ms: Milliseconds
    samples: list[ContentionSample]


class Percentiles(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What 50, 95 and 99 of a hundred did not exceed, in milliseconds, to within 5 %."""

    p50: Milliseconds
    p95: Milliseconds
    p99: Milliseconds


class Sample(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What went on until `at`: how many keys were held and claims waited then, and what was answered since the sample
    before. `contended`: the key was held. `rejected`: it could not work; `limited`: too many requests."""

    at: Instant
    held: Annotated[int, Meta(ge=0)] | None
    waiting: Annotated[int, Meta(ge=0)]
    acquired: Annotated[int, Meta(ge=0)]
    contended: Annotated[int, Meta(ge=0)]
    rejected: Annotated[int, Meta(ge=0)]
    denied: Annotated[int, Meta(ge=0)]
    limited: Annotated[int, Meta(ge=0)]
    forced: Annotated[int, Meta(ge=0)]
    wait_ms: Percentiles | None
    hold_ms: Percentiles | None


class LimitShown(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How much may be used at most, in so many milliseconds or at once, and what is left, where that is known."""

    most: Annotated[int, Meta(ge=0)]
    left: Annotated[int, Meta(ge=0)] | None
    per_ms: Milliseconds | UnsetType = UNSET


class OverviewAnswer(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The last hour of a project in samples, the oldest first, as far as this process answered."""

    interval_ms: Milliseconds
    samples: list[Sample]
    limits: dict[str, LimitShown]
