"""Operations of the store contract as commands, and replies as outcomes. It asks nobody."""

from __future__ import annotations

import math
from hashlib import sha256
from struct import Struct
from typing import Any, cast

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
    RELEASE,
    RENEW,
    SECOND,
    STATUS,
    Command,
    Script,
)
from leased.stores._redis_wire import bulk

_RELEASED = {b"": Released(), b"not_holder": Released("not_holder"), b"expired": Released("expired")}
_NO = bulk(b"0")
_YES = bulk(b"1")
_NOTHING = bulk(b"")
_LOOK = bulk(b"0") + bulk(b"-1")
_TERMS = Struct("<ddddB")
_LENGTH = Struct("<I")


class Commands:
    """Those of one namespace. `offset` microseconds are added to the server's time, always 0 except in tests.

    `undoable` grants know the command that takes them back.
    """

    def __init__(self, names: Names, *, undoable: bool = False) -> None:
        self._names = names
        self._undoable = undoable
        self._offset = _NO
        self.offset = 0
        self._packed = _PackedTerms(Claim("", "", 0.0))  # of the last claim; replaced whole, for there are threads

    def move(self, offset: int) -> None:
        """Set the offset."""
        self.offset = offset
        self._offset = bulk(b"%d" % offset)

    def of(self, operation: Operation) -> Command:
        """The command of an operation; `outcome` reads the reply."""
        match operation:
            case Acquire(claim):
                return self.acquire(claim)
            case Renew(key, token, ttl, number):
                return self.renew(key, token, ttl=ttl, number=number)
            case Release(key, token, late):
                return self.release(key, token, late=late)
            case Abandon(key, token):
                return self.abandon(key, token)
            case Look(key, token):
                return self.look(key, token)

    def acquire(self, claim: Claim) -> Command:
        """See `leased.store`; the reply is for `granted`."""
        packed = self._packed
        if not packed.fits(claim):
            packed = self._packed = _PackedTerms(claim)
        rest = b"$32\r\n%b\r\n%b" % (sha256(claim.token.encode()).digest(), packed.arguments)
        command = self._command(ACQUIRE, claim.key, rest, lasts=True)
        if self._undoable:
            command.undo = self.abandon(claim.key, claim.token)
        return command

    def renew(self, key: str, token: str, *, ttl: float, number: int) -> Command:
        """See `leased.store`; the reply is for `renewed`."""
        rest = b"%b%b%b" % (_token(token), bulk(b"%d" % _microseconds(ttl)), bulk(b"%d" % number))
        return self._command(RENEW, key, rest, lasts=True)

    def look(self, key: str, token: str) -> Command:
        """See `leased.store`; the reply is for `renewed`."""
        return self._command(RENEW, key, _token(token) + _LOOK)

    def release(self, key: str, token: str, *, late: bool) -> Command:
        """See `leased.store`; the reply is for `released`."""
        return self._command(RELEASE, key, _token(token) + (_YES if late else _NO))

    def abandon(self, key: str, token: str) -> Command:
        """See `leased.store`; the reply is for `check`."""
        return self._command(ABANDON, key, _token(token))

    def force_release(self, key: str, fencing_token: int | None) -> Command:
        """See `leased.store`; the reply is for `forced`."""
        aim = _NOTHING if fencing_token is None else bulk(b"%d" % fencing_token)
        return self._command(FORCE_RELEASE, key, aim)

    def status(self, key: str) -> Command:
        """See `leased.store`; the reply is for `seen`."""
        return self._command(STATUS, key, b"")

    def _command(self, script: Script, key: str, rest: bytes, *, lasts: bool = False) -> Command:
        name = self._names.record(key)
        whole = b"$%d\r\n%b\r\n%b%b" % (len(name), name, self._offset, rest)
        return Command(script, name, rest=whole, lasts=lasts)


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


def _token(token: str) -> bytes:
    return b"$32\r\n%b\r\n" % sha256(token.encode()).digest()


def _microseconds(seconds: float) -> int:
    """A duration, never shortened."""
    return math.ceil(seconds * SECOND)


def outcome(operation: Operation, reply: Any) -> Held | Contended | Lost | Released | None:
    """What a reply says of an operation. Raises `StoreNotUsable` for a record that cannot be read."""
    match operation:
        case Acquire(claim):
            return granted(claim, reply)
        case Renew(key, token) | Look(key, token):
            return renewed((key, token), reply)
        case Release(key):
            return released(key, reply)
        case Abandon(key):
            return check(key, reply)


def granted(claim: Claim, reply: Any) -> Held | Contended:
    """The outcome of an acquire."""
    word = reply[1]
    if word == b"granted" or word == b"retaken":
        now, _, fencing_token, expires = reply
        return Held(Lease(claim.key, claim.token, fencing_token, claim.ttl, claim.owner, (expires - now) / SECOND))
    if word == b"held":
        return _held(claim.key, claim.token, reply)
    check(claim.key, reply)
    return Contended(seen(claim.key, reply), ended=word == b"ended")


def renewed(asked: tuple[str, str], reply: Any) -> Held | Lost:
    """The outcome of a renewal or a look at a key by a token."""
    key, token = asked
    if reply[1] == b"held":
        return _held(key, token, reply)
    check(key, reply)
    return Lost(cast("LostReason", reply[2].decode()))


def released(key: str, reply: Any) -> Released:
    """The outcome of a release."""
    word = reply[1]
    if word == b"unreadable":
        check(key, reply)
    return _RELEASED[word]


def forced(_: None, reply: Any) -> bool:
    """The outcome of a forced release."""
    _, done = reply
    return {0: False, 1: True}[done]


def seen(key: str, reply: Any) -> Status:
    """What anyone may see. A record that cannot be read is shown as held, by nobody that could be named."""
    now, word, *shown = reply
    if word == b"unreadable":
        return Status(key, "held")
    if shown[0] == b"free":
        return Status(key)
    free, fencing_token = shown[1:3]
    free_in, free_at = (free - now) / SECOND, free / SECOND
    if shown[0] == b"closed":
        return Status(key, "closed", free_in=free_in, free_at=free_at, fencing_token=fencing_token)
    expires, acquired, owner, told = shown[3:]
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


def check(key: str, reply: Any) -> None:
    """Raise `StoreNotUsable` for a record that cannot be read."""
    if reply[1] == b"unreadable":
        raise StoreNotUsable(
            f"the record of key {key!r} cannot be read",
            hint="a forced release of the key, without a fencing token, removes it",
        )


def _held(key: str, token: str, reply: Any) -> Held:
    now, _, fencing_token, renewal, ttl, expires, owner = reply
    return Held(Lease(key, token, fencing_token, ttl / SECOND, _owner(owner), (expires - now) / SECOND, 0.0, renewal))


def _owner(kept: bytes) -> str | None:
    return kept[1:].decode(errors="replace") if kept else None
