"""The service as an ASGI application: from a request to its answer. What is asked often takes the shortest way."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import msgspec

from leased.errors import AccessDenied, LeasedError, Unauthenticated
from leased.server.browser import Asks, Door
from leased.server.calls import DATA, Call, Disconnected, Receive, Route, Send
from leased.server.heads import Head, Refused, peer_of, read_query
from leased.server.metrics import RouteCounts
from leased.server.openapi import describe
from leased.server.principals import LOCAL, Action, OpenGate, Principal, Shown
from leased.server.requests import MAX_BODY, Reader
from leased.server.routes import routes_of, version_of_program
from leased.server.routes_looking import looking_routes
from leased.server.service import Service
from leased.server.settings import is_loopback
from leased.server.troubles import ServiceUnavailable
from leased.server.ui import BELOW, HEADERS, page_routes, session_routes
from leased.wire import Body
from leased.wire_errors import write_error

log = logging.getLogger("leased.server")

JSON = (b"content-type", b"application/json")
PROBLEM = (b"content-type", b"application/problem+json")

_encode = msgspec.json.Encoder().encode
_NO_STORE = (b"cache-control", b"no-store")
_CLOSE = (b"connection", b"close")
_MOST_HOSTS = 16


class _Way:
    """A route as it is gone: with its reader made once, and its counts."""

    __slots__ = ("action", "asks", "counts", "endless", "handler", "identifies", "page", "query", "raw", "reader")

    def __init__(self, route: Route, counts: RouteCounts, *, open_to_all: bool) -> None:
        self.handler = route.handler
        self.raw = route.raw
        self.identifies = route.known and not open_to_all  # who asks nobody need not be asked, on every request
        self.action: Action | None = None if open_to_all else route.action
        self.endless = route.endless
        self.page = route.page
        self.asks: Asks = route.asks
        self.query = tuple(route.query)
        self.reader: Reader[Any] | None = None if route.request is None else Reader(route.request)
        self.counts = counts


class App:
    """The application over one service. `further`: routes of others, such as those that manage credentials."""

    def __init__(self, service: Service, *, further: Sequence[Route] = ()) -> None:
        self._service = service
        self._gate = service.gate
        self._open = isinstance(service.gate, OpenGate)
        settings = service.settings
        description = Route(
            "GET", "/openapi.json", "This description", raw=self._describe, known=False, media_type="application/json"
        )
        self._door = Door(settings, service.gate.sessions)
        own = (*routes_of(service, admit=self._admit), *looking_routes(service))
        pages = page_routes(service)
        sessions = session_routes(service, self._door)
        self.routes: tuple[Route, ...] = (*own, *further, *sessions, description)
        self._description = b""
        self._ways: dict[bytes, dict[str, _Way]] = {}
        self._straight: dict[tuple[str, bytes], _Way] = {}
        for route in (*self.routes, *pages):
            counts = service.metrics.route(BELOW if route.page else f"{route.method} {route.path}")
            way = _Way(route, counts, open_to_all=self._open)
            self._ways.setdefault(route.path.encode(), {})[route.method] = way
            self._straight[route.method, route.path.encode()] = way
        self._elsewhere = service.metrics.route("other")
        self._hops = settings.proxy_hops
        self._logs = settings.log_requests
        self._known_hosts: set[bytes] = set()
        self._checks_host = settings.open and is_loopback(settings.host)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the service."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._live(receive, send)
            return
        started = perf_counter()
        call = Call(LOCAL, receive)
        way: _Way | None = None
        status = 499
        try:
            way = self._way(scope)
            await self._prepare(way, call, scope)
            if way.handler is not None:
                body = _encode(await way.handler(call))
                status = 200
                direct = scope.get("leased.connection")
                if way.reader is not None and direct is not None and direct[0].answer(direct[1], body):
                    return
                headers = [JSON, (b"content-length", b"%d" % len(body))]
                if way.reader is None:
                    headers += DATA
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({"type": "http.response.body", "body": body})
            elif way.raw is not None:
                status = await way.raw(call, send)
        except Disconnected:
            pass
        except LeasedError as error:
            status = await self._refuse(send, error, call, path=scope["path"])
        except Exception:
            log.exception("a fault of the service on %s %s", scope["method"], scope["path"])
            status = await self._refuse(send, _fault(), call, path=scope["path"])
        finally:
            seconds = perf_counter() - started
            (self._elsewhere if way is None else way.counts).add(status, seconds)
            if self._logs:
                self._log(scope, call, status=status, seconds=seconds)

    def _way(self, scope: Any) -> _Way:
        """Where a request goes. The path counts as it was sent: no other spelling of it leads anywhere."""
        straight = self._straight.get((scope["method"], scope.get("raw_path")))
        if straight is not None:
            return straight
        ways = self._ways.get(scope.get("raw_path") or scope["path"].encode())
        if ways is None:
            dashboard = self._straight.get(("GET", BELOW.encode()))
            if dashboard is not None and _is_browser_at_the_root(scope):
                return dashboard
            raise Refused(404, "there is nothing at this path", hint="see /openapi.json")
        method = scope["method"]
        way = ways.get("GET" if method == "HEAD" else method)
        if way is None or (way.endless and method == "HEAD"):
            raise Refused(405, f"this path takes {' and '.join(sorted(ways))}", allow=", ".join(sorted(ways)))
        return way

    async def _prepare(self, way: _Way, call: Call, scope: Any) -> None:
        """Read the request, find out who asks, and whether he may."""
        head = scope.get("leased.head") or Head(scope["headers"])
        if self._checks_host and head.host not in self._known_hosts:
            self._check_host(head)
        call.shown = shown = head.authorization
        if head.more is not None:
            call.shown = shown = self._enter(way, call, scope, head=head)
        if way.identifies:
            principal = None if way.endless else self._gate.recall(shown)
            if principal is None:
                call.peer = peer_of(scope, head, hops=self._hops)
                principal = await self._gate.identify(shown, peer=call.peer)
            call.principal = principal
        elif way.page and head.more is None:
            self._enter(way, call, scope, head=head)
        try:
            if way.reader is not None:
                call.request = way.reader.read(await _read_body(head, call.receive, scope))
            if scope["query_string"]:
                call.query = read_query(scope["query_string"], known=way.query)
        except LeasedError:
            if way.identifies:
                self._gate.spend(call.principal)
            raise
        if way.action is not None:
            key = call.query.get("key", "") if call.request is None else call.request.key
            await self._admit(call.principal, way.action, key)

    def _check_host(self, head: Head) -> None:
        """Refuse a name that is not ours; remember how one was written that is."""
        if head.host_name() not in self._door.hosts:
            raise Refused(421, "the service was called by a name that is not its own", hint="set allowed_hosts")
        if len(self._known_hosts) < _MOST_HOSTS:
            self._known_hosts.add(head.host)

    def _enter(self, way: _Way, call: Call, scope: Any, *, head: Head) -> Shown:
        """Let a browser in, or whoever comes for a page; the sign-in that its cookie stands for, or the header it
        sent."""
        visit = call.visit = self._door.enter(scope, head, asks=way.asks, page=way.page)
        return head.authorization if visit is None or visit.session is None else visit.session

    async def _admit(self, principal: Principal, action: Action, key: str) -> None:
        if self._open:
            return
        try:
            await self._gate.admit(principal, action, key=key)
        except AccessDenied:
            self._service.events.publish(principal.project, "denied", key=key, by=principal.name, action=action)
            raise

    async def _describe(self, call: Call, send: Send) -> int:
        if not self._description:
            whole = describe(self.routes, version=version_of_program(), open_to_all=self._open)
            self._description = _encode(whole)
        await _answer(send, 200, self._description, (JSON, *DATA[1:]))
        return 200

    async def _refuse(self, send: Send, error: LeasedError, call: Call, *, path: str) -> int:
        """Answer with a problem document."""
        request_id = getattr(call.request, "request_id", None) or secrets.token_hex(8)
        unknown = call.principal is LOCAL and not self._open
        if not unknown:
            self._service.journal.refused(call.principal.project, error)
        error = self._service.troubles.told(error, to=None if unknown else call.principal, request_id=request_id)
        body = write_error(error, request_id=request_id)
        headers = [PROBLEM, *((_NO_STORE, *HEADERS) if path.startswith(BELOW) else DATA)]
        if isinstance(error, Refused):
            body["status"] = error.status
            if error.status == 413:
                headers.append(_CLOSE)
            if error.allow:
                headers.append((b"allow", error.allow.encode()))
        if isinstance(error, Unauthenticated):
            headers.append((b"www-authenticate", b'Bearer realm="leased"'))
        if error.retry_after is not None and body["status"] in (429, 503):
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
        status: int = body["status"]
        await _answer(send, status, _encode(body), headers)
        return status

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._service.journal.begin()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._service.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def drain(self) -> None:
        """Let the service end: see `Service.drain`."""
        self._service.drain()

    def _log(self, scope: Any, call: Call, *, status: int, seconds: float) -> None:
        """One line of JSON; keys and tokens travel in bodies and queries, which are not logged."""
        line: Body = {
            "method": scope["method"],
            "path": scope["path"][:256],
            "status": status,
            "ms": round(seconds * 1000.0, 3),
            "principal": "-" if call.principal is LOCAL and not self._open else call.principal.name,
            "project": call.principal.project,
            "requestId": getattr(call.request, "request_id", None) or None,
        }
        log.info("%s", _encode(line).decode())


def _is_browser_at_the_root(scope: Any) -> bool:
    """Whether a person typed the bare address, and wants a page."""
    if scope["path"] != "/" or scope["method"] not in ("GET", "HEAD"):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


async def _read_body(head: Head, receive: Receive, scope: Any) -> bytes | bytearray:
    """The whole body; `Refused` as soon as it is too long, `Disconnected` if the client goes before its end."""
    head.check_json()
    if head.length > MAX_BODY:
        raise _too_long()
    direct = scope.get("leased.connection")
    if direct is not None:
        whole: bytearray | None = direct[0].take_body(direct[1])
        if whole is not None:
            return whole
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body += message["body"]
        if len(body) > MAX_BODY:
            raise _too_long()
        more = message.get("more_body", False)
    return body


def _too_long() -> Refused:
    return Refused(413, f"the body is longer than {MAX_BODY} bytes", hint="send fewer operations in one batch")


def _fault() -> LeasedError:
    """What is told of a fault of ours: nothing but that the effect is unknown. The log has the rest."""
    return ServiceUnavailable("the service failed on this request; its log says why", applied=None)


async def _answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
