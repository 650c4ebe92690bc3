"""The store contract as decisions: from what was seen of a key to the answer and what is to be written. No I/O."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from leased.model import Claim, Contended, Held, Lost, LostReason, Released, Status
from leased.stores._sql_record import NEVER_GRANTED, REPLAY, Record, digest_of, microseconds, written_terms


class View(Protocol):
    """What was seen at one instant; the mark of the token that asks may be looked for when it is needed."""

    @property
    def record(self) -> Record | None:
        """The record of the key; `None`: there is none."""
        ...

    @property
    def now(self) -> int:
        """The store's clock, read after any wait for a lock."""
        ...

    @property
    def zero(self) -> int:
        """When that clock began: µs since the epoch."""
        ...

    @property
    def last(self) -> int | None:
        """The last fencing token of all, where all keys share one sequence; `None`: that of the record counts."""
        ...

    def ended(self, token: bytes, /) -> str | None:
        """Why the token that asks, this one, has ended; `None`: it is not marked."""
        ...


class Effect(NamedTuple):
    """What an operation changes: the record of its key, and tokens to be marked, with the reason of each.

    `freed` says that the lease ended, or a closed key opened, so that those who watch it are to be told.
    """

    record: Record
    marks: tuple[tuple[bytes, str], ...] = ()
    freed: bool = False


def acquire(seen: View, *, claim: Claim) -> tuple[Held | Contended, Effect | None]:
    """See `leased.store`."""
    record, now, token = seen.record, seen.now, digest_of(claim.token)
    if record is None:
        return _refused(claim.key, seen, ended=True) if seen.ended(token) else _grant(claim, seen, token=token)
    held = record.held(now)
    if held and record.has(token):
        told = record.told_again(late=claim.late)
        return record.answer(claim.key, claim.token, now=now), None if told == record else Effect(told)
    if record.has(token) or seen.ended(token):
        return _refused(claim.key, seen, ended=True)
    if held and (claim.owner is None or record.owner != claim.owner.encode()):
        return _refused(claim.key, seen)
    if held:
        return _grant(claim, seen, token=token, ends="retaken")
    if record.closed(now):
        return _refused(claim.key, seen)
    return _grant(claim, seen, token=token, ends="expired" if record.late else None)


def renew(seen: View, *, key: str, token: str, ttl: float, number: int) -> tuple[Held | Lost, Effect | None]:
    """See `leased.store`."""
    record, now, digest = seen.record, seen.now, digest_of(token)
    if record is None or not record.has(digest) or now >= record.expires_at:
        return Lost(_lost_reason(seen, digest)), None
    if number <= max(record.renewal, 0):
        return record.answer(key, token, now=now), None
    length = microseconds(ttl)
    expires_at = min(now + length, record.deadline)
    free_at = max(expires_at + record.lock_delay, record.acquired_at + record.hold_at_least)
    record = record._replace(renewal=number, expires_at=expires_at, free_at=free_at, ttl=length)
    return record.answer(key, token, now=now), Effect(record)


def look(seen: View, *, key: str, token: str) -> Held | Lost:
    """See `leased.store`."""
    return renew(seen, key=key, token=token, ttl=0.0, number=-1)[0]


def release(seen: View, *, token: str, late: bool) -> tuple[Released, Effect | None]:
    """See `leased.store`."""
    record, now, digest = seen.record, seen.now, digest_of(token)
    mine = record is not None and record.has(digest)
    marks = ((digest, "released"),) if late or (mine and record is not None and record.late) else ()
    if record is None or not mine:
        return Released("not_holder"), _marking(record, marks, now=now) if marks else None
    if now >= record.expires_at:
        return Released("expired"), _marking(record, marks, now=now) if marks else None
    ended = record.ended(max(now, record.acquired_at + record.hold_at_least))
    return Released(), _marking(ended, marks, now=now, freed=True)


def abandon(seen: View, *, token: str, heard: int | None = None) -> Effect | None:
    """See `leased.store`."""
    record, now, digest = seen.record, seen.now, digest_of(token)
    marks = ((digest, "abandoned"),)
    if record is not None and record.has(digest) and now < record.expires_at:
        if heard is not None and not 0 < -record.renewal <= heard:
            return None
        return _marking(record.ended(now), marks, now=now, freed=True)
    return _marking(record, marks, now=now)


def force_release(seen: View, *, fencing_token: int | None) -> tuple[bool, Effect | None]:
    """See `leased.store`."""
    record, now = seen.record, seen.now
    if record is None or fencing_token not in (None, record.fencing_token):
        return False, None
    if record.held(now):
        marks = _marks(record, "force_released")
        ended = record.ended(now + record.lock_delay)._replace(forced=True)
        return True, _marking(ended, marks, now=now, freed=True)
    if record.forced or not record.closed(now):
        return False, None
    marks = _marks(record, "expired" if record.late else None)
    return True, _marking(record.ended(now), marks, now=now, freed=True)


def status(seen: View, *, key: str) -> Status:
    """See `leased.store`."""
    record = seen.record
    return Status(key) if record is None else record.status(key, now=seen.now, zero=seen.zero)


def _refused(key: str, seen: View, *, ended: bool = False) -> tuple[Contended, None]:
    return Contended(status(seen, key=key), ended=ended), None


def _grant(claim: Claim, seen: View, *, token: bytes, ends: str | None = None) -> tuple[Held, Effect]:
    """A new grant of the key, which `ends` the lease before it for that reason."""
    before, now, last = seen.record, seen.now, seen.last
    held_by, metadata, length, closed, max_hold, ttl, hold_at_least, lock_delay = written_terms(claim.ttl, claim.terms)
    if last is None:
        last = before.fencing_token if before else 0
    record = Record(
        token=token,
        owner=None if claim.owner is None else claim.owner.encode(),
        held_by=held_by,
        metadata=metadata,
        fencing_token=max(last + 1, now + seen.zero),
        renewal=-1,
        acquired_at=now,
        expires_at=now + length,
        free_at=now + closed,
        deadline=now + max_hold,
        ttl=ttl,
        hold_at_least=hold_at_least,
        lock_delay=lock_delay,
        late=claim.late,
        forced=False,
        marked_until=before.marked_until if before else 0,
    )
    marks = _marks(before, ends) if before and ends else ()
    return record.answer(claim.key, claim.token, now=now), _marking(record, marks, now=now)


def _marks(record: Record, reason: str | None) -> tuple[tuple[bytes, str], ...]:
    return ((record.token, reason),) if reason and record.token is not None else ()


def _marking(record: Record | None, marks: tuple[tuple[bytes, str], ...], *, now: int, freed: bool = False) -> Effect:
    """The effect with these marks: who claims the key meanwhile has to look for them, so it needs a record."""
    record = record or NEVER_GRANTED
    if marks:
        record = record._replace(marked_until=max(record.marked_until, now + REPLAY))
    return Effect(record, marks, freed)


def _lost_reason(seen: View, token: bytes) -> LostReason:
    record, now = seen.record, seen.now
    if record is not None and record.has(token):
        return "max_hold" if now >= record.deadline else "expired"
    mark = seen.ended(token)
    if mark in ("retaken", "force_released"):
        return "retaken" if mark == "retaken" else "force_released"
    return "taken" if record is not None and record.held(now) else "expired"
