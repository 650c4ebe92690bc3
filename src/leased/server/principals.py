"""Who is asking, and the gate that lets him pass or not: values and one protocol, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, Union

if TYPE_CHECKING:
    from leased.server.sessions import Session, Sessions

Kind = Literal["local", "member", "function", "service"]
"""`local` is whoever reaches a service that asks for no credentials; the others are what a credential can stand for."""

Role = Literal["owner", "admin", "member"]

Action = Literal[
    "acquire",
    "renew",
    "look",
    "release",
    "abandon",
    "status",
    "list",
    "force-release",
    "events",
    "capabilities",
    "manage",
]
"""What a request wants; `manage` is everything that changes credentials, rule sets and limits, and the audit log."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking, as the credential says; headers that a caller writes have no part in it.

    `id` is the user id of a member, else the name of the function or service credential. `role` and `groups` (pairs of
    group and kind) are a member's, `scopes` a service credential's. `credential` is the public id of what was shown.
    """

    project: str
    kind: Kind
    id: str
    role: Role = "member"
    groups: frozenset[tuple[str, str]] = field(default=frozenset())
    scopes: frozenset[str] = field(default=frozenset())
    credential: str = ""

    @property
    def name(self) -> str:
        """Kind and id in one text, as `held_by` and the audit log show them."""
        return f"{self.kind}:{self.id}" if self.id else self.kind


Shown: TypeAlias = Union[str, "Session", None]
"""What a request shows of who asks: its `Authorization` header, the sign-in of a browser, or nothing."""

LOCAL = Principal(project="", kind="local", id="")
"""The principal of a service without credentials."""


class Gate(Protocol):
    """Decides on every request, before a lock is touched: who it is, and whether he may do that, now."""

    @property
    def sessions(self) -> Sessions | None:
        """The sign-ins of browsers; `None` where nobody signs in."""
        ...

    def recall(self, shown: Shown) -> Principal | None:
        """Who showed this a moment ago, if that still holds; `None`: ask `identify`."""
        ...

    async def identify(self, shown: Shown, *, peer: str) -> Principal:
        """Who shows this; `peer` is the address of the socket.

        Raises `Unauthenticated`, or `RateLimited` after too many failures from there.
        """
        ...

    async def sign_in(self, credential: str, *, peer: str, life: float) -> tuple[Principal, Session | None]:
        """Who has this API key or token, and a sign-in of `life` seconds for the browser that showed it, if it needs
        one. Raises as `identify` does.
        """
        ...

    async def admit(self, principal: Principal, action: Action, *, key: str = "", count: int = 1) -> None:
        """Let this principal do that with this key, or raise `AccessDenied`, or `RateLimited` and count nothing then.
        A key that the service allows to nobody is `InvalidRequest` before a rule is asked of it.

        `count`: how many operations of this kind the request holds. Release and abandon are never refused.
        """
        ...

    async def check(self) -> None:
        """Raise `StoreNotUsable` where nobody can be let in before somebody has mended something."""
        ...

    def spend(self, principal: Principal) -> None:
        """Count a request that is refused before it could be admitted; it refuses nothing itself."""
        ...

    async def bind(self, principal: Principal, request_id: str, *, parameters: Mapping[str, Any]) -> None:
        """Let a request with this id pass if it is the first or the same again, else raise `RequestConflict`.

        `parameters`: what makes the request what it is, as JSON has it; not the wait, which may have become shorter.
        """
        ...

    async def record(self, principal: Principal, action: Action, *, key: str, detail: str) -> None:
        """Write to the audit log what is about to happen; raises `StoreUnavailable` where it must not go unrecorded."""
        ...

    def budgets(self, project: str) -> dict[str, dict[str, int | None]]:
        """How much a project may use, by name: `most` in `perMs` milliseconds, and `left`, where that is known."""
        ...

    async def close(self) -> None:
        """Write what is to be kept, and free what it needed."""
        ...


class OpenGate:
    """The gate of a service without credentials: everybody may do everything."""

    sessions = None

    def recall(self, shown: Shown) -> Principal | None:
        """See `Gate`: nothing is remembered."""
        return None

    async def identify(self, shown: Shown, *, peer: str) -> Principal:
        """See `Gate`: nobody in particular."""
        return LOCAL

    async def sign_in(self, credential: str, *, peer: str, life: float) -> tuple[Principal, None]:
        """See `Gate`: nobody needs to."""
        return LOCAL, None

    async def admit(self, principal: Principal, action: Action, *, key: str = "", count: int = 1) -> None:
        """See `Gate`: always."""

    async def check(self) -> None:
        """See `Gate`: everybody is."""

    def spend(self, principal: Principal) -> None:
        """See `Gate`: there are no budgets."""

    async def bind(self, principal: Principal, request_id: str, *, parameters: Mapping[str, Any]) -> None:
        """See `Gate`: an id is for tracing only."""

    async def record(self, principal: Principal, action: Action, *, key: str, detail: str) -> None:
        """See `Gate`: there is no log."""

    def budgets(self, project: str) -> dict[str, dict[str, int | None]]:
        """See `Gate`: there are none."""
        return {}

    async def close(self) -> None:
        """See `Gate`."""
