"""Sign-ins of browsers: what their cookie holds, sealed, with nothing in it that opens anything else. It asks nobody.

A browser that has signed in with an API key gets the public id of that, and one that has shown a token what the token
said; with an end, under a seal that only the service can make. So a cookie that somebody copies is no credential: it
counts in browsers only, ends soon, and ends with its credential.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import msgspec

from leased.server.principals import Principal, Role

LONGEST = 12 * 3600.0
"""Seconds after which one has to sign in again, however busy one is: a working day."""

PURPOSE = b"leased: sessions of browsers, first kind"
"""What the key of the seal is for; the key of the hash is used for nothing else than to make such keys."""

MAX_ENDED = 10_000
"""Sessions that were signed out and are remembered until their end; where more are, the oldest make room."""

_PAGE = b"leased: the token of a page, first kind\0"
_SEAL_LENGTH = 64  # hexadecimal digits of SHA-256


@dataclass(frozen=True, slots=True)
class Session:
    """One sign-in. It is over at `until`, and cannot go on beyond `last`; instants are in seconds since the epoch.

    `credential` is the public id of the API key that it stands for. Without one it stands for `member`, whom a token
    named: tokens are kept by nobody.
    """

    id: str
    until: float
    last: float
    credential: str = ""
    member: Principal | None = None


class _Sealed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A session as its cookie has it."""

    id: str
    until: float
    last: float
    credential: str
    member: tuple[str, str, str, list[tuple[str, str]]] | None


_read = msgspec.json.Decoder(_Sealed).decode
_write = msgspec.json.Encoder().encode


class Sessions:
    """Makes and reads them. Whoever has the same key reads those of others: replicas do. `wall` gives seconds since
    the epoch."""

    def __init__(self, key: bytes, *, wall: Callable[[], float]) -> None:
        self._key = key
        self._wall = wall
        self._ended: OrderedDict[str, float] = OrderedDict()

    def begin(self, principal: Principal, *, life: float, end: float = math.inf) -> Session:
        """A new one for whoever has just shown his credential, which is good until `end`."""
        now = self._wall()
        last = min(now + LONGEST, end)
        by_token = principal.kind == "member" and principal.credential == "token"
        return Session(
            secrets.token_hex(16),
            min(now + life, last),
            last,
            credential="" if by_token else principal.credential,
            member=principal if by_token else None,
        )

    def go_on(self, session: Session, *, life: float) -> Session:
        """The same, which ends later."""
        return replace(session, until=min(self._wall() + life, session.last))

    def left(self, session: Session) -> float:
        """Seconds until it is over."""
        return max(session.until - self._wall(), 0.0)

    def end(self, session: Session) -> None:
        """Let no copy of its cookie count any more, in this process."""
        now = self._wall()
        while self._ended and (len(self._ended) >= MAX_ENDED or next(iter(self._ended.values())) <= now):
            self._ended.popitem(last=False)
        self._ended[session.id] = session.last

    def lasts(self, session: Session) -> bool:
        """Whether it is not over yet, and nobody has signed it out here."""
        return self._wall() < session.until and session.id not in self._ended

    def token(self, session: Session) -> str:
        """What pages show when they want something changed, as long as the session goes on."""
        return hmac.digest(self._key, _PAGE + session.id.encode(), "sha256").hex()

    def seal(self, session: Session) -> str:
        """As the cookie has it: letters, digits, `-`, `_` and a dot."""
        who = session.member
        member = None if who is None else (who.project, who.id, who.role, sorted(who.groups))
        text = _write(_Sealed(session.id, session.until, session.last, session.credential, member))
        return f"{base64.urlsafe_b64encode(text).rstrip(b'=').decode()}.{self._seal(text)}"

    def read(self, sealed: str) -> Session | None:
        """The session of a cookie; `None` if this is none, was not sealed here, or is over."""
        body, _, seal = sealed.partition(".")
        if len(seal) != _SEAL_LENGTH or not sealed.isascii():
            return None
        try:
            text = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        if not hmac.compare_digest(self._seal(text), seal):
            return None
        try:
            found = _read(text)
        except msgspec.DecodeError:  # of another version of the service
            return None
        session = Session(found.id, found.until, found.last, credential=found.credential, member=_member(found))
        return session if self.lasts(session) else None

    def _seal(self, text: bytes) -> str:
        return hmac.digest(self._key, text, "sha256").hex()


def _member(found: _Sealed) -> Principal | None:
    if found.member is None:
        return None
    project, user, role, groups = found.member
    return Principal(project, "member", user, cast("Role", role), frozenset(groups), credential="token")
