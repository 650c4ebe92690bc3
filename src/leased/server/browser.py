"""Browsers at the door of the service: whose cookie counts, which page may ask, and what for. It answers nothing.

A browser sends cookies, and reaches addresses of this machine, for whichever page asks it to. So what it wants changed
has to come from a page of the service itself, called by a name of its own, that shows a token no other page can read.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, replace
from typing import Any, Literal

from leased.errors import AccessDenied, InvalidRequest
from leased.server.heads import OF_BROWSERS, Head, Refused, name_in, peer_of
from leased.server.sessions import Session, Sessions
from leased.server.settings import Settings

Asks = Literal["changes", "looks", "signs"]
"""What a request does that is no GET: it changes something, only looks, or signs a browser in or out."""

MAX_COOKIE = 3800
"""Characters of a sign-in that a browser keeps: it need not keep a cookie of more than 4096 bytes."""

COOKIE = "leased_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""By its name a browser takes it over TLS only, and from no other host than this one."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names that lead to nowhere but this machine."""

_SEALED = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_COOKIE}}}")
_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True)
class Visit:
    """How a browser came: `origin` is the service as the browser calls it, `session` whose cookie it has. `stale`: it
    has one that counts for nothing."""

    origin: str
    host: str
    peer: str
    session: Session | None = None
    stale: bool = False

    @property
    def encrypted(self) -> bool:
        """Whether the browser speaks TLS, with the service or with a proxy before it."""
        return self.origin.startswith("https:")


class Door:
    """Lets browsers in. Who shows an `Authorization` header of his own, and no cookie of ours, passes it unseen."""

    def __init__(self, settings: Settings, sessions: Sessions | None) -> None:
        """Read from the settings who is let in, and by which names. `sessions`: of those who sign in, if any do."""
        self._open = settings.open
        self._sessions = sessions
        self._mode = settings.ui
        self._hops = settings.proxy_hops
        self._own_token = secrets.token_urlsafe(32)
        host = settings.host
        self.hosts = LOOPBACK | {
            f"[{host}]" if ":" in host else host,
            *(name.lower() for name in settings.allowed_hosts),
        }

    def enter(self, scope: Any, head: Head, *, asks: Asks, page: bool) -> Visit | None:
        """The visit, or `AccessDenied`; `None` where no browser is concerned. `page`: it is for browsers alone."""
        fields = head.more or {}
        if not page and OF_BROWSERS.isdisjoint(fields):
            return None
        visit = self._visit(scope, head)
        session = visit.session if head.authorization is None and self._mode != "off" else None
        if session is None and not page and not (self._open and (b"origin" in fields or b"sec-fetch-site" in fields)):
            return None
        if visit.host not in self.hosts:
            raise Refused(421, "the service was called by a name that is not its own", hint="set allowed_hosts")
        site = fields.get(b"sec-fetch-site", b"same-origin")
        if scope["method"] not in ("GET", "HEAD"):
            if not _same(fields.get(b"origin", b"").decode("latin-1"), visit.origin) or site != b"same-origin":
                raise AccessDenied(
                    "a page of another place asked for that",
                    hint=f"open {visit.origin}/ui/; behind a proxy set proxy_hops, and have it send X-Forwarded-Proto",
                )
            self._check(fields, session, asks=asks)
        elif session is not None and site not in (b"same-origin", b"none") and (asks == "signs" or not page):
            raise AccessDenied("a page of another place asked for that", hint=f"open {visit.origin}/ui/")
        return visit if session is visit.session else replace(visit, session=None)

    def token(self, session: Session | None) -> str:
        """What pages of this service show when they want something changed: only they can read it."""
        if session is None or self._sessions is None:
            return self._own_token
        return self._sessions.token(session)

    def cookie(self, visit: Visit, session: Session | None) -> bytes:
        """The header that has a browser keep a sign-in until it is over, or without one forget the one it has.

        Raises `InvalidRequest` for one that is too long, `AccessDenied` where others could read it on its way.
        """
        if session is None or self._sessions is None:
            return cookie_of(visit, "", seconds=0)
        return cookie_of(visit, self._sessions.seal(session), seconds=self._sessions.left(session))

    def _check(self, fields: dict[bytes, bytes], session: Session | None, *, asks: Asks) -> None:
        """Whether the page showed its token, and may change anything at all."""
        if asks == "signs":
            return
        shown = fields.get(b"leased-csrf", b"")
        if not hmac.compare_digest(shown, self.token(session).encode()):
            raise AccessDenied("the page did not show its token", hint="load it again")
        if asks == "changes" and self._mode != "act":
            raise AccessDenied(
                "from a browser one only looks here", hint="the service lets its dashboard act with --ui act"
            )

    def _visit(self, scope: Any, head: Head) -> Visit:
        """From what the proxies wrote that are trusted, else from the connection itself."""
        scheme, host, fields = scope.get("scheme", "http"), head.host, head.more or {}
        if self._hops:
            host = _written(fields.get(b"x-forwarded-host", b""), hops=self._hops) or host
            written = _written(fields.get(b"x-forwarded-proto", b""), hops=self._hops).decode("latin-1").lower()
            scheme = written if written in _PORTS else scheme
        text = host.decode("latin-1").lower()
        cookies = fields.get(b"cookie", b"").decode("latin-1")
        name = SECURE_COOKIE if scheme == "https" else COOKIE
        sealed = None if self._sessions is None else _cookie(cookies, name=name)
        session = None if sealed is None or self._sessions is None else self._sessions.read(sealed)
        peer, stale = peer_of(scope, head, hops=self._hops), name in cookies and session is None
        return Visit(f"{scheme}://{text.removesuffix(_PORTS[scheme])}", name_in(text), peer, session, stale)


def cookie_of(visit: Visit, sealed: str, *, seconds: float) -> bytes:
    """See `Door.cookie`."""
    if sealed and not visit.encrypted and visit.host not in LOOPBACK:
        raise AccessDenied(
            "signing in without TLS would show the credential to others",
            hint="serve https; behind a proxy that does, set proxy_hops, and have it send X-Forwarded-Proto",
        )
    if sealed and not _SEALED.fullmatch(sealed):
        raise InvalidRequest(
            f"what the token says takes {len(sealed)} characters, and browsers keep {MAX_COOKIE}",
            hint="sign in with an API key, or with a token that names fewer groups",
        )
    name, end = (SECURE_COOKIE, "; Secure") if visit.encrypted else (COOKIE, "")
    text = f"{name}={sealed}; Path=/; Max-Age={int(seconds)}; HttpOnly; SameSite=Strict{end}"
    return text.encode("ascii")


def _cookie(header: str, *, name: str) -> str | None:
    """The session in a header of cookies; none where it stands twice: one of them is somebody else's."""
    found = [value for label, _, value in (part.strip().partition("=") for part in header.split(";")) if label == name]
    return found[0] if len(found) == 1 and _SEALED.fullmatch(found[0]) else None


def _same(origin: str, own: str) -> bool:
    scheme = own.partition(":")[0]
    return origin.lower().removesuffix(_PORTS[scheme]) == own


def _written(header: bytes, *, hops: int) -> bytes:
    """What the outermost trusted proxy wrote; those behind it may have written nothing of their own."""
    values = [part.strip() for part in header.split(b",") if part.strip()]
    return (values[-hops] if len(values) >= hops else values[0]) if values else b""
