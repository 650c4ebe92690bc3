"""Heads that a client sends again: whatever came before on a connection, a request is read as if it were the first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from leased.server.connections import Connection, Connections
from leased.server.known_heads import MOST_HEADS, KnownHeads
from leased.server.settings import Settings

LINES = (b"POST /a HTTP/1.1", b"POST /a?b=c HTTP/1.1", b"POST /%61 HTTP/1.1", b"POST /a HTTP/1.0", b"PUT /a HTTP/1.1")
LENGTHS = (b"Content-Length: %d", b"content-length:%d", b"Content-Length: 0%d", b"X: 1\r\nCONTENT-LENGTH: %d")
FIELDS = (
    b"Authorization: Bearer one",
    b"Authorization: Bearer two",
    b"Expect: 100-continue",
    b"Connection: keep-alive",
    b"Connection: close",
    b"Transfer-Encoding: chunked",
    b"Content-Length: 2",
    b"X: content-length: 2",
    b"X: a\r\n b",
)
BODIES = (b"", b"{}", b"[]", b"\r\n\r\n", b"{}\r\n\r\nPOST /b HTTP/1.1\r\n", b"2\r\n{}\r\n0\r\n\r\n", b"long" * 30)
ENDS = (b"\r\n", b"\n")
TYPICAL = b"POST /a HTTP/1.1\r\nAuthorization: Bearer one\r\nContent-Length: %d\r\n\r\n%b"


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """What may be one request, or none, or more."""
    body = draw(st.sampled_from(BODIES))
    fields = [*draw(st.lists(st.sampled_from(FIELDS), max_size=2)), draw(st.sampled_from(LENGTHS)) % len(body)]
    end = draw(st.sampled_from(ENDS) if draw(st.integers(0, 9)) == 0 else st.just(b"\r\n"))
    head = end.join([draw(st.sampled_from(LINES)), b"Host: h", *draw(st.permutations(fields))])
    return head + end + end + body + draw(st.sampled_from((b"", b"", b"", b"\r\n", TYPICAL % (1, b"1"))))


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Reading:
    """A connection, and what came to the application by it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        config = uvicorn.Config(self.serve, log_config=None, access_log=False, interface="asgi3")
        config.load()
        loop = asyncio.get_running_loop()
        self.connection = Connection(
            Connections(Settings()), config=config, server_state=ServerState(), app_state={}, _loop=loop
        )
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        names = ("method", "path", "raw_path", "query_string", "http_version", "scheme", "root_path", "state", "client")
        self.seen.append(([scope[name] for name in names], sorted(scope["headers"]), body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def say(self, data: bytes) -> tuple[Any, bytes, bool]:
        """What one piece of data brings to the application, what is answered, and whether it is the last."""
        self.seen, self.transport.written = [], b""
        self.connection.data_received(data)
        for _ in range(8):
            await asyncio.sleep(0)
        return self.seen, self.transport.written, self.transport.closed


@given(st.lists(requests(), min_size=1, max_size=4))
def test_a_request_is_read_as_if_it_were_the_first(pieces: list[bytes]) -> None:
    """SEC12: nothing that was said before on a connection changes what comes after it, be it said again or anew."""

    async def compare() -> None:
        talking = Reading()
        for piece in (*pieces, *pieces, TYPICAL % (2, b"{}"), TYPICAL % (0, b"")):
            alone = await Reading().say(piece)
            assert await talking.say(piece) == alone
            if talking.transport.closed or talking.connection._in_request:
                return

    asyncio.run(compare())


LENGTH = b"Content-Length: 2\r\n"
HEAD = b"POST /a HTTP/1.1\r\nHost: h\r\n"


@pytest.mark.parametrize(
    "first",
    [
        HEAD + LENGTH + b"Authorization: Bearer one\r\n\r\n{}",
        HEAD + b"Authorization: Bearer one\r\n" + LENGTH + b"\r\n{}",
        HEAD + b"Expect: 100-continue\r\n" + LENGTH + b"\r\n{}",
        HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + LENGTH + b"\r\n{}",
        HEAD + b"X: 1\r\nX: 2\r\n" + LENGTH + b"\r\n{}",
        HEAD + b"X: a\r\n b\r\n" + LENGTH + b"\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Content-Length:  2\r\n\r\n{}",
        HEAD + LENGTH + b"\r\n{}\r\n",
        HEAD.replace(b"\r\n", b"\n") + LENGTH + b"\r\n{}",
        HEAD + b"Content-Length: 6\r\n\n{}\r\n\r\n",
    ],
)
def test_what_was_said_means_the_same_again_and_what_is_like_it_its_own(first: bytes) -> None:
    """SEC12: the same bytes again, and others that differ where it counts."""
    others = (first, first.replace(b"one", b"two"), first.replace(b"{}", b"[]"), first.replace(b"/a", b"/b"), first)

    async def compare() -> None:
        talking = Reading()
        for piece in others:
            assert await talking.say(piece) == await Reading().say(piece)
            if talking.transport.closed:
                return

    asyncio.run(compare())


def test_a_head_that_came_before_is_not_read_again() -> None:
    """The point of it: the parser sees the first of them alone."""

    async def talk() -> None:
        talking = Reading()
        first = await talking.say(TYPICAL % (2, b"{}"))
        talking.connection.parser = None  # type: ignore[assignment]
        assert await talking.say(TYPICAL % (2, b"{}")) == first
        seen, _, closed = await talking.say(TYPICAL % (11, b"another one"))
        assert b"another one" in seen[0]
        assert not closed

    asyncio.run(talk())


@pytest.mark.parametrize("rest", [b"", b"{", b"{} ", b"{}" + TYPICAL % (2, b"{}")])
def test_only_one_whole_request_is_known(rest: bytes) -> None:
    """What is less than a request, or more, is for the parser."""
    heads = KnownHeads()
    scope = {"method": "POST", "headers": [(b"authorization", b"Bearer one"), (b"content-length", b"2")]}
    heads.remember(TYPICAL % (2, b"{}"), scope)
    assert heads.find(TYPICAL % (2, b"{}")) is not None
    assert heads.find(TYPICAL % (2, rest)) is None
    assert heads.find(TYPICAL % (3, b"{}")) is None
    assert heads.find((TYPICAL % (2, b"{}")).replace(b"one", b"two")) is None


def test_few_heads_are_remembered_and_none_that_is_another_each_time() -> None:
    """Memory is bounded, and what would never be found again is not looked after."""
    heads = KnownHeads()
    scope = {"method": "POST", "headers": [(b"authorization", b"Bearer one"), (b"content-length", b"2")]}
    many = [(TYPICAL % (2, b"{}")).replace(b"/a", b"/%d" % number) for number in range(MOST_HEADS + 1)]
    for one in many:
        heads.remember(one, scope)
    assert [heads.find(one) is not None for one in many] == [False, *[True] * MOST_HEADS]
    heads.remember(many[1].replace(b"one", b"two"), scope)
    assert heads.find(many[1]) is None
    heads.remember(many[1], scope)
    assert heads.find(many[1]) is None
