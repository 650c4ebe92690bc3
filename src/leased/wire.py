"""What the lock service and its clients say to each other, as JSON objects; it reads no bytes and opens nothing.

Names are in camelCase; times are whole milliseconds and say so in their name, instants are RFC 3339 text. Times asked
for are rounded up, times reported down, so that nobody gets less than he asked for or believes longer than he may.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias, get_args

from leased.model import (
    EXCLUSIVITY,
    Abandon,
    Acquire,
    Assurance,
    Claim,
    Contended,
    Held,
    Lease,
    Look,
    Lost,
    LostReason,
    Operation,
    Release,
    Released,
    Renew,
    Status,
)

Body: TypeAlias = dict[str, Any]
"""A JSON object."""

PREFIX = "/v1/locks/"
"""Where the operations are: the path of each is this and its name."""


class Unreadable(ValueError):
    """What came is not what this side of the conversation says."""


_LOST_REASONS = get_args(LostReason)
_STATES = ("free", "held", "closed")


def at_least(seconds: float) -> int:
    """Milliseconds that are no less than these seconds."""
    return math.ceil(round(seconds * 1000.0, 3))


def at_most(seconds: float) -> int:
    """Milliseconds that are no more than these seconds."""
    return math.floor(seconds * 1000.0 + 0.0005)


def instant(seconds: float) -> str:
    """An instant, given in seconds since the epoch, as text; for display only."""
    minute, part = divmod(at_most(seconds), 60_000)
    return f"{_whole_minute(minute)}:{part // 1000:02d}.{part % 1000:03d}Z"


@lru_cache(maxsize=256)  # those that are shown at the same time are few
def _whole_minute(minute: int) -> str:
    return datetime.fromtimestamp(60 * minute, UTC).isoformat()[: -len(":00+00:00")]


def name_of(operation: Operation) -> str:
    """What an operation is called in paths and batches."""
    return type(operation).__name__.lower()


def write_operation(operation: Operation, *, wait: float = 0.0) -> Body:
    """The body of a request; `wait` seconds are for an acquire that the service may keep in its line."""
    match operation:
        case Acquire(claim):
            return _write_claim(claim, wait=wait)
        case Renew(key, token, ttl, number):
            return {"key": key, "token": token, "ttlMs": at_least(ttl), "renewal": number}
        case Release(key, token, late):
            return {"key": key, "token": token, "late": late}
        case Abandon(key, token, heard) if heard is not None:
            return {"key": key, "token": token, "heard": heard}
        case Abandon(key, token) | Look(key, token):
            return {"key": key, "token": token}


def _write_claim(claim: Claim, *, wait: float) -> Body:
    terms = claim.terms
    body: Body = {
        "key": claim.key,
        "token": claim.token,
        "ttlMs": at_least(claim.ttl),
        "maxHoldMs": at_least(terms.max_hold),
        "late": claim.late,
        "client": terms.held_by,
    }
    if wait > 0:
        body["waitMs"] = at_least(wait)
    if claim.owner is not None:
        body["owner"] = claim.owner
    if claim.request_id is not None:
        body["requestId"] = claim.request_id
    if terms.hold_at_least:
        body["holdAtLeastMs"] = at_least(terms.hold_at_least)
    if terms.lock_delay:
        body["lockDelayMs"] = at_least(terms.lock_delay)
    if terms.metadata != "{}":
        body["metadata"] = _metadata_in(terms.metadata)
    return body


@lru_cache(maxsize=64)  # a process has few, and puts one of them into each claim; nobody changes what is found
def _metadata_in(text: str) -> Any:
    return json.loads(text)


def write_outcome(
    operation: Operation, outcome: Held | Contended | Lost | Released | None, *, wall: float, retry_after: float = 1.0
) -> Body:
    """What the service answers; `wall` is its time in seconds since the epoch, `retry_after` the advice when busy."""
    match outcome:
        case Held(lease):
            body = _write_lease(lease, wall=wall)
            if isinstance(operation, Acquire):
                return {"acquired": True, "token": lease.token, **body}
            return {("renewed" if isinstance(operation, Renew) else "held"): True, **body}
        case Contended(status, ended):
            body = {
                "acquired": False,
                "key": operation.claim.key if isinstance(operation, Acquire) else operation.key,
                "holder": None if status is None else write_status(status),
                "retryAfterMs": at_least(retry_after),
                "waitedMs": at_most(outcome.waited),
            }
            return {**body, "ended": True} if ended else body
        case Lost(reason):
            if isinstance(operation, Renew):
                return {"renewed": False, "reason": "lease_lost", "lostReason": reason}
            return {"held": False, "lostReason": reason}
        case Released(reason):
            return {"released": False, "reason": reason} if reason else {"released": True}
        case None:
            return {"abandoned": True}


def _write_lease(lease: Lease, *, wall: float) -> Body:
    expires_at = instant(wall + lease.left)
    return {
        "key": lease.key,
        "owner": lease.owner,
        "fencingToken": lease.fencing_token,
        "ttlMs": at_most(lease.ttl),
        "leftMs": at_most(lease.left),
        "waitedMs": at_most(lease.waited),
        "expiresAt": expires_at,
        "leaseExpiresAt": expires_at,
        "renewal": lease.renewal,
    }


def read_outcome(operation: Operation, body: Body) -> Held | Contended | Lost | Released | None:
    """What the service answered to an operation; `Unreadable` for what it cannot have meant."""
    match operation:
        case Acquire(claim):
            if _flag(body, "acquired"):
                return Held(_read_lease(body, claim.key, token=claim.token, owner=claim.owner))
            holder = body.get("holder")
            status = None if holder is None else read_status(_object(holder))
            return Contended(status, body.get("ended") is True, waited=_seconds(body, "waitedMs"))
        case Renew(key, token) if _flag(body, "renewed"):
            return Held(_read_lease(body, key, token=token, owner=_text_or_none(body, "owner")))
        case Look(key, token) if _flag(body, "held"):
            return Held(_read_lease(body, key, token=token, owner=_text_or_none(body, "owner")))
        case Renew() | Look():
            reason: Any = body.get("lostReason")
            if reason not in _LOST_REASONS:
                raise Unreadable(f"lostReason {reason!r} is unknown")
            return Lost(reason)
        case Release():
            why: Any = "" if _flag(body, "released") else body.get("reason")
            if why not in ("", "not_holder", "expired"):
                raise Unreadable(f"reason {why!r} is unknown")
            return Released(why)
        case Abandon():
            _flag(body, "abandoned")
            return None


def _read_lease(body: Body, key: str, *, token: str, owner: str | None) -> Lease:
    return Lease(
        key=key,
        token=token,
        fencing_token=_whole(body, "fencingToken"),
        ttl=_seconds(body, "ttlMs"),
        owner=owner,
        left=_seconds(body, "leftMs"),
        waited=_seconds(body, "waitedMs"),
        renewal=_whole(body, "renewal"),
    )


def write_force_release(key: str, fencing_token: int | None) -> Body:
    """The body of a request to release by force; with a number, only if that is still the holder's."""
    return {"key": key} if fencing_token is None else {"key": key, "fencingToken": fencing_token}


def write_forced(*, forced: bool) -> Body:
    """What the service answers to it: whether a lease was ended, or a closed key opened."""
    return {"released": forced}


def read_forced(body: Body) -> bool:
    """The same, read back; `Unreadable` for what it cannot have meant."""
    return _flag(body, "released")


def write_status(status: Status) -> Body:
    """What anyone may see of a key."""

    def span(seconds: float | None) -> int | None:
        return None if seconds is None else at_least(seconds)

    def moment(seconds: float | None) -> str | None:
        return None if seconds is None else instant(seconds)

    return {
        "key": status.key,
        "state": status.state,
        "held": status.held,
        "owner": status.owner,
        "heldBy": status.held_by,
        "expiresInMs": span(status.expires_in),
        "expiresAt": moment(status.expires_at),
        "freeInMs": span(status.free_in),
        "freeAt": moment(status.free_at),
        "fencingToken": status.fencing_token,
        "acquiredAt": moment(status.acquired_at),
        "metadata": dict(status.metadata),
        "waiters": status.waiters,
    }


def read_status(body: Body) -> Status:
    """The same, read back; `Unreadable` for what it cannot have meant."""

    def span(name: str) -> float | None:
        return None if body.get(name) is None else _seconds(body, name)

    def moment(name: str) -> float | None:
        text = _text_or_none(body, name)
        try:
            return None if text is None else datetime.fromisoformat(text).timestamp()
        except ValueError:
            raise Unreadable(f"{name} {text!r} is no instant") from None

    state, metadata = body.get("state"), body.get("metadata")
    if state not in _STATES:
        raise Unreadable(f"state {state!r} is unknown")
    return Status(
        key=_text(body, "key"),
        state=state,
        owner=_text_or_none(body, "owner"),
        held_by=_text_or_none(body, "heldBy"),
        expires_in=span("expiresInMs"),
        expires_at=moment("expiresAt"),
        free_in=span("freeInMs"),
        free_at=moment("freeAt"),
        fencing_token=None if body.get("fencingToken") is None else _whole(body, "fencingToken"),
        acquired_at=moment("acquiredAt"),
        metadata=metadata if isinstance(metadata, dict) else {},
        waiters=None if body.get("waiters") is None else _whole(body, "waiters"),
    )


def write_assurance(assurance: Assurance) -> Body:
    """What the store behind the service gives."""
    return {
        "exclusive": assurance.exclusive,
        "earlyLoss": assurance.early_loss,
        "durable": assurance.durable,
        "takeover": assurance.takeover,
        "fence": assurance.fence,
        "clockMargin": assurance.clock_margin,
        "notes": list(assurance.notes),
        "known": assurance.known,
    }


def read_assurance(body: Body) -> Assurance:
    """The same, read back; `Unreadable` for what it cannot have meant."""
    exclusive = _text(body, "exclusive")
    if exclusive not in EXCLUSIVITY:
        raise Unreadable(f"exclusive {exclusive!r} is unknown")
    notes = body.get("notes")
    margin = body.get("clockMargin")
    if not isinstance(notes, list) or not isinstance(margin, int | float):
        raise Unreadable("notes are a list, and clockMargin is a number")
    return Assurance(
        exclusive=exclusive,
        early_loss=_flag(body, "earlyLoss"),
        durable=_text(body, "durable"),
        takeover=_text(body, "takeover"),
        fence=_text(body, "fence"),
        clock_margin=float(margin),
        notes=tuple(str(note) for note in notes),
        known=_flag(body, "known"),
    )


def _object(value: object) -> Body:
    if not isinstance(value, dict):
        raise Unreadable(f"an object is expected, not {type(value).__name__}")
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if not isinstance(value, bool):
        raise Unreadable(f"{name} is true or false, not {type(value).__name__}")
    return value


def _whole(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    if type(value) is not int or value < 0:
        raise Unreadable(f"{name} is a whole number, not {value!r}")
    return value


def _seconds(body: Mapping[str, Any], name: str) -> float:
    return _whole(body, name) / 1000.0


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise Unreadable(f"{name} is text, not {type(value).__name__}")
    return value


def _text_or_none(body: Mapping[str, Any], name: str) -> str | None:
    return None if body.get(name) is None else _text(body, name)
