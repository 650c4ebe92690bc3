"""The header `Fencing-Token`: what a client sends along with a guarded write, and the middleware that reads it.

The middleware compares nothing: only what is written to can compare and write in one step. It sees to it that there is
a token, hands it to the application, and turns `StaleFencingToken` into an answer.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any, TypeAlias

from leased.checks import shown
from leased.context import current_fencing_token
from leased.errors import InvalidRequest, LeasedError, StaleFencingToken
from leased.fences._rule import presented
from leased.wire_errors import write_error

HEADER = "Fencing-Token"

Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[MutableMapping[str, Any], Callable[[], Awaitable[Message]], Send], Awaitable[None]]

_SCOPE = "leased.fencing_token"
_LONGEST = 16


def fencing_headers(fencing_token: int | None = None) -> dict[str, str]:
    """What to send along: the header with this token, or with that of the innermost block.

    Raises `InvalidRequest` outside of any: a guarded write without a token must not leave.
    """
    token = current_fencing_token() if fencing_token is None else fencing_token
    return {HEADER: str(presented(token))}


def raise_if_stale(status: int, body: bytes | str) -> None:
    """For the client, with the answer to a guarded request: raise `StaleFencingToken` if the middleware gave that. What
    any other answer means is for the caller to judge."""
    if status != StaleFencingToken.http_status:
        return
    try:
        found = json.loads(body)
    except ValueError:
        return
    if not isinstance(found, dict) or found.get("code") != StaleFencingToken.code:
        return
    token, seen = (
        value if type(value) is int else None for value in (found.get("fencingToken"), found.get("seenFencingToken"))
    )
    raise StaleFencingToken(str(found.get("detail")), fencing_token=token, seen=seen, hint=found.get("hint"))


def fencing_token_of(scope: MutableMapping[str, Any]) -> int:
    """The token of a request that came through the middleware, by its ASGI scope (`request.scope` in Starlette and
    FastAPI). Raises `InvalidRequest` if there was none."""
    return presented(scope.get(_SCOPE))


class FencingTokenMiddleware:
    """ASGI middleware: refuses guarded requests without a token (400), and answers 409 where a later one was seen.

    `methods` are those that need a token; others may bring one. A text instead of several raises `InvalidRequest`. A
    header that is no token, or comes twice, is refused with 400 for every method. Answers are problem documents, as of
    the lock service. Add it to the application of a framework (`app.add_middleware(FencingTokenMiddleware)`), so that
    it sees errors before they become answers.
    """

    def __init__(
        self, app: Application, *, methods: Collection[str] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
    ) -> None:
        if isinstance(methods, str):
            raise InvalidRequest(
                f"methods is one text, {shown(methods)!r}, and has to be several", hint='such as {"POST", "PUT"}'
            )
        self._app = app
        self._methods = frozenset(methods)

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Message]], send: Send
    ) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            token = _read(scope["headers"])
            if token is None and scope["method"] in self._methods:
                presented(token)
        except InvalidRequest as error:
            await _answer(error, send)
            return
        try:
            await self._app({**scope, _SCOPE: token}, receive, sending)
        except StaleFencingToken as error:
            if begun:
                raise
            await _answer(error, send)


def _read(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """The token in these headers, if they hold one."""
    found = [value for name, value in headers if name.lower() == HEADER.lower().encode()]
    if not found:
        return None
    text = found[0].decode("latin-1")
    if len(found) > 1 or len(text) > _LONGEST or not (text.isascii() and text.isdigit()):
        raise InvalidRequest(f"the header {HEADER} must be one whole number", hint="send the holder's fencing token")
    return presented(int(text))


async def _answer(error: LeasedError, send: Send) -> None:
    problem = write_error(error, request_id=None)
    if isinstance(error, StaleFencingToken):
        problem |= {"fencingToken": error.fencing_token, "seenFencingToken": error.seen}
    body = json.dumps(problem).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
