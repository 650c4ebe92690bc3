"""The store contract as a pure function, to compare stores with: it shares no code with any store and does no I/O.

`step(state, now, wall, command)` answers one command and gives the state after it; states are never changed. The
contract leaves a store two freedoms, and `outcomes` gives every answer that they allow: the record of an open key may
be forgotten at any time, and an ended token may be remembered for longer than it must be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from leased.model import (
    Abandon,
    Acquire,
    Claim,
    Contended,
    Held,
    Lease,
    Look,
    Lost,
    Operation,
    Release,
    Released,
    Renew,
    Status,
    Terms,
    read_metadata,
)
from leased.policy import REPLAY_WINDOW


@dataclass(frozen=True, slots=True)
class ShowStatus:
    """The command behind `Store.status`."""

    key: str


@dataclass(frozen=True, slots=True)
class ShowList:
    """The command behind `Store.list`."""

    prefix: str = ""
    after: str = ""
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class ForceRelease:
    """The command behind `Store.force_release`."""

    key: str
    fencing_token: int | None = None


Command: TypeAlias = Operation | ShowStatus | ShowList | ForceRelease
Answer: TypeAlias = Held | Contended | Lost | Released | Status | list[Status] | bool | None
Ending: TypeAlias = Literal["retaken", "force_released", "released", "abandoned", "expired"]


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of the last lease of a key. `token` is `None` once it was released, forced or abandoned.

    `told`: how often claims were told, before the first renewal, that this token holds the key.
    """

    key: str
    token: str | None
    owner: str | None
    terms: Terms
    fencing_token: int
    acquired_at: float
    acquired_wall: float
    deadline: float
    ttl: float = 0.0
    expires_at: float = 0.0
    free_at: float = 0.0
    renewal: int = 0
    told: int = 1
    late: bool = False
    forced: bool = False

    def held(self, now: float) -> bool:
        """Whether somebody has the key now."""
        return self.token is not None and now < self.expires_at

    def closed(self, now: float) -> bool:
        """Whether nobody has the key and nobody can take it yet."""
        return not self.held(now) and now < self.free_at

    def held_by(self, token: str, now: float) -> bool:
        """Whether this token has the key now."""
        return self.token == token and now < self.expires_at

    def with_expiry(self, ttl: float, now: float) -> Record:
        """The same lease, running out `ttl` seconds from now, though never after its deadline."""
        expires_at = min(now + ttl, self.deadline)
        free_at = max(expires_at + self.terms.lock_delay, self.acquired_at + self.terms.hold_at_least)
        return replace(self, ttl=ttl, expires_at=expires_at, free_at=free_at)

    def lease(self, token: str, now: float) -> Held:
        """The answer that this token has the key."""
        left = self.expires_at - now
        return Held(Lease(self.key, token, self.fencing_token, self.ttl, self.owner, left=left, renewal=self.renewal))


@dataclass(frozen=True, slots=True)
class Mark:
    """That a token has ended, remembered until an instant."""

    ending: Ending
    until: float


@dataclass(frozen=True, slots=True)
class State:
    """All that a store has to remember. `last` is the highest fencing token of the whole store.

    `numbers` says whether fencing tokens rise from the last one of the key or of the whole store.
    """

    numbers: Literal["key", "store"] = "store"
    last: int = 0
    records: Mapping[str, Record] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)

    def marked(self, token: str, now: float) -> Ending | None:
        """Why this token has ended, where that must be remembered."""
        mark = self.marks.get(token)
        return mark.ending if mark and now < mark.until else None

    def mark(self, token: str | None, ending: Ending, *, since: float) -> State:
        """Remember for a window that a token has ended; the first reason stands, and `None` is no token."""
        if token is None:
            return self
        mark = Mark(self.marked(token, since) or ending, since + REPLAY_WINDOW)
        return replace(self, marks={**self.marks, token: mark})

    def put(self, record: Record) -> State:
        """The state with this record in place of the key's earlier one."""
        return replace(self, records={**self.records, record.key: record})


def step(state: State, now: float, wall: float, command: Command) -> tuple[State, Answer]:
    """One command, all of it at the instant `now` of the store's clock; `wall` is the wall clock at that instant."""
    match command:
        case Acquire(claim):
            return _acquire(state, claim, now, wall)
        case Renew():
            state = _renew(state, command, now)
            return state, _look(state, command.key, command.token, now)
        case Look(key, token):
            return state, _look(state, key, token, now)
        case Release():
            return _release(state, command, now)
        case Abandon(key, token, heard):
            record = state.records.get(key)
            if record and record.held_by(token, now):
                if heard is not None and (record.renewal or record.told > heard):
                    return state, None
                state = state.put(replace(record, token=None, free_at=now))
            return state.mark(token, "abandoned", since=now), None
        case ForceRelease(key, fencing_token):
            return _force(state, key, now, fencing_token)
        case ShowStatus(key):
            return state, _status(state, key, now, wall)
        case ShowList():
            return state, _page(state, now, wall, command)


def outcomes(state: State, now: float, wall: float, command: Command) -> Iterator[tuple[State, Answer]]:
    """Every outcome that the contract allows, the plain one first."""
    yield step(state, now, wall, command)
    match command:
        case Acquire(Claim(key=key, token=token)) | Renew(key, token) | Release(key, token) | Look(key, token):
            yield step(forget(state, key, now=now), now, wall, command)
            yield state, step(remember(state, token), now, wall, command)[1]
        case Abandon() | ForceRelease() | ShowStatus() | ShowList():
            return  # these answer the same, whatever was forgotten


def forget(state: State, key: str, *, now: float) -> State:
    """The state after a store dropped what it knew of an open key, but for what the fencing tokens need.

    A late copy of the claim that ended is still refused for as long as it could arrive.
    """
    record = state.records.get(key)
    if record is None or record.token is None or record.held(now) or record.closed(now):
        return state
    if record.late and not state.marked(record.token, now):
        state = state.mark(record.token, "expired", since=record.expires_at)
    return state.put(replace(record, token=None))


def remember(state: State, token: str) -> State:
    """The state in a store that has not swept the mark of this token yet."""
    mark = state.marks.get(token)
    return state if mark is None else replace(state, marks={**state.marks, token: replace(mark, until=math.inf)})


def _acquire(state: State, claim: Claim, now: float, wall: float) -> tuple[State, Answer]:
    record = state.records.get(claim.key)
    if record and record.held_by(claim.token, now):
        record = replace(record, late=record.late or claim.late, told=record.told + 1)
        return state.put(record), record.lease(claim.token, now)
    status = _status(state, claim.key, now, wall)
    if state.marked(claim.token, now) or (record and record.token == claim.token):
        return state, Contended(status, ended=True)
    if record and record.held(now):
        if claim.owner is None or claim.owner != record.owner:
            return state, Contended(status)
        state = state.mark(record.token, "retaken", since=now)
    elif record and record.closed(now):
        return state, Contended(status)
    elif record and record.late and not state.marked(record.token or "", now):
        state = state.mark(
            record.token, "expired", since=record.expires_at
        )  # not later: it may have been forgotten before
    return _grant(state, claim, now, wall)


def _grant(state: State, claim: Claim, now: float, wall: float) -> tuple[State, Answer]:
    before = state.records.get(claim.key)
    previous = state.last if state.numbers == "store" else before.fencing_token if before else 0
    number = max(previous + 1, int(wall * 1_000_000))
    deadline = now + claim.terms.max_hold
    record = Record(claim.key, claim.token, claim.owner, claim.terms, number, now, wall, deadline, late=claim.late)
    record = record.with_expiry(claim.ttl, now)
    return replace(state.put(record), last=max(state.last, number)), record.lease(claim.token, now)


def _renew(state: State, renew: Renew, now: float) -> State:
    record = state.records.get(renew.key)
    if record is None or not record.held_by(renew.token, now) or renew.number <= record.renewal:
        return state
    return state.put(replace(record, renewal=renew.number).with_expiry(renew.ttl, now))


def _look(state: State, key: str, token: str, now: float) -> Held | Lost:
    record = state.records.get(key)
    if record and record.held_by(token, now):
        return record.lease(token, now)
    if record and record.token == token:
        return Lost("max_hold" if now >= record.deadline else "expired")
    ending = state.marked(token, now)
    if ending in ("retaken", "force_released"):
        return Lost(ending)
    return Lost("taken" if record and record.held(now) else "expired")


def _release(state: State, release: Release, now: float) -> tuple[State, Answer]:
    record = state.records.get(release.key)
    mine = record is not None and record.token == release.token
    if release.late or (record and mine and record.late):
        state = state.mark(release.token, "released", since=now)
    if record and record.held_by(release.token, now):
        free_at = max(now, record.acquired_at + record.terms.hold_at_least)
        return state.put(replace(record, token=None, free_at=free_at)), Released()
    return state, Released("expired" if mine else "not_holder")


def _force(state: State, key: str, now: float, fencing_token: int | None) -> tuple[State, bool]:
    record = state.records.get(key)
    if record is None or fencing_token not in (None, record.fencing_token):
        return state, False
    if record.held(now):
        forced = replace(record, token=None, free_at=now + record.terms.lock_delay, forced=True)
        return state.mark(record.token, "force_released", since=now).put(forced), True
    if record.forced or not record.closed(now):
        return state, False
    if record.late:
        state = state.mark(record.token, "expired", since=now)
    return state.put(replace(record, free_at=now)), True


def _status(state: State, key: str, now: float, wall: float) -> Status:
    record = state.records.get(key)
    if record is None or not (record.held(now) or record.closed(now)):
        return Status(key)
    free_in = record.free_at - now
    seen = Status(key, "closed", free_in=free_in, free_at=wall + free_in, fencing_token=record.fencing_token)
    if not record.held(now):
        return seen
    left = record.expires_at - now
    shown = record.terms
    seen = replace(seen, owner=record.owner, held_by=shown.held_by, metadata=read_metadata(shown.metadata))
    return replace(seen, state="held", expires_in=left, expires_at=wall + left, acquired_at=record.acquired_wall)


def _page(state: State, now: float, wall: float, command: ShowList) -> list[Status]:
    after = command.after.encode()
    keys = sorted(key.encode() for key in state.records if key.startswith(command.prefix) and key.encode() > after)
    shown = (_status(state, key.decode(), now, wall) for key in keys)
    return [status for status in shown if status.held][: command.limit]
