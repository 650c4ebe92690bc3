"""The dashboard's side of the service: its files as they are in the package, and signing in. It knows no locks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, cast

from msgspec import Meta, Struct
from msgspec.json import encode

from leased.errors import Unauthenticated
from leased.server.answers import SessionAnswer
from leased.server.browser import Door, Visit
from leased.server.calls import Call, Route, Send
from leased.server.principals import LOCAL, Principal
from leased.server.requests import MAX_BODY
from leased.server.rights import may
from leased.server.routes import version_of_program
from leased.server.service import Service
from leased.server.sessions import Session
from leased.wire import Body

BELOW = "/ui"
"""All paths of the dashboard begin with this."""

HEADERS: Sequence[tuple[bytes, bytes]] = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            b"font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""What every answer below that path says: nothing but the service's own files is shown, run or asked."""

_FILES = Path(__file__).parent / "dashboard"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
_HASHED = re.compile(r"assets/.*-[\w-]{8}\.\w+")
_JSON = (b"content-type", b"application/json")
_NO_STORE = (b"cache-control", b"no-store")


class SessionRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Sign a browser in: it gets a cookie that no page can read, and that stands for the credential for a while."""

    credential: Annotated[str, Meta(min_length=1, max_length=MAX_BODY, description="An API key or a token.")]


def session_routes(service: Service, door: Door) -> tuple[Route, ...]:
    """Where a page asks who looks at it, and signs in and out; none if the dashboard is off."""
    if service.settings.ui == "off":
        return ()
    sessions = _Sessions(service, door)
    common: dict[str, Any] = {"known": False, "page": True, "answer": SessionAnswer}
    path = f"{BELOW}/session"
    return (
        Route("GET", path, "Who looks, and what he may do", raw=sessions.tell, asks="signs", **common),
        Route("POST", path, "Sign a browser in", raw=sessions.sign_in, asks="signs", request=SessionRequest, **common),
        Route("DELETE", path, "Sign a browser out", raw=sessions.sign_out, asks="signs", **common),
    )


def page_routes(service: Service) -> tuple[Route, ...]:
    """The files of the dashboard, each at its path, and the way there."""
    if service.settings.ui == "off":
        return ()

    async def lead_on(_: Call, send: Send) -> int:
        return await _send(send, 307, b"", ((b"location", b"/ui/"), _NO_STORE))

    return (
        Route("GET", BELOW, "The way to the dashboard", raw=lead_on, known=False, page=True),
        *(_page(path, body, headers) for path, body, headers in _files()),
    )


def _page(path: str, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Route:
    async def show(_: Call, send: Send) -> int:
        return await _send(send, 200, body, headers)

    return Route("GET", path, "A file of the dashboard", raw=show, known=False, page=True)


@lru_cache(maxsize=1)
def _files() -> tuple[tuple[str, bytes, Sequence[tuple[bytes, bytes]]], ...]:
    """Path, content and headers of each file: nothing else below the path leads to anything."""
    found = []
    for file in sorted(_FILES.rglob("*")):
        kind = _TYPES.get(file.suffix)
        if kind is None or not file.is_file():
            continue
        name = file.relative_to(_FILES).as_posix()
        kept = b"public, max-age=31536000, immutable" if _HASHED.fullmatch(name) else b"no-cache"
        headers = ((b"content-type", kind.encode()), (b"cache-control", kept))
        found.append((f"{BELOW}/{'' if name == 'index.html' else name}", file.read_bytes(), headers))
    return tuple(found)


class _Sessions:
    def __init__(self, service: Service, door: Door) -> None:
        self._gate = service.gate
        self._settings = service.settings
        self._door = door

    async def tell(self, call: Call, send: Send) -> int:
        """Who looks. A session that is used goes on; one whose credential has ended is over."""
        visit = _visit(call)
        sessions, session = self._gate.sessions, visit.session
        if self._settings.open:
            return await self._answer(send, LOCAL, token=self._door.token(None))
        if session is None or sessions is None:
            return await self._answer(send, None, cookie=self._door.cookie(visit, None) if visit.stale else None)
        try:
            principal = await self._gate.identify(session, peer=visit.peer)
        except Unauthenticated:
            return await self._answer(send, None, cookie=self._door.cookie(visit, None))
        self._gate.spend(principal)
        session = sessions.go_on(session, life=self._settings.ui_session)
        return await self._welcome(visit, principal, session, send)

    async def sign_in(self, call: Call, send: Send) -> int:
        """Check the credential as any request's; it is kept nowhere. A sign-in that the browser had before is over."""
        visit, credential = _visit(call), call.request.credential
        principal, session = await self._gate.sign_in(credential, peer=visit.peer, life=self._settings.ui_session)
        if session is None:
            return await self.tell(call, send)
        self._gate.spend(principal)
        call.principal = principal
        self._end(visit)
        return await self._welcome(visit, principal, session, send)

    async def sign_out(self, call: Call, send: Send) -> int:
        """Have the browser forget it, and let no copy of it count any more."""
        visit = _visit(call)
        if self._settings.open:
            return await self.tell(call, send)
        self._end(visit)
        return await self._answer(send, None, cookie=self._door.cookie(visit, None))

    def _end(self, visit: Visit) -> None:
        if visit.session is not None and self._gate.sessions is not None:
            self._gate.sessions.end(visit.session)

    async def _welcome(self, visit: Visit, principal: Principal, session: Session, send: Send) -> int:
        cookie = self._door.cookie(visit, session)
        return await self._answer(send, principal, token=self._door.token(session), cookie=cookie)

    async def _answer(
        self, send: Send, principal: Principal | None, *, token: str | None = None, cookie: bytes | None = None
    ) -> int:
        settings, known = self._settings, principal is not None and principal is not LOCAL
        body: Body = {
            "mode": "local" if settings.open else "credentials",
            "signedIn": principal is not None,
            "principal": _shown(principal) if principal is not None and known else None,
            "may": {
                "list": principal is not None and may(principal, "list"),
                "force": principal is not None and may(principal, "force-release"),
                "manage": principal is not None and known and may(principal, "manage"),
                "hold": principal is not None and may(principal, "acquire"),
            },
            "acts": settings.ui == "act",
            "csrfToken": token,
            "version": version_of_program(),
            "store": None if principal is None else settings.store.partition(":")[0].lower(),
            "heartbeatMs": int(settings.heartbeat * 1000),
        }
        headers = [_JSON, _NO_STORE]
        if cookie is not None:
            headers.append((b"set-cookie", cookie))
        return await _send(send, 200, encode(body), headers)


def _visit(call: Call) -> Visit:
    return cast("Visit", call.visit)  # pages are entered by the door alone


def _shown(principal: Principal) -> Body:
    return {
        "kind": principal.kind,
        "name": principal.id,
        "role": principal.role if principal.kind == "member" else None,
        "project": principal.project,
    }


async def _send(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> int:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *HEADERS, length]})
    await send({"type": "http.response.body", "body": body})
    return status
