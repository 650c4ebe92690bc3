"""The header `Fencing-Token`: what the middleware lets through, what a client sends and reads."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import leased
from leased.errors import InvalidRequest, StaleFencingToken
from leased.fences.http import (
    FencingTokenMiddleware,
    fencing_headers,
    fencing_token_of,
    raise_if_stale,
)


def ask(
    *tokens: bytes, method: str = "PUT", fails: Exception | None = None, begins: bool = False, kind: str = "http"
) -> tuple[int, bytes, list[Any]]:
    """Status and body of the answer to one request, and what the application saw."""
    seen: list[Any] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope.get("leased.fencing_token"))
        if begins or fails is None:
            await send({"type": "http.response.start", "status": 204, "headers": []})
        if fails is not None:
            raise fails
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any:
        raise AssertionError("nobody reads the body")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "method": method, "headers": [(b"fencing-token", token) for token in tokens]}
    asyncio.run(FencingTokenMiddleware(app)(scope, receive, send))
    return sent[0]["status"], sent[-1]["body"], seen


def test_a_token_reaches_the_application() -> None:
    """F1: the application sees the number; reading needs none, and may bring one."""
    assert ask(b"17") == (204, b"", [17])
    assert ask(method="GET") == (204, b"", [None])
    assert ask(b"17", method="GET") == (204, b"", [17])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_write_without_a_token_is_refused(method: str) -> None:
    """F1: a missing token is an error, never a pass: the application is not called."""
    status, body, seen = ask(method=method)
    assert (status, seen) == (400, [])
    assert json.loads(body)["code"] == "LOCK_INVALID_REQUEST"
    assert "none was given" in json.loads(body)["detail"]


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    "tokens",
    [
        [b""],
        [b"0"],
        [b"-1"],
        [b"1.0"],
        [b"0x10"],
        [b" 1"],
        [b"1_0"],
        [b"\xb2"],
        [b"9" * 16],
        [b"9" * 5000],
        [b"1", b"1"],
    ],
)
def test_what_is_no_token_is_refused(tokens: list[bytes], method: str) -> None:
    """F1: no guess at what was meant, and no doubt which of two counts."""
    status, body, seen = ask(*tokens, method=method)
    assert (status, seen) == (400, [])
    assert len(body) < 500


def test_a_refused_write_is_a_409_with_both_numbers() -> None:
    """F1: what the fence raised reaches the client as the same exception."""
    status, body, _ = ask(b"7", fails=StaleFencingToken("over", fencing_token=7, seen=9, hint="stop"))
    assert status == 409
    with pytest.raises(StaleFencingToken, match="over") as caught:
        raise_if_stale(status, body)
    assert (caught.value.fencing_token, caught.value.seen, caught.value.hint) == (7, 9, "stop")


def test_other_errors_and_answers_that_began_are_left_alone() -> None:
    """The middleware answers for nothing but fences, and never twice."""
    with pytest.raises(KeyError):
        ask(b"7", fails=KeyError("x"))
    with pytest.raises(StaleFencingToken):
        ask(b"7", fails=StaleFencingToken("over"), begins=True)


def test_what_is_no_request_goes_through() -> None:
    """Lifespan and web sockets are none of its business."""
    assert ask(b"nonsense", kind="websocket")[2] == [None]


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b'{"code": "STALE_FENCING_TOKEN"}'), (409, b"no json"), (409, b"[1]"), (409, b'{"code": "LOCK_TIMEOUT"}')],
)
def test_other_answers_say_nothing_of_a_fence(status: int, body: bytes) -> None:
    """Only the middleware's own answer is taken for a refusal by a fence."""
    raise_if_stale(status, body)


def test_numbers_of_a_strange_answer_are_not_believed() -> None:
    """What is no number is none."""
    with pytest.raises(StaleFencingToken) as caught:
        raise_if_stale(409, b'{"code": "STALE_FENCING_TOKEN", "fencingToken": "7", "seenFencingToken": true}')
    assert (caught.value.fencing_token, caught.value.seen) == (None, None)


def test_a_client_sends_the_token_of_its_block() -> None:
    """F1: inside a block its token, else the one that is given; without either nothing leaves."""
    with leased.connect("memory:") as locks, locks.lock("key", ttl=30) as handle:
        assert fencing_headers() == {"Fencing-Token": str(handle.fencing_token)}
        assert fencing_headers(7) == {"Fencing-Token": "7"}
    with pytest.raises(InvalidRequest, match="none was given"):
        fencing_headers()


def test_outside_of_the_middleware_there_is_no_token() -> None:
    """An application that was not wrapped does not write unguarded."""
    with pytest.raises(InvalidRequest, match="none was given"):
        fencing_token_of({"type": "http"})


def test_methods_are_several_words() -> None:
    """F1: one word would be taken for a set of letters, and no method would need a token any more."""
    with pytest.raises(InvalidRequest, match="methods"):
        FencingTokenMiddleware(Any, methods="POST")  # type: ignore[arg-type]
