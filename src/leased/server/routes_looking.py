"""The routes for whoever looks after a project: who waits for a key, who held it, and what went on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leased.checks import shown
from leased.errors import InvalidRequest
from leased.model import Status, read_metadata
from leased.server.answers import ContentionAnswer, HistoryAnswer, OverviewAnswer, WaitersAnswer
from leased.server.calls import Call, Route
from leased.server.contention import STEP
from leased.server.holds import PastHold
from leased.server.overview import INTERVAL
from leased.server.service import Service
from leased.server.tenancy import shown_owner, stored_key
from leased.wire import Body, at_most, instant

MOST_WAITERS = 100
"""Waiters that are shown of one key."""

MOST_HOLDS = 1000
"""Holds that are shown of one key."""

_USUAL = "20"
_KEY = {"key": "what is locked"}
_NEEDED = frozenset({"key"})


def looking_routes(service: Service) -> tuple[Route, ...]:
    """All of them; who may list the keys of his project may see these, too."""
    looks = _Looks(service)
    return (
        Route(
            "GET",
            "/v1/locks/waiters",
            "Who waits for a key, as far as this process knows",
            looks.waiters,
            action="list",
            query=_KEY,
            required=_NEEDED,
            answer=WaitersAnswer,
        ),
        Route(
            "GET",
            "/v1/locks/history",
            "Who held a key, the last one first",
            looks.history,
            action="list",
            query={**_KEY, "limit": f"the most holds, 1 to {MOST_HOLDS}; {_USUAL} without it"},
            required=_NEEDED,
            answer=HistoryAnswer,
        ),
        Route(
            "GET",
            "/v1/locks/contention",
            "How contended a key was in the last hour, as far as this process knows",
            looks.contention,
            action="list",
            query=_KEY,
            required=_NEEDED,
            answer=ContentionAnswer,
        ),
        Route(
            "GET",
            "/v1/overview",
            "What went on in the last hour, as far as this process knows",
            looks.overview,
            action="list",
            answer=OverviewAnswer,
        ),
    )


class _Looks:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def waiters(self, call: Call) -> Body:
        """The first of the line."""
        found = self._service.waiting.of(self._key(call))
        return {
            "waiters": [
                {
                    "heldBy": one.claim.terms.held_by,
                    "owner": shown_owner(one.claim.owner),
                    "metadata": read_metadata(one.claim.terms.metadata),
                    "waitedMs": at_most(one.waited),
                    "leftMs": None if one.left is None else at_most(one.left),
                }
                for one in found[:MOST_WAITERS]
            ],
            "total": len(found),
        }

    async def history(self, call: Call) -> Body:
        """The last holds. Whether the last one goes on, only the store knows."""
        service, stored = self._service, self._key(call)
        limit = _limit(call.query)
        journal = service.journal
        if journal.kept is None:
            return {"kept": False, "holds": []}
        await journal.catch_up()
        found = await journal.kept.holds(call.principal.project, call.query["key"], limit=limit)
        status = await service.store.status(stored, timeout=service.settings.timeout)
        return {"kept": True, "holds": written(found, status, now=service.clock.wall())}

    async def contention(self, call: Call) -> Body:
        """The minutes of a key, the last one as far as it is over."""
        journal, stored = self._service.journal, self._key(call)
        await journal.read()
        now = self._service.clock.wall()
        journal.contention.look(now)
        return {"intervalMs": at_most(STEP), "samples": journal.contention.samples(stored, at=now)}

    async def overview(self, call: Call) -> Body:
        """The samples of the project, and what it may use."""
        service = self._service
        settings, project = service.settings, call.principal.project
        await service.journal.catch_up()
        streams, open_ = service.events.share(project)
        waiters = None if project else max(0, settings.max_waiters - len(service.waiting))
        limits: Body = {
            **service.gate.budgets(project),
            "eventStreams": {"most": streams, "left": max(0, streams - open_)},
            "waiters": {"most": settings.max_waiters, "left": waiters},  # how many others have is not told
            "waitersEach": {"most": settings.max_waiters_each, "left": None},
        }
        return {
            "intervalMs": at_most(INTERVAL),
            "samples": service.journal.overview.samples(project),
            "limits": limits,
        }

    def _key(self, call: Call) -> str:
        key = call.query.get("key", "")
        self._service.policies.check_key(call.principal, key)
        return stored_key(call.principal, key)


def written(holds: Sequence[PastHold], status: Status, *, now: float) -> list[Body]:
    """Holds of a key, the newest first, as JSON has them. What nobody saw is what must have been: a hold that was not
    the last one has ended, before the next began, and the last one goes on only if the store says so."""
    bodies: list[Body] = []
    next_began: float | None = None
    for one in holds:
        goes_on = not bodies and status.state == "held" and status.fencing_token == one.fencing_token
        by = now if next_began is None else next_began
        ended_at, end, reason = one.ended_at, one.end, one.reason
        if goes_on and end in (None, "expired", "abandoned"):
            ended_at, end, reason = None, None, ""
        elif end is None or (end == "expired" and (ended_at or 0.0) > by):  # the end itself was seen elsewhere
            ended_at, end = (one.until, "expired") if one.until <= by else (by, "released")
        bodies.append(
            {
                "heldBy": one.held_by,
                "owner": one.owner,
                "fencingToken": one.fencing_token,
                "acquiredAt": instant(one.acquired_at),
                "endedAt": None if ended_at is None else instant(max(ended_at, one.acquired_at)),
                "end": end,
                "waitedMs": at_most(one.waited),
                "reason": reason or None,
            }
        )
        next_began = one.acquired_at
    return bodies


def _limit(query: Mapping[str, Any]) -> int:
    text = query.get("limit", _USUAL)
    if not (text.isascii() and text.isdecimal() and len(text) < 5 and 1 <= int(text) <= MOST_HOLDS):
        raise InvalidRequest(f"limit {shown(text)!r} is no whole number from 1 to {MOST_HOLDS}")
    return int(text)
