"""The value that stands for a key: its record and the marks of ended tokens, as JSON. It decides nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from leased.checks import shown
from leased.errors import StoreNotUsable
from leased.stores._senseless import SENSELESS
from leased.stores._sql_record import NEVER_GRANTED, REPLAY, RETENTION, SECOND, Record
from leased.stores._sql_rules import Effect

_FORMAT = 1
_MOST = 2**63 - 1  # as other stores keep them; nothing that is counted or timed comes near it
_FIRST_NUMBER, _LAST_NUMBER = Record._fields.index("fencing_token"), Record._fields.index("late")
_BOOLEAN = {False: "false", True: "true"}
_FREE_AT = re.compile(rb'"freeAt":([0-9]{1,20})[,}]')
_quoted = encode_basestring


class Mark(NamedTuple):
    """Why a token has ended, and until when, in µs since the epoch, that is remembered."""

    reason: str
    until: int


class Kept(NamedTuple):
    """What a value says: the record, and the marks by token."""

    record: Record | None = None
    marks: Mapping[bytes, Mark] = {}

    def after(self, effect: Effect, *, now: int) -> Kept:
        """What is to be written for an effect: marks that are over go, of others the first reason stays."""
        marks = {token: mark for token, mark in self.marks.items() if mark.until > now}
        for token, reason in effect.marks:
            known = marks.get(token)
            marks[token] = Mark(known.reason if known else reason, now + REPLAY)
        return Kept(effect.record, marks)

    @property
    def forget_at(self) -> float:
        """From when on nobody needs it, in seconds since the epoch."""
        record = self.record or NEVER_GRANTED
        granted = max(record.free_at, record.expires_at) + RETENTION if record.fencing_token else 0
        return max(granted, *(mark.until for mark in self.marks.values()), 0) / SECOND


def write(kept: Kept) -> bytes:
    """The value for a record and its marks."""
    record = kept.record or NEVER_GRANTED
    token = "null" if record.token is None else f'"{record.token.hex()}"'
    owner = "null" if record.owner is None else _quoted(record.owner.decode(errors="replace"))
    held_by = _quoted(record.held_by.decode(errors="replace"))
    metadata = _quoted(record.metadata.decode(errors="replace"))
    # Written by hand, for every write of every store without rules of its own takes this: JSON of a dictionary costs
    # twice as much.
    text = (
        f'{{"format":{_FORMAT},"token":{token},"owner":{owner},"heldBy":{held_by},"metadata":{metadata},'
        f'"fencingToken":{record.fencing_token},"renewal":{record.renewal},"acquiredAt":{record.acquired_at},'
        f'"expiresAt":{record.expires_at},"freeAt":{record.free_at},"deadline":{record.deadline},"ttl":{record.ttl},'
        f'"holdAtLeast":{record.hold_at_least},"lockDelay":{record.lock_delay},"late":{_BOOLEAN[record.late]},'
        f'"forced":{_BOOLEAN[record.forced]},"markedUntil":{record.marked_until}'
    )
    if kept.marks:
        ended = {token.hex(): [mark.reason, mark.until] for token, mark in kept.marks.items()}
        return f'{text},"ended":{json.dumps(ended, separators=(",", ":"))}}}'.encode()
    return f"{text}}}".encode()


def needed(value: bytes, now: float) -> bool:
    """Whether a glance at the value shows that it is needed at that time still, in seconds since the epoch; where it
    does not, `read` may."""
    found = _FREE_AT.search(value)
    return found is not None and int(found[1]) + RETENTION > now * SECOND


def read(key: str, value: bytes) -> Kept:
    """What a value says; `StoreNotUsable` for one that `leased` has not written."""
    try:
        fields = json.loads(value)
        if fields["format"] != _FORMAT:
            raise StoreNotUsable(
                f"the record of {shown(key)!r} has the format {shown(str(fields['format']))}, which is not known here",
                hint="a newer release wrote it: use that one",
            )
        return _kept(fields)
    except SENSELESS as error:
        raise StoreNotUsable(
            f"what stands for {shown(key)!r} is no record of leased", hint="give leased a place of its own"
        ) from error


def _kept(fields: dict[str, Any]) -> Kept:
    token, owner = fields["token"], fields["owner"]
    record = Record(
        token=None if token is None else bytes.fromhex(token),
        owner=None if owner is None else owner.encode(),
        held_by=fields["heldBy"].encode(),
        metadata=fields["metadata"].encode(),
        fencing_token=int(fields["fencingToken"]),
        renewal=int(fields["renewal"]),
        acquired_at=int(fields["acquiredAt"]),
        expires_at=int(fields["expiresAt"]),
        free_at=int(fields["freeAt"]),
        deadline=int(fields["deadline"]),
        ttl=int(fields["ttl"]),
        hold_at_least=int(fields["holdAtLeast"]),
        lock_delay=int(fields["lockDelay"]),
        late=bool(fields["late"]),
        forced=bool(fields["forced"]),
        marked_until=int(fields["markedUntil"]),
    )
    marks = [Mark(str(reason), int(until)) for reason, until in fields.get("ended", {}).values()]
    counted: tuple[int, ...] = record[_FIRST_NUMBER:_LAST_NUMBER]  # type: ignore[assignment]
    numbers = (*counted, record.marked_until, *(mark.until for mark in marks))
    if max(numbers) > _MOST or min(numbers) < -_MOST:
        raise ValueError(numbers)
    return Kept(record, dict(zip(map(bytes.fromhex, fields.get("ended", ())), marks, strict=True)))
