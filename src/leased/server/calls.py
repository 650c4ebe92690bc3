"""What a route is, and one call of it: the values between the web's side of the service and its operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from leased.server.browser import Asks, Visit
from leased.server.principals import Action, Principal, Shown
from leased.wire import Body

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

NO_QUERY: Mapping[str, str] = {}

DATA: Sequence[tuple[bytes, bytes]] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""Headers of answers that a browser can be led to and that are no page: whatever names are in them, they are data."""


class Disconnected(Exception):
    """The client has gone: there is nobody to answer."""


class Call:
    """One request on its way: who asks, for what, and how to notice that he has gone."""

    __slots__ = ("peer", "principal", "query", "receive", "request", "shown", "visit")

    def __init__(self, principal: Principal, receive: Receive) -> None:
        """`request` becomes the body as a value; it stays `None` where the route has none."""
        self.principal = principal
        self.receive = receive
        self.request: Any = None
        self.query: Mapping[str, str] = NO_QUERY
        self.shown: Shown = None
        self.peer = ""
        self.visit: Visit | None = None


Handler: TypeAlias = Callable[[Call], Awaitable[Body]]
"""Answers with a body that becomes JSON."""

RawHandler: TypeAlias = Callable[[Call, Send], Awaitable[int]]
"""Sends an answer of another kind itself, and says with which status."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path, and either `handler` or `raw`.

    `action` is what the gate is asked for, with the request's key; without one the handler asks it for what it does.
    `known` says that the caller must be known even so. `request` is the type of the body, `query` has the parameters,
    each with its meaning, of which some are `required`; `answer` is the type of what comes back, or `media_type` says
    what it is, for the description of the interface. `endless`: the answer goes on until somebody ends it.
    `page`: it is for browsers, with a credential or without. `asks`: what it does if it is no GET.
    """

    method: str
    path: str
    summary: str
    handler: Handler | None = None
    raw: RawHandler | None = None
    action: Action | None = None
    known: bool = True
    request: type[Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    answer: type[Any] | None = None
    media_type: str = "application/json"
    endless: bool = False
    page: bool = False
    asks: Asks = "changes"


async def until_gone(receive: Receive) -> None:
    """Return once the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def has_gone(receive: Receive) -> bool:
    """Whether the client is known to have gone, without waiting for it."""
    looking: Any = receive()
    try:
        looking.send(None)
    except StopIteration as seen:
        return bool(seen.value["type"] == "http.disconnect")
    looking.close()
    return False
