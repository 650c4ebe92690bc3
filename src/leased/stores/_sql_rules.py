"""The store contract as decisions: from what was seen of a key to the answer and what is to be written. No I/O."""

from __future__ import annotations

from typing import NamedTuple

from leased.model import Claim, Contended, Held, Lost, LostReason, Released, Status
from leased.stores._sql_record import NEVER_GRANTED, REPLAY, Record, Seen, asked, digest_of, microseconds


class Effect(NamedTuple):
    """What an operation changes: the record of its key, and tokens to be marked, with the reason of each.

    `freed` says that the lease ended, or a closed key opened, so that those who watch it are to be told.
    """

    record: Record
    marks: tuple[tuple[bytes, str], ...] = ()
    freed: bool = False


def acquire(seen: Seen, *, claim: Claim) -> tuple[Held | Contended, Effect | None]:
    """See `leased.store`."""
    record, now, token = seen.record, seen.now, digest_of(claim.token)
    if record is None:
        return _refused(claim.key, seen, ended=True) if seen.mark else _grant(claim, seen)
    held = record.held(now)
    if held and record.has(token):
        noted = Effect(record._replace(late=True)) if claim.late and not record.late else None
        return record.answer(claim.key, claim.token, now=now), noted
    if record.has(token) or seen.mark:
        return _refused(claim.key, seen, ended=True)
    if held and (claim.owner is None or record.owner != claim.owner.encode()):
        return _refused(claim.key, seen)
    if held:
        return _grant(claim, seen, ends="retaken")
    if record.closed(now):
        return _refused(claim.key, seen)
    return _grant(claim, seen, ends="expired" if record.late else None)


def renew(seen: Seen, *, key: str, token: str, ttl: float, number: int) -> tuple[Held | Lost, Effect | None]:
    """See `leased.store`."""
    record, now, digest = seen.record, seen.now, digest_of(token)
    if record is None or not record.has(digest) or now >= record.expires_at:
        return Lost(_lost_reason(seen, digest)), None
    if number <= record.renewal:
        return record.answer(key, token, now=now), None
    length = microseconds(ttl)
    expires_at = min(now + length, record.deadline)
    free_at = max(expires_at + record.lock_delay, record.acquired_at + record.hold_at_least)
    record = record._replace(renewal=number, expires_at=expires_at, free_at=free_at, ttl=length)
    return record.answer(key, token, now=now), Effect(record)


def look(seen: Seen, *, key: str, token: str) -> Held | Lost:
    """See `leased.store`."""
    return renew(seen, key=key, token=token, ttl=0.0, number=-1)[0]


def release(seen: Seen, *, token: str, late: bool) -> tuple[Released, Effect | None]:
    """See `leased.store`."""
    record, now, digest = seen.record, seen.now, digest_of(token)
    mine = record is not None and record.has(digest)
    marks = ((digest, "released"),) if late or (mine and record is not None and record.late) else ()
    if record is None or not mine:
        return Released("not_holder"), _marking(record, marks, now=now) if marks else None
    if now >= record.expires_at:
        return Released("expired"), _marking(record, marks, now=now) if marks else None
    ended = _ended(record, max(now, record.acquired_at + record.hold_at_least))
    return Released(), _marking(ended, marks, now=now, freed=True)


def abandon(seen: Seen, *, token: str) -> Effect:
    """See `leased.store`."""
    record, now, digest = seen.record, seen.now, digest_of(token)
    marks = ((digest, "abandoned"),)
    if record is not None and record.has(digest) and now < record.expires_at:
        return _marking(_ended(record, now), marks, now=now, freed=True)
    return _marking(record, marks, now=now)


def force_release(seen: Seen, *, fencing_token: int | None) -> tuple[bool, Effect | None]:
    """See `leased.store`."""
    record, now = seen.record, seen.now
    if record is None or fencing_token not in (None, record.fencing_token):
        return False, None
    if record.held(now):
        marks = _marks(record, "force_released")
        ended = _ended(record, now + record.lock_delay)._replace(forced=True)
        return True, _marking(ended, marks, now=now, freed=True)
    if record.forced or not record.closed(now):
        return False, None
    marks = _marks(record, "expired" if record.late else None)
    return True, _marking(_ended(record, now), marks, now=now, freed=True)


def status(seen: Seen, *, key: str) -> Status:
    """See `leased.store`."""
    return Status(key) if seen.record is None else seen.record.status(key, now=seen.now)


def _refused(key: str, seen: Seen, *, ended: bool = False) -> tuple[Contended, None]:
    return Contended(status(seen, key=key), ended=ended), None


def _grant(claim: Claim, seen: Seen, *, ends: str | None = None) -> tuple[Held, Effect]:
    """A new grant of the key, which `ends` the lease before it for that reason."""
    before, now, new = seen.record, seen.now, asked(claim)
    record = Record(
        token=new.token,
        owner=new.owner,
        held_by=new.held_by,
        metadata=new.metadata,
        fencing_token=max(before.fencing_token + 1, now) if before else now,
        renewal=0,
        acquired_at=now,
        expires_at=now + new.length,
        free_at=now + new.closed,
        deadline=now + new.max_hold,
        ttl=new.ttl,
        hold_at_least=new.hold_at_least,
        lock_delay=new.lock_delay,
        late=new.late,
        forced=False,
        marked_until=before.marked_until if before else 0,
    )
    return record.answer(claim.key, claim.token, now=now), _marking(
        record, _marks(before, ends) if before else (), now=now
    )


def _marks(record: Record, reason: str | None) -> tuple[tuple[bytes, str], ...]:
    return ((record.token, reason),) if reason and record.token is not None else ()


def _ended(record: Record, free_at: int) -> Record:
    """The record once its lease was ended; the key is closed until `free_at`."""
    return record._replace(token=None, late=False, forced=False, free_at=free_at)


def _marking(record: Record | None, marks: tuple[tuple[bytes, str], ...], *, now: int, freed: bool = False) -> Effect:
    """The effect with these marks: who claims the key meanwhile has to look for them, so it needs a record."""
    record = record or NEVER_GRANTED
    if marks:
        record = record._replace(marked_until=max(record.marked_until, now + REPLAY))
    return Effect(record, marks, freed)


def _lost_reason(seen: Seen, token: bytes) -> LostReason:
    record, now = seen.record, seen.now
    if record is not None and record.has(token):
        return "max_hold" if now >= record.deadline else "expired"
    if seen.mark in ("retaken", "force_released"):
        return "retaken" if seen.mark == "retaken" else "force_released"
    return "taken" if record is not None and record.held(now) else "expired"
