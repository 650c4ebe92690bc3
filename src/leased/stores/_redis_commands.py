"""Operations of the store contract as commands, and replies as outcomes. It asks nobody."""

from __future__ import annotations

import math
from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeAlias, cast

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
    Terms,
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

Reading: TypeAlias = Callable[[Any], Any]
"""Makes an outcome of a reply; it raises `StoreNotUsable` for a record that cannot be read."""

_RELEASED = {b"": Released(), b"not_holder": Released("not_holder"), b"expired": Released("expired")}
_NO = bulk(b"0")
_YES = bulk(b"1")
_NOTHING = bulk(b"")


class Commands:
    """Those of one namespace. `offset` microseconds are added to the server's time, always 0 except in tests.

    `undoable` grants know the command that takes them back.
    """

    def __init__(self, names: Names, *, undoable: bool = False) -> None:
        self._names = names
        self._undoable = undoable
        self._offset = _NO
        self.offset = 0
        self._terms: Terms | None = None
        self._packed_terms = b""

    def move(self, offset: int) -> None:
        """Set the offset."""
        self.offset = offset
        self._offset = bulk(b"%d" % offset)

    def of(self, operation: Operation) -> tuple[Command, Reading]:
        """The command of an operation, and how to read its reply."""
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
                return self.renew(key, token, ttl=0.0, number=-1)

    def acquire(self, claim: Claim) -> tuple[Command, Reading]:
        """See `leased.store`."""
        terms = claim.terms
        if terms is not self._terms:
            self._packed_terms, self._terms = _packed_terms(terms), terms
        owner = _NOTHING if claim.owner is None else bulk(b"=" + claim.owner.encode())
        ttl = b"%d" % math.ceil(claim.ttl * SECOND)
        rest = b"$32\r\n%b\r\n%b$%d\r\n%b\r\n%b%b" % (
            sha256(claim.token.encode()).digest(),
            owner,
            len(ttl),
            ttl,
            _YES if claim.late else _NO,
            self._packed_terms,
        )
        command = self._command(ACQUIRE, claim.key, rest, lasts=True)
        if self._undoable:
            command.undo = self.abandon(claim.key, claim.token)[0]
        return command, lambda reply: _granted(claim, reply)

    def renew(self, key: str, token: str, *, ttl: float, number: int) -> tuple[Command, Reading]:
        """See `leased.store`."""
        rest = b"%b%b%b" % (_token(token), _duration(ttl), bulk(b"%d" % number))
        return self._command(RENEW, key, rest, lasts=number >= 0), lambda reply: _renewed(key, token, reply)

    def release(self, key: str, token: str, *, late: bool) -> tuple[Command, Reading]:
        """See `leased.store`."""
        rest = _token(token) + (_YES if late else _NO)
        return self._command(RELEASE, key, rest), lambda reply: _released(key, reply)

    def abandon(self, key: str, token: str) -> tuple[Command, Reading]:
        """See `leased.store`."""
        return self._command(ABANDON, key, _token(token)), lambda reply: _check(key, reply)

    def force_release(self, key: str, fencing_token: int | None) -> tuple[Command, Reading]:
        """See `leased.store`."""
        aim = _NOTHING if fencing_token is None else bulk(b"%d" % fencing_token)
        return self._command(FORCE_RELEASE, key, aim), lambda reply: reply[1] == 1

    def status(self, key: str) -> tuple[Command, Reading]:
        """See `leased.store`."""
        return self._command(STATUS, key, b""), lambda reply: _seen(key, reply)

    def _command(self, script: Script, key: str, rest: bytes, *, lasts: bool = False) -> Command:
        name = self._names.record(key)
        whole = b"$%d\r\n%b\r\n%b%b" % (len(name), name, self._offset, rest)
        return Command(script, name, rest=whole, lasts=lasts)


def _packed_terms(terms: Terms) -> bytes:
    durations = b"".join(map(_duration, (terms.max_hold, terms.hold_at_least, terms.lock_delay)))
    texts = bulk(terms.held_by.encode(errors="replace")) + bulk(terms.metadata.encode(errors="replace"))
    return durations + texts


def _token(token: str) -> bytes:
    return b"$32\r\n%b\r\n" % sha256(token.encode()).digest()


def _duration(seconds: float) -> bytes:
    """A duration, never shortened."""
    return bulk(b"%d" % math.ceil(seconds * SECOND))


def _granted(claim: Claim, reply: Any) -> Held | Contended:
    word = reply[1]
    if word in (b"granted", b"retaken"):
        now, _, fencing_token, expires = reply
        left = (expires - now) / SECOND
        return Held(Lease(claim.key, claim.token, fencing_token, claim.ttl, claim.owner, left))
    if word == b"held":
        return _held(claim.key, claim.token, reply)
    _check(claim.key, reply)
    return Contended(_seen(claim.key, reply), ended=word == b"ended")


def _renewed(key: str, token: str, reply: Any) -> Held | Lost:
    if reply[1] == b"held":
        return _held(key, token, reply)
    _check(key, reply)
    return Lost(cast("LostReason", reply[2].decode()))


def _released(key: str, reply: Any) -> Released:
    _check(key, reply)
    return _RELEASED[reply[1]]


def _held(key: str, token: str, reply: Any) -> Held:
    now, _, fencing_token, renewal, ttl, expires, owner = reply
    return Held(Lease(key, token, fencing_token, ttl / SECOND, _owner(owner), (expires - now) / SECOND, 0.0, renewal))


def _owner(kept: bytes) -> str | None:
    return kept[1:].decode(errors="replace") if kept else None


def _seen(key: str, reply: Any) -> Status:
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
    expires, acquired, owner, held_by, metadata = shown[3:]
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


def _check(key: str, reply: Any) -> None:
    if reply[1] == b"unreadable":
        raise StoreNotUsable(
            f"the record of key {key!r} cannot be read",
            hint="a forced release of the key, without a fencing token, removes it",
        )
