"""The operations on locks, from a request to the body of its answer. It knows no HTTP, and nobody's rights."""

from __future__ import annotations

import secrets
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from leased import wire
from leased.checks import check_owner, check_plain, check_prefix
from leased.env import Env
from leased.errors import InvalidRequest, LeasedError, StoreUnavailable
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
    Renew,
    State,
    Status,
)
from leased.policy import MAX_LIST_PAGE, MIN_CALL_TIMEOUT, lease_call_timeout
from leased.server.calls import Call, Disconnected, has_gone
from leased.server.events import Events
from leased.server.journal import Forced, Journal
from leased.server.metrics import Metrics
from leased.server.outcomes import ACTIONS, word_of
from leased.server.outcomes import Outcome as Outcomes
from leased.server.policies import Policies
from leased.server.principals import Action, Gate, Principal
from leased.server.request_ids import parameters_of
from leased.server.requests import (
    AbandonMember,
    AcquireMember,
    AcquireRequest,
    ForceReleaseRequest,
    LookMember,
    LookRequest,
    Member,
    ReleaseMember,
    ReleaseRequest,
    RenewMember,
    RenewRequest,
)
from leased.server.tenancy import shown_key, shown_owner, stored_beginning, stored_key, stored_owner
from leased.server.terms import metadata_text, terms_of
from leased.server.troubles import Troubles
from leased.server.waiting import Waiting, shutting_down
from leased.store import Outcome, Store, one
from leased.wire import Body
from leased.wire_errors import write_error

Admit: TypeAlias = Callable[[Principal, Action, str], Awaitable[None]]
"""Lets a principal do something with a key, or raises."""

_HOLDERS = 5  # that may follow each other while one is ended by force
_DEFAULT_PAGE = 100
_PAGE_QUERY = {"prefix": "", "after": "", "limit": str(_DEFAULT_PAGE)}


class LockOperations:
    """All operations over one store. Each takes a call whose principal may do that, and answers with a body."""

    def __init__(
        self,
        store: Store,
        env: Env,
        *,
        gate: Gate,
        waiting: Waiting,
        policies: Policies,
        events: Events,
        metrics: Metrics,
        troubles: Troubles,
        journal: Journal,
    ) -> None:
        self._store = store
        self._gate = gate
        self._env = env
        self._waiting = waiting
        self._policies = policies
        self._events = events
        self._metrics = metrics
        self._troubles = troubles
        self._journal = journal
        self._note = journal.note
        self.draining = False

    async def acquire(self, call: Call) -> Body:
        """Take the key, or say who has it; with `waitMs` in the line of this service."""
        request: AcquireRequest = call.request
        principal, wait = call.principal, request.wait_ms
        claim = self._claim(principal, request)
        if self.draining:
            raise shutting_down()
        if claim.request_id is not None:
            await self._bind(principal, claim, request_id=claim.request_id)
        outcome: Held | Contended
        try:
            if wait is UNSET or not wait:
                outcome = await self._try(claim, brought=request.token is not UNSET)
            else:
                who = "" if principal.kind == "local" else f"{principal.project}/{principal.name}"
                minted = request.token is UNSET
                outcome = await self._waiting.acquire(
                    claim, wait=wait / 1000.0, who=who, receive=call.receive, minted=minted
                )
        except (StoreUnavailable, CancelledError) as error:
            if request.token is UNSET and _may_hold(error):  # nobody can come back for it
                self._waiting.copies.owe(claim, minted=True)
            raise
        if request.token is UNSET and isinstance(outcome, Held) and has_gone(call.receive):
            self._waiting.copies.owe(claim, minted=True)
            raise Disconnected
        return self._answer(principal, request, operation=Acquire(claim), outcome=outcome)

    async def _try(self, claim: Claim, *, brought: bool) -> Held | Contended:
        """Ask once. A copy of a claim whose token was brought may wait meanwhile."""
        if not brought:
            return await self._store.acquire(claim, timeout=self._env.timeout)
        outcome: Held | Contended | None = None
        await self._waiting.copies.begin(claim)
        try:
            outcome = await self._store.acquire(claim, timeout=self._env.timeout)
            return outcome
        finally:
            self._waiting.copies.end(claim, outcome)

    async def _bind(self, principal: Principal, claim: Claim, *, request_id: str) -> None:
        """Let a request id stand for this claim alone, whoever repeats it, with whatever token and from wherever."""
        if principal.kind != "local":
            await self._gate.bind(principal, request_id, parameters=parameters_of(claim))

    async def renew(self, call: Call) -> Body:
        """Set the end of a lease. Without a number it gets the next one, which takes a look."""
        request: RenewRequest = call.request
        # However short a lease is, the store gets the time of a round trip: it alone says whether the lease has ended.
        timeout = lease_call_timeout(self._env.timeout, ttl=max(request.ttl_ms / 1000.0, 3 * MIN_CALL_TIMEOUT))
        if isinstance(request.renewal, int):
            return await self._one(call, timeout=timeout)
        operation = self._operation(call.principal, replace(request, renewal=0))
        key = stored_key(call.principal, request.key)
        seen = await self._store.look(key, request.token, timeout=timeout)
        if isinstance(seen, Lost):
            return self._answer(call.principal, request, operation=operation, outcome=seen)
        call.request = replace(request, renewal=seen.lease.renewal + 1)
        return await self._one(call, timeout=timeout)

    async def release(self, call: Call) -> Body:
        """End a lease, or a claim whatever became of it, and let the next one ask."""
        body = await self._one(call, timeout=self._env.timeout)
        self._env.lines.released(stored_key(call.principal, call.request.key))
        return body

    async def look(self, call: Call) -> Body:
        """Whether a token holds its key."""
        return await self._one(call, timeout=self._env.timeout)

    async def _one(self, call: Call, *, timeout: float) -> Body:
        operation = self._operation(call.principal, call.request)
        outcome = await one(self._store, operation, timeout=timeout)
        return self._answer(call.principal, call.request, operation=operation, outcome=outcome)

    async def batch(self, call: Call, *, admit: Admit) -> Body:
        """Several operations, each as if it ran alone; `admit` raises for those that the caller may not do."""
        members: Sequence[Member] = call.request.operations
        principal = call.principal
        outcomes: list[Body | None] = [None] * len(members)
        asked: list[tuple[int, Operation]] = []
        for place, member in enumerate(members):
            try:
                await admit(principal, _MEMBERS[type(member)], member.key)
                operation = self._operation(principal, member)
                if self.draining and isinstance(operation, Acquire):
                    raise shutting_down()
                if isinstance(operation, Acquire) and operation.claim.request_id is not None:
                    await self._bind(principal, operation.claim, request_id=operation.claim.request_id)
            except LeasedError as error:
                self._journal.refused(principal.project, error)
                outcomes[place] = write_error(self._troubles.told(error, to=principal), request_id=None)
            else:
                asked.append((place, operation))
        if asked:
            minted = [one.claim for place, one in asked if isinstance(one, Acquire) and members[place].token is UNSET]
            found = await self._many([operation for _, operation in asked], minted=minted)
            gone = bool(minted) and has_gone(call.receive)
            for claim in minted if gone else ():
                self._waiting.copies.owe(claim, minted=True)
            for (place, operation), outcome in zip(asked, found, strict=True):
                if isinstance(outcome, LeasedError):
                    outcomes[place] = write_error(self._troubles.told(outcome, to=principal), request_id=None)
                    continue
                if gone and isinstance(operation, Acquire) and members[place].token is UNSET:
                    continue  # it is handed back, and nobody is told of it
                outcomes[place] = self._answer(principal, members[place], operation=operation, outcome=outcome)
                if isinstance(operation, Release | Abandon):
                    self._env.lines.released(operation.key)
            if gone:
                raise Disconnected
        return {"outcomes": outcomes}

    async def _many(self, operations: Sequence[Operation], *, minted: Sequence[Claim]) -> Sequence[Outcome]:
        claims = [operation.claim for operation in operations if isinstance(operation, Acquire)]
        begun: list[Claim] = []
        found: Sequence[Outcome] = ()
        try:
            for claim in claims:
                await self._waiting.copies.begin(claim)
                begun.append(claim)
            found = await self._store.many(operations, timeout=self._env.timeout)
            return found
        finally:
            granted = {
                id(one.claim): out for one, out in zip(operations, found, strict=False) if isinstance(one, Acquire)
            }
            for claim in begun:
                outcome = granted.get(id(claim))
                # Nobody can come back for a token that was made here and never told.
                if (not found or _may_hold(outcome)) and any(claim is one for one in minted):
                    self._waiting.copies.owe(claim, minted=True)
                self._waiting.copies.end(claim, outcome)

    async def force_release(self, call: Call) -> Body:
        """End a lease without its token."""
        request: ForceReleaseRequest = call.request
        principal, number = call.principal, request.fencing_token
        self._policies.check_key(principal, request.key)
        key = stored_key(principal, request.key)
        number = None if number is UNSET else number
        aim = "whoever holds it" if number is None else f"fencing token {number}"
        reason = "" if request.reason is UNSET else request.reason
        detail = f"{aim}: {reason}" if reason else aim
        await self._gate.record(principal, "force-release", key=request.key, detail=detail)
        forced, state, ended = await self._force(key, number)
        if forced:
            self._env.lines.released(key)
            if state != "closed":  # else it was only opened: the hold had come to its own end
                self._note((principal.project, Forced(key, ended, reason), None, self._env.clock.wall()))
            known = {} if ended is None else {"fencingToken": ended}
            self._events.publish(principal.project, "force_released", key=request.key, by=principal.name, **known)
        self._metrics.count("force-release", "released" if forced else "not_holder")
        return wire.write_forced(forced=forced)

    async def _force(self, key: str, number: int | None) -> tuple[bool, State, int | None]:
        """Whether a hold was ended or a key opened, what it was before, and of which hold. Without a number that of
        the holder is sent, whoever that is by then: history and events name the hold that ended, and none before it."""
        timeout = self._env.timeout
        for _ in range(_HOLDERS):
            seen = await self._store.status(key, timeout=timeout)
            ended = number or seen.fencing_token
            forced = await self._store.force_release(key, fencing_token=ended, timeout=timeout)
            if forced or ended is None or number is not None:
                return forced, seen.state, ended
        return await self._store.force_release(key, fencing_token=None, timeout=timeout), "held", None

    async def status(self, call: Call) -> Body:
        """What anyone of the project may see of a key."""
        key = call.query.get("key", "")
        self._policies.check_key(call.principal, key)
        stored = stored_key(call.principal, key)
        return self._show(call.principal, await self._store.status(stored, timeout=self._env.timeout))

    async def list(self, call: Call) -> Body:
        """A page of the held and closed keys of the project."""
        principal, query = call.principal, {**_PAGE_QUERY, **call.query}
        prefix, after, limit = check_prefix(query["prefix"]), check_prefix(query["after"]), query["limit"]
        if not (limit.isascii() and limit.isdecimal() and len(limit) < 6 and 1 <= int(limit) <= MAX_LIST_PAGE):
            raise InvalidRequest(f"limit {limit[:40]!r} is no whole number from 1 to {MAX_LIST_PAGE}")
        found = await self._store.list(
            stored_beginning(principal, prefix),
            after=stored_beginning(principal, after),
            limit=int(limit),
            timeout=self._env.timeout,
        )
        return {"locks": [self._show(principal, status) for status in found]}

    def _operation(self, principal: Principal, request: Any) -> Operation:
        """The operation that a request asks for, as the store knows it."""
        if isinstance(request, AcquireRequest | AcquireMember):
            return Acquire(self._claim(principal, request))
        self._policies.check_key(principal, request.key)
        key = stored_key(principal, request.key)
        if isinstance(request, RenewRequest):
            ttl, number = request.ttl_ms / 1000.0, request.renewal
            self._policies.check_ttl(principal, ttl)
            if not isinstance(number, int):
                raise InvalidRequest("a renewal in a batch needs its number, renewal", hint="count from 1")
            return Renew(key, request.token, ttl, number)
        if isinstance(request, ReleaseRequest):
            return Release(key, request.token, request.late is not False)
        if isinstance(request, LookRequest):
            return Look(key, request.token)
        return Abandon(key, request.token, None if request.heard is UNSET else request.heard)

    def _claim(self, principal: Principal, request: AcquireRequest | AcquireMember) -> Claim:
        key, ttl, token, owner = request.key, request.ttl_ms / 1000.0, request.token, request.owner
        self._policies.check_key(principal, key)
        self._policies.check_ttl(principal, ttl)
        hold_at_least, lock_delay = request.hold_at_least_ms or 0, request.lock_delay_ms or 0
        if hold_at_least or lock_delay:
            self._policies.check_terms(principal, hold_at_least=hold_at_least / 1000.0, lock_delay=lock_delay / 1000.0)
        local = principal.kind == "local"
        late = request.late
        return Claim(
            stored_key(principal, key) if principal.project else key,
            secrets.token_hex(16) if token is UNSET else token,
            ttl,
            None if owner is UNSET else stored_owner(principal, check_owner(owner)),
            None if request.request_id is UNSET else request.request_id,
            terms_of(
                request.max_hold_ms or None,
                hold_at_least,
                lock_delay=lock_delay,
                held_by=check_plain(request.client or "", what="client") if local else principal.name,
                metadata="{}" if request.metadata is UNSET else metadata_text(request.metadata),
            ),
            token is not UNSET if late is UNSET else late,
        )

    def _answer(self, principal: Principal, request: Any, *, operation: Operation, outcome: Outcomes) -> Body:
        """The body for an outcome, with keys and owners as the caller knows them; others hear of it."""
        wall = self._env.clock.wall()
        body = wire.write_outcome(operation, outcome, wall=wall)
        if principal.project:
            _unmask(body, request.key)
        self._note((principal.project, operation, outcome, wall))
        if self._events.readers:
            event = _EVENTS.get((ACTIONS[type(operation)], word_of(outcome)))
            if event is not None:
                known = {member: body[member] for member in _TOLD if member in body}
                if event == "acquired" and isinstance(operation, Acquire):
                    known["heldBy"] = operation.claim.terms.held_by
                self._events.publish(principal.project, event, key=request.key, by=principal.name, **known)
        if request.request_id is not UNSET:
            body["requestId"] = request.request_id
        return body

    def _show(self, principal: Principal, status: Status) -> Body:
        body = wire.write_status(status)
        body["key"], body["owner"] = shown_key(principal, status.key), shown_owner(status.owner)
        body["waiters"] = self._env.lines.waiting(status.key)
        return body


def _unmask(body: Body, key: str) -> None:
    """Show key and owners as the callers of the project know them."""
    if "key" in body:
        body["key"] = key
    if body.get("owner") is not None:
        body["owner"] = shown_owner(body["owner"])
    holder = body.get("holder")
    if holder is not None:
        holder["key"], holder["owner"] = key, shown_owner(holder["owner"])


_MEMBERS: dict[type[Member], Action] = {
    AcquireMember: "acquire",
    RenewMember: "renew",
    ReleaseMember: "release",
    AbandonMember: "abandon",
    LookMember: "look",
}
_TOLD = ("owner", "fencingToken", "ttlMs", "leftMs", "lostReason")
# Outcomes that others hear of, by operation.
_EVENTS = {
    ("acquire", "held"): "acquired",
    ("acquire", "contended"): "contended",
    ("renew", "held"): "renewed",
    ("renew", "lost"): "lost",
    ("release", "released"): "released",
}


def _may_hold(error: object) -> bool:
    """Whether the key may be held although that came instead of an answer."""
    return isinstance(error, CancelledError) or (isinstance(error, StoreUnavailable) and error.applied is not False)
