"""Operations of the store contract as commands, and replies as outcomes. It asks nobody."""

from __future__ import annotations

import math
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Any

from leased.errors import StoreNotUsable
from leased.model import (
    Abandon,
    Acquire,
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
    read_metadata,
)
from leased.stores._redis_names import Names
from leased.stores._redis_scripts import (
    ABANDON,
    ACQUIRE,
    FORCE_RELEASE,
    LOOK,
    RELEASE,
    RENEW,
    SECOND,
    STATUS,
    Command,
    Script,
)
from leased.stores._redis_wire import bulk

_RELEASED = {b"f": Released(), b"n": Released("not_holder"), b"x": Released("expired")}
_REASONS: dict[bytes, LostReason] = {
    b"expired": "expired",
    b"force_released": "force_released",
    b"max_hold": "max_hold",
    b"retaken": "retaken",
    b"taken": "taken",
}
_NO = bulk(b"0")
_YES = bulk(b"1")
_NOTHING = bulk(b"")
_LOOK = bulk(b"0") + bulk(b"-1")
_TERMS = Struct("<ddddB")
_GRANT, _HELD = Struct("<dcdd"), Struct("<dcdddd")
_CLOSED, _HELD_BY = Struct("<dccdd"), Struct("<ddI")
_LENGTH = Struct("<I")


class Commands:
    """Those of one namespace. `offset` microseconds are added to the server's time, always 0 except in tests.

    `undoable` grants know the command that takes them back.
    """

    def __init__(self, names: Names, *, undoable: bool = False) -> None:
        self._names = names
        self._undoable = undoable
        self._place = lru_cache(maxsize=1024)(self._place_of)  # whoever has acquired releases: most keys come twice
        self.offset = 0
        self._packed = _PackedTerms(Claim("", "", 0.0))  # of the last claim; replaced whole, for there are threads

    def move(self, offset: int) -> None:
        """Set the offset."""
        self.offset = offset
        self._place.cache_clear()

    def of(self, operation: Operation) -> Command:
        """The command of an operation."""
        match operation:
            case Acquire(claim):
                return self.acquire(claim)
            case Release(key, token, late):
                return self.release(key, token, late=late)
            case Renew(key, token, ttl, number):
                return self.renew(key, token, ttl=ttl, number=number)
            case Abandon(key, token, heard):
                return self.abandon(key, token, heard=heard)
            case Look(key, token):
                return self.look(key, token)

    def acquire(self, claim: Claim) -> Command:
        """See `leased.store`."""
        packed = self._packed
        if not packed.fits(claim):
            packed = self._packed = _PackedTerms(claim)
        command = self._command(ACQUIRE, claim.key, _token(claim.token) + packed.arguments, asked=claim)
        if self._undoable:
            command.undo = self.abandon(claim.key, claim.token, heard=1)  # not what another copy of it was told
        return command

    def renew(self, key: str, token: str, *, ttl: float, number: int) -> Command:
        """See `leased.store`."""
        rest = b"%b%b$%d\r\n%d\r\n" % (_token(token), _duration(ttl), len(str(number)), number)
        return self._command(RENEW, key, rest, asked=(key, token))

    def look(self, key: str, token: str) -> Command:
        """See `leased.store`."""
        return self._command(LOOK, key, _token(token) + _LOOK, asked=(key, token))

    def release(self, key: str, token: str, *, late: bool) -> Command:
        """See `leased.store`."""
        return self._command(RELEASE, key, _token(token) + (_YES if late else _NO), asked=key)

    def abandon(self, key: str, token: str, *, heard: int | None = None) -> Command:
        """See `leased.store`."""
        rest = _token(token) + (_NOTHING if heard is None else bulk(b"%d" % heard))
        return self._command(ABANDON, key, rest, asked=key)

    def force_release(self, key: str, fencing_token: int | None) -> Command:
        """See `leased.store`."""
        aim = _NOTHING if fencing_token is None else bulk(b"%d" % fencing_token)
        return self._command(FORCE_RELEASE, key, aim, asked=key)

    def status(self, key: str) -> Command:
        """See `leased.store`."""
        return self._command(STATUS, key, b"", asked=key)

    def _command(self, script: Script, key: str, rest: bytes, *, asked: Any) -> Command:
        name, place = self._place(key)
        return Command(script, name, data=script.by_hash + place + rest, asked=asked)

    def _place_of(self, key: str) -> tuple[bytes, bytes]:
        """The name of the record of a key, and with that what every command has after the script."""
        name = self._names.record(key)
        return name, b"$%d\r\n%b\r\n%b" % (len(name), name, bulk(b"%d" % self.offset))


class _PackedTerms:
    """What a claim asks for besides key and token, as arguments: most claims of a program are alike in that."""

    __slots__ = ("_late", "_owner", "_terms", "_ttl", "arguments")

    def __init__(self, claim: Claim) -> None:
        self._owner, self._ttl, self._late, self._terms = claim.owner, claim.ttl, claim.late, claim.terms
        terms = claim.terms
        spans = map(_microseconds, (claim.ttl, terms.max_hold, terms.hold_at_least, terms.lock_delay))
        held_by, metadata = terms.held_by.encode(errors="replace"), terms.metadata.encode(errors="replace")
        self.arguments = b"%b%b%b" % (
            _NOTHING if claim.owner is None else bulk(b"=" + claim.owner.encode()),
            bulk(_TERMS.pack(*spans, claim.late)),
            bulk(_LENGTH.pack(len(held_by)) + held_by + metadata),
        )

    def fits(self, claim: Claim) -> bool:
        """Whether they are those of this claim as well."""
        return (
            claim.terms is self._terms
            and claim.ttl == self._ttl
            and claim.owner == self._owner
            and claim.late == self._late
        )


@lru_cache(maxsize=1024)  # who has acquired releases: most tokens come twice
def _token(token: str) -> bytes:
    return b"$32\r\n%b\r\n" % sha256(token.encode()).digest()


@lru_cache(maxsize=64)
def _duration(seconds: float) -> bytes:
    return bulk(b"%d" % _microseconds(seconds))


def _microseconds(seconds: float) -> int:
    """A duration, never shortened."""
    return math.ceil(seconds * SECOND)


def _granted(claim: Claim, reply: Any) -> Held | Contended:
    letter = reply[8:9]
    if letter in b"gr":
        now, _, fencing_token, expires = _GRANT.unpack(reply)
        left = (expires - now) / SECOND
        return Held(Lease(claim.key, claim.token, int(fencing_token), claim.ttl, claim.owner, left))
    if letter == b"h":
        return _held(claim.key, claim.token, reply)
    _check(claim.key, reply, b"ce")
    return Contended(_shown(claim.key, reply), ended=letter == b"e")


def _renewed(asked: tuple[str, str], reply: Any) -> Held | Lost:
    key, token = asked
    if reply[8:9] == b"h":
        return _held(key, token, reply)
    _check(key, reply, b"l")
    return Lost(_REASONS[reply[9:]])


def _released(key: str, reply: Any) -> Released:
    outcome = _RELEASED.get(reply[8:])
    if outcome is None:
        _check(key, reply, b"fnx")
        raise ValueError(reply[8:9])
    return outcome


def _abandoned(key: str, reply: Any) -> None:
    _check(key, reply, b"ak")


def _forced(key: str, reply: Any) -> bool:
    _check(key, reply, b"01")
    return bool(reply[8:] == b"1")


def _seen(key: str, reply: Any) -> Status:
    """What anyone may see. A record that cannot be read is shown as held, by nobody that could be named."""
    if reply[8:] == b"u":
        return Status(key, "held")
    _check(key, reply, b"s")
    return _shown(key, reply)


def _check(key: str, reply: Any, letters: bytes) -> None:
    """Raise `StoreNotUsable` for a record that cannot be read, and `ValueError` for what is none of these answers."""
    letter = reply[8:9]
    if not letter or letter not in letters:
        if letter != b"u":
            raise ValueError(letter)
        raise StoreNotUsable(
            f"the record of key {key!r} cannot be read",
            hint="a forced release of the key, without a fencing token, removes it",
        )


def _shown(key: str, reply: Any) -> Status:
    state = reply[9:10]
    if state == b"f":
        return Status(key)
    now, _, _, free, fence = _CLOSED.unpack_from(reply)
    free_in, free_at, fencing_token = (free - now) / SECOND, free / SECOND, int(fence)
    if state == b"c":
        return Status(key, "closed", free_in=free_in, free_at=free_at, fencing_token=fencing_token)
    expires, acquired, length = _HELD_BY.unpack_from(reply, _CLOSED.size)
    rest = reply[_CLOSED.size + _HELD_BY.size :]
    owner, told = rest[:length], rest[length:]
    (length,) = _LENGTH.unpack_from(told)
    held_by, metadata = told[_LENGTH.size :][:length], told[_LENGTH.size + length :]
    return Status(
        key=key,
        state="held",
        owner=_owner(owner),
        held_by=held_by.decode(errors="replace"),
        expires_in=(expires - now) / SECOND,
        expires_at=expires / SECOND,
        free_in=free_in,
        free_at=free_at,
        fencing_token=fencing_token,
        acquired_at=acquired / SECOND,
        metadata=read_metadata(metadata.decode(errors="replace")),
    )


def _held(key: str, token: str, reply: Any) -> Held:
    now, _, fencing_token, renewal, ttl, expires = _HELD.unpack_from(reply)
    owner, left = _owner(reply[_HELD.size :]), (expires - now) / SECOND
    return Held(Lease(key, token, int(fencing_token), ttl / SECOND, owner, left, 0.0, int(renewal)))


def _owner(kept: bytes) -> str | None:
    return kept[1:].decode(errors="replace") if kept else None


ACQUIRE.reading = _granted
RENEW.reading = LOOK.reading = _renewed
RELEASE.reading = _released
ABANDON.reading = _abandoned
FORCE_RELEASE.reading = _forced
STATUS.reading = _seen
