"""Request ids: each belongs to one request of one principal for ten minutes. It repeats nothing and keeps no token."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from leased.checks import shown
from leased.errors import RequestConflict
from leased.model import Claim
from leased.server.principals import Principal

BOUND_FOR = 600.0
"""Seconds that a request id is bound."""

MAX_REMEMBERED = 10_000
"""Request ids known in this process without asking the registry; the oldest make room."""


class Shelf(Protocol):
    """Where bindings are kept."""

    async def bind_request(self, project: str, request_id: str, *, digest: bytes, until: float, now: float) -> bytes:
        """What this id is bound to: this digest until that instant, unless it is bound already."""
        ...


class RequestIds:
    """Binds request ids to principal and parameters. `wall` gives seconds since the epoch, so that they outlive us."""

    def __init__(self, shelf: Shelf, *, wall: Callable[[], float]) -> None:
        self._shelf = shelf
        self._wall = wall
        self._known: OrderedDict[tuple[str, str], tuple[bytes, float]] = OrderedDict()

    async def bind(self, principal: Principal, request_id: str, *, parameters: Mapping[str, Any]) -> None:
        """Let this request pass if it is the first with its id, or the same again; else raise `RequestConflict`.

        `parameters` is what makes the request what it is, as JSON has it. Whose id it is, and with which parameters,
        is not told.
        """
        now, place = self._wall(), (principal.project, request_id)
        digest = digest_of(principal, parameters)
        bound, until = self._known.get(place, (b"", 0.0))
        if until <= now:
            until = now + BOUND_FOR
            bound = await self._shelf.bind_request(principal.project, request_id, digest=digest, until=until, now=now)
            if bound == digest:  # of another's binding the end is not known: it is asked for each time
                self._remember(place, digest, until)
        if bound != digest:
            raise RequestConflict(
                f"the request id {shown(request_id)!r} belongs to another request",
                hint="make a new id for each request, such as a UUID, and repeat a request unchanged",
            )

    def _remember(self, place: tuple[str, str], digest: bytes, until: float) -> None:
        self._known[place] = (digest, until)
        self._known.move_to_end(place)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)


def parameters_of(claim: Claim) -> Mapping[str, Any]:
    """What makes a claim what it is. Token, metadata and wait are no part of it: who lost an answer may ask again from
    another process, with less time left and, where he did not choose it, another token."""
    terms = claim.terms
    spans = [claim.ttl, terms.max_hold, terms.hold_at_least, terms.lock_delay]
    return {"key": claim.key, "owner": claim.owner, "spans": spans}


def digest_of(principal: Principal, parameters: Mapping[str, Any]) -> bytes:
    """One value for principal and parameters; of a secret among them nothing can be told from it."""
    text = json.dumps([principal.project, principal.name, parameters], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
