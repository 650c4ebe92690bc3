"""The values that engine, stores and faces exchange: what is asked for, what was granted, what anyone may see."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, dataclass_transform

from leased.policy import CLOCK_MARGIN, DEFAULT_MAX_HOLD

LostReason: TypeAlias = Literal[
    "taken",
    "retaken",
    "expired",
    "force_released",
    "max_hold",
    "denied",
    "store_lost",
    "forked",
    "closed",
    "handed_over",
]
"""Why a lease is over although its holder did not release it."""

State: TypeAlias = Literal["free", "held", "closed"]
"""What a key is: open to the next claim, under a lease, or closed for a while with no holder."""


_V = TypeVar("_V")
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[_V]) -> type[_V]:
    """A frozen dataclass with slots, frozen for type checkers only: at run time that would make each of these, of which
    every acquire makes three or four, five times as dear."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass(frozen=True, slots=True)
class Terms:
    """The conditions of a claim, in seconds, and what others may see of who claims.

    `held_by` names program, host and process (at the service: the principal). `metadata` is a JSON object as text.
    """

    max_hold: float = DEFAULT_MAX_HOLD
    hold_at_least: float = 0.0
    lock_delay: float = 0.0
    held_by: str = ""
    metadata: str = "{}"


DEFAULT_TERMS = Terms()
"""The terms of a claim that names none."""


@value
class Claim:
    """What is asked for. The token is made before asking, so that asking twice is harmless.

    `late` says that a copy of this claim may still arrive after its end (an attempt went unanswered, or the caller
    brought the token): a store that grants it remembers the token for the replay window once the hold has ended.
    `wait` is how long, in seconds, a store that has a line of its own may keep the claim in it; others answer at once.
    """

    key: str
    token: str = field(repr=False)
    ttl: float
    owner: str | None = None
    request_id: str | None = None
    terms: Terms = DEFAULT_TERMS
    late: bool = False
    wait: float = 0.0


@value
class Lease:
    """What was granted: a value, as true as the moment the store answered.

    `left` is the remaining time in seconds, measured by the store as it answered; `waited` how long the server kept
    the request before the winning call; `renewal` the highest renewal number that the store has seen.
    """

    key: str
    token: str = field(repr=False)
    fencing_token: int
    ttl: float
    owner: str | None
    left: float
    waited: float = 0.0
    renewal: int = 0


@value
class Status:
    """What anyone may see of a key; advice, not a test (the test is `try_acquire`). It never holds the token.

    `held` is false exactly when an allowed claim that is first to ask would win now. `expires_in` and `free_in` are
    seconds from the answer, `None` where nothing is held or closed; `expires_at`, `free_at` and `acquired_at` are
    seconds since the epoch, for display only. `waiters` counts those who wait, where the store knows.
    """

    key: str
    state: State = "free"
    owner: str | None = None
    held_by: str | None = None
    expires_in: float | None = None
    expires_at: float | None = None
    free_in: float | None = None
    free_at: float | None = None
    fencing_token: int | None = None
    acquired_at: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    waiters: int | None = None

    @property
    def held(self) -> bool:
        """Whether a claim would be refused now: the key is under a lease or closed."""
        return self.state != "free"


@value
class Held:
    """The store says: this token holds the key."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Contended:
    """The store says: not granted, nothing changed. `ended`: this token had its lease already and gets no other.

    `waited` is how long, in seconds, whoever decides kept the claim in a line of its own.
    """

    status: Status | None
    ended: bool = False
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Lost:
    """The store says: this token holds nothing (any more)."""

    reason: LostReason


@dataclass(frozen=True, slots=True)
class Released:
    """How a release ended: true when it freed the key, otherwise false with a reason.

    | reason | meaning |
    | --- | --- |
    | `""` | freed |
    | `not_holder` | the key is free or somebody else's: nothing was changed |
    | `expired` | the lease had run out before: nothing was changed |
    | `already_released` | this handle was released before |
    """

    reason: Literal["", "not_holder", "expired", "already_released"] = ""

    def __bool__(self) -> bool:
        """Whether this release freed the key."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Renewed:
    """How a renewal ended: true when the lease goes on, otherwise false with a reason.

    `reason` is empty, `lease_lost` (then `lost_reason` says why) or `released`.
    """

    reason: Literal["", "lease_lost", "released"] = ""
    lost_reason: LostReason | None = None

    def __bool__(self) -> bool:
        """Whether the lease was renewed."""
        return not self.reason


@value
class Acquire:
    """An acquire as a value, for batches."""

    claim: Claim


@value
class Renew:
    """A renewal as a value, for batches."""

    key: str
    token: str = field(repr=False)
    ttl: float
    number: int


@value
class Release:
    """A release as a value, for batches."""

    key: str
    token: str = field(repr=False)
    late: bool = False


@value
class Abandon:
    """An abandon as a value, for batches. `heard` is how often whoever asks may have been told `Held`: see
    `leased.store`."""

    key: str
    token: str = field(repr=False)
    heard: int | None = None


@value
class Look:
    """A look at one token as a value, for batches."""

    key: str
    token: str = field(repr=False)


Operation: TypeAlias = Acquire | Renew | Release | Abandon | Look
"""What a batch is made of."""

EXCLUSIVITY = (
    "unknown",
    "volatile",
    "process",
    "host",
    "until-failover",
    "primary",
    "replicated",
    "region",
    "consensus",
)
"""What a store can promise of exclusion, from the weakest; `replicated` and `region` rank the same."""


def exclusivity_rank(word: str) -> int:
    """The place of an exclusivity word in the order from weakest to strongest; raises `ValueError` for another word."""
    return EXCLUSIVITY.index("replicated" if word == "region" else word)


@dataclass(frozen=True, slots=True)
class Assurance:
    """What a store, as configured now, really gives. Words are those of the stores' pages in the docs.

    `exclusive` is one of `EXCLUSIVITY`; `early_loss` says whether a lease can end before its expiry without release
    or force; `durable` what survives; `takeover` who decides that a lease is over; `fence` under which condition
    fencing tokens rise; `clock_margin` the share of each lease given up for clock rates. `known` is false until the
    server was asked: nothing else then counts.
    """

    exclusive: str
    early_loss: bool
    durable: str
    takeover: str
    fence: str
    clock_margin: float = CLOCK_MARGIN
    notes: tuple[str, ...] = ()
    known: bool = True


UNASKED = Assurance(
    exclusive="unknown",
    early_loss=True,
    durable="unknown",
    takeover="unknown",
    fence="unknown",
    notes=("the server was not asked yet: the first use of a lock does that",),
    known=False,
)
"""The assurance of a store on a server, before the first connection."""


def read_metadata(text: str) -> dict[str, Any]:
    """Metadata as stored, read back; what cannot be read is shown as nothing, for status must never fail on it."""
    try:
        try:
            found, end = _scan(text, 0)  # the half of `json.loads` that reads what leased writes, without blanks around
        except StopIteration:
            found, end = None, -1
        if end != len(text):
            found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
