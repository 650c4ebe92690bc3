"""What comes over a raw socket and is no request, or wants to be two, or never ends: refused, closed, and forgotten."""

from __future__ import annotations

import http.client
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.server.running import Running, running
from tests.server.talking import JSON, PATIENCE, ask, until

BODY = b'{"key":"smuggled","ttlMs":60000}'
HEAD = b"POST /v1/locks/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running(head_timeout=0.4, max_connections=3_000) as one:
        yield one


def all_that_comes(port: int, data: bytes) -> bytes:
    """Everything that the service says to these bytes until it closes, or has been silent for a while."""
    found = b""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=0.5)) as talking:
        with suppress(OSError):
            talking.sendall(data)
        with suppress(OSError):
            while part := talking.recv(65_536):
                found += part
    return found


def statuses(said: bytes) -> list[int]:
    return [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]


VECTORS = {
    "both lengths": HEAD + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HEAD + LENGTH + b"\r\n" + BODY,
    "two lengths": HEAD + LENGTH + b"Content-Length: 0\r\n\r\n" + BODY,
    "two equal lengths": HEAD + LENGTH + LENGTH + b"\r\n" + BODY,
    "a list of lengths": HEAD + b"Content-Length: 0, 32\r\n\r\n" + BODY,
    "a signed length": HEAD + b"Content-Length: +32\r\n\r\n" + BODY,
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n" + BODY,
    "a length in hex": HEAD + b"Content-Length: 0x20\r\n\r\n" + BODY,
    "a length with a space": HEAD + b"Content-Length: 3 2\r\n\r\n" + BODY,
    "a huge length": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY,
    "a space before the colon": HEAD + b"Content-Length : 32\r\n\r\n" + BODY,
    "a folded header": HEAD + b"X: a\r\n b\r\n" + b"Content-Length:\r\n 32\r\n\r\n" + BODY,
    "an unknown encoding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n20\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunked not last": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n20\r\n" + BODY + b"\r\n0\r\n\r\n",
    "two encodings": HEAD + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk size that is none": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a negative chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk beyond all size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + BODY,
    "a chunk that is longer than it says": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n" + BODY + b"\r\n0\r\n\r\n",
    "bare line feeds": (HEAD + LENGTH + b"\n").replace(b"\r\n", b"\n") + BODY,
    "a carriage return in a header": HEAD + b"X: a\rContent-Length: 0\r\n" + LENGTH + b"\r\n" + BODY,
    "a null in a header": HEAD + b"X: a\0b\r\n" + LENGTH + b"\r\n" + BODY,
    "a null in a name": HEAD + b"X\0: a\r\n" + LENGTH + b"\r\n" + BODY,
    "no host twice": HEAD + b"Host: elsewhere\r\n" + LENGTH + b"\r\n" + BODY,
    "no method": b" /v1/locks/acquire HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an unknown method": HEAD.replace(b"POST", b"TAKE") + LENGTH + b"\r\n" + BODY,
    "another version": HEAD.replace(b"1.1", b"9.9") + LENGTH + b"\r\n" + BODY,
    "no version": b"POST /v1/locks/acquire\r\n\r\n" + BODY,
    "noise": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
    "a path that is no ASCII": HEAD.replace(b"acquire", b"acquir\xe9") + LENGTH + b"\r\n" + BODY,
    "a path with a control character": HEAD.replace(b"acquire", b"acq\x01uire") + LENGTH + b"\r\n" + BODY,
    "another path in the path": HEAD.replace(b"acquire", b"x/../acquire") + LENGTH + b"\r\n" + BODY,
    "an encoded path": HEAD.replace(b"acquire", b"%61cquire") + LENGTH + b"\r\n" + BODY,
    "a path in capitals": HEAD.replace(b"acquire", b"Acquire") + LENGTH + b"\r\n" + BODY,
    "a slash too many": HEAD.replace(b"acquire", b"acquire/") + LENGTH + b"\r\n" + BODY,
    "two slashes": HEAD.replace(b"/locks", b"//locks") + LENGTH + b"\r\n" + BODY,
    "another method by a header": HEAD.replace(b"POST", b"GET") + b"X-HTTP-Method-Override: POST\r\n\r\n",
    "a body with a question": HEAD.replace(b"acquire", b"acquire?key=x") + LENGTH + b"\r\n" + BODY,
    "a form": HEAD.replace(b"application/json", b"application/x-www-form-urlencoded") + LENGTH + b"\r\n" + BODY,
    "plain text": HEAD.replace(b"application/json", b"text/plain") + LENGTH + b"\r\n" + BODY,
    "no type": HEAD.replace(b"Content-Type: application/json\r\n", b"") + LENGTH + b"\r\n" + BODY,
    "another name of ours": HEAD.replace(b"localhost", b"attacker.example") + LENGTH + b"\r\n" + BODY,
    "no name at all": HEAD.replace(b"Host: localhost\r\n", b"") + LENGTH + b"\r\n" + BODY,
    "an upgrade": HEAD + b"Connection: upgrade\r\nUpgrade: h2c\r\n" + LENGTH + b"\r\n" + BODY,
    "a tunnel": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD + LENGTH + b"\r\n" + BODY,
}


@pytest.mark.parametrize("name", VECTORS)
def test_what_is_no_clean_request_takes_no_lock(service: Running, name: str) -> None:
    """SEC12, SEC5: each is refused with a 4xx, or not answered at all, and never read as a request for a lock."""
    said = statuses(all_that_comes(service.port, VECTORS[name]))
    assert all(400 <= status < 500 for status in said), (name, said)
    assert ask(service.port, "/v1/locks/status?key=smuggled").json["state"] == "free"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 200) for name in ("localhost", "LOCALHOST:80", "localhost:", "127.0.0.1:8370", "[::1]", "[::1]:8370")),
        *((f"localhost:{junk}", 421) for junk in ("80@evil.example", "evil.example", "80:80", "-1", "123456", "\xb2")),
        *((f"[::1]{junk}", 421) for junk in ("evil.example", ":evil.example", ":80@evil.example", "]", "80")),
        *((name, 421) for name in ("[::1", "[[::1]]", "@localhost", "evil@localhost:80", "localhost/:80", ":80")),
    ],
)
def test_a_name_is_ours_with_nothing_but_a_port_behind_it(service: Running, host: str, status: int) -> None:
    """SEC12: what another reader of `Host` may take for the name of someone else is not taken for ours."""
    assert ask(service.port, "/v1/locks", headers={"Host": host}).status == status


def test_pipelined_requests_are_answered_in_order(service: Running) -> None:
    """Several requests in one packet are several requests: each answered, in order, and none twice."""
    one = b"GET /v1/locks/status?key=%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
    data = one % (b"p1", b"") + one % (b"p2", b"") + one % (b"p3", b"Connection: close\r\n")
    said = all_that_comes(service.port, data)
    assert statuses(said) == [200, 200, 200]
    assert said.index(b'"p1"') < said.index(b'"p2"') < said.index(b'"p3"')


def test_pipelined_operations_are_answered_in_order(service: Running) -> None:
    """The same for operations with bodies, whose answers take a shorter way: the second finds what the first did."""
    data = HEAD + LENGTH + b"\r\n" + BODY + HEAD + b"Connection: close\r\n" + LENGTH + b"\r\n" + BODY
    data = data.replace(b"smuggled", b"in--line")
    said = all_that_comes(service.port, data)
    assert statuses(said) == [200, 200]
    assert 0 < said.index(b'"acquired":true') < said.index(b'"acquired":false')
    assert said.count(b"date: ") == 2
    assert said.count(b"connection: close") == 1


def test_a_client_that_vanishes_with_a_second_request_behind_its_wait_gets_nothing(service: Running) -> None:
    """V3, C165: what stands behind a wait in one packet does not hide that the client has gone."""
    token = ask(service.port, "/v1/locks/acquire", {"key": "behind", "ttlMs": 60_000}).json["token"]
    body = b'{"key":"behind","ttlMs":60000,"waitMs":60000}'
    data = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    waiting = service.service.waiting
    with closing(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)) as gone:
        gone.sendall(data + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: service.call(lambda: len(waiting)) == 1, what="the wait")
    until(lambda: service.call(lambda: len(waiting)) == 0, what="an empty line")
    ask(service.port, "/v1/locks/release", {"key": "behind", "token": token})
    assert ask(service.port, "/v1/locks/status?key=behind").json["state"] == "free"


def test_few_requests_stand_behind_one_that_waits(service: Running) -> None:
    """SEC12: whoever sends more and more behind a wait is cut, and leaves the line."""
    token = ask(service.port, "/v1/locks/acquire", {"key": "heap", "ttlMs": 60_000}).json["token"]
    body = b'{"key":"heap","ttlMs":60000,"waitMs":60000}'
    data = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert all_that_comes(service.port, data + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20) == b""
    until(lambda: service.call(lambda: len(service.service.waiting)) == 0, what="an empty line")
    ask(service.port, "/v1/locks/release", {"key": "heap", "token": token})


def test_a_body_has_a_most(service: Running) -> None:
    """SEC12: 64 KiB of body are read, more is refused as soon as that is known, whether its length is told or not."""
    inside = b'{"key":"%s","ttlMs":1000}' % (b"k" * 300)
    assert ask(service.port, "/v1/locks/acquire", inside).json["code"] == "LOCK_KEY_INVALID"
    for size, status in ((65_536, 400), (65_537, 413)):
        assert ask(service.port, "/v1/locks/acquire", b" " * size).status == status
    head = HEAD + b"Content-Length: 1000000000000\r\n\r\n"
    assert statuses(all_that_comes(service.port, head)) == [413]
    chunks = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    chunks += b"4000\r\n%s\r\n" % (b" " * 0x4000) * 5
    assert statuses(all_that_comes(service.port, chunks)) in ([413], [])  # a reset may overtake it


def test_a_head_has_a_most(service: Running) -> None:
    """SEC12: 16 KiB of head are read, in one header or in many, and no head without end."""
    for header in (b"X: %s\r\n" % (b"a" * 17_000), b"X: a\r\n" * 3_000, b"X: %s" % (b"a" * 300_000)):
        assert statuses(all_that_comes(service.port, HEAD + header + b"\r\n")) == [400]
    long_path = HEAD.replace(b"acquire", b"a" * 17_000) + LENGTH + b"\r\n" + BODY
    assert statuses(all_that_comes(service.port, long_path)) == [400]
    assert ask(service.port, "/healthz", headers={"X": "a" * 15_000}).status == 200


@pytest.mark.parametrize(
    "begun",
    [b"", b"\r\n", b"\r\n\r\nPOST", b"POST /v1", HEAD, HEAD + LENGTH + b"\r\n", HEAD + LENGTH + b"\r\n" + BODY[:-1]],
)
def test_a_client_that_is_too_slow_is_cut(service: Running, begun: bytes) -> None:
    """SEC12: a request that does not come to its end in time, wherever it stopped, keeps no connection."""
    with closing(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)) as slow:
        slow.sendall(begun)
        with suppress(ConnectionResetError):
            assert slow.recv(1) == b""


def test_a_client_that_drips_is_cut(service: Running) -> None:
    """SEC12: a byte now and then does not extend the time."""
    began = time.monotonic()
    with closing(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)) as slow:
        slow.sendall(HEAD)
        with suppress(OSError):
            while time.monotonic() - began < PATIENCE:
                slow.sendall(b"X: y\r\n")
                time.sleep(0.05)
    assert time.monotonic() - began < PATIENCE / 2


def test_an_idle_connection_may_ask_again_later(service: Running) -> None:
    """Patience with heads is not patience between requests: an idle connection lives on."""
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)) as connection:
        for _ in range(2):
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b'{"status":"ok"}')
            time.sleep(1.0)


def test_an_idle_connection_is_closed_in_the_end() -> None:
    """After `idle_timeout`, counted from the last answer, also where a client's requests all begin the same."""
    with (
        running(idle_timeout=1) as service,
        closing(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)) as idle,
    ):
        for _ in range(3):
            idle.sendall(HEAD + LENGTH + b"\r\n" + BODY)
            assert idle.recv(65_536).startswith(b"HTTP/1.1 200 ")
            time.sleep(0.4)
        assert idle.recv(1) == b""


def resident() -> int:
    """Bytes of memory that this process occupies."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.real_clock
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="memory is read from /proc: not on macOS, and always in CI"
)
def test_two_thousand_idle_connections_cost_little() -> None:
    """SEC12: 2,000 connections that say nothing cost at most 100 MB, and nobody is refused for them."""
    with running(max_connections=2_100) as service:
        before = resident()
        idle = [socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE) for _ in range(2_000)]
        try:
            until(lambda: len(service.server.server_state.connections) >= 2_000, what="2,000 connections")
            assert resident() - before < 100e6
            assert ask(service.port, "/healthz").status == 200
        finally:
            for one in idle:
                one.close()


def test_connections_have_a_most() -> None:
    """What is more is closed at once; whoever has a connection keeps it."""
    with (
        running(max_connections=1) as service,
        closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)) as connection,
    ):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b'{"status":"ok"}'
        assert all_that_comes(service.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200


def test_every_refusal_is_a_problem_document(service: Running) -> None:
    """V2: `code` and `errorCode` are equal, and a path or method that does not exist is told as such."""
    cases: list[tuple[str, Any, str, int]] = [
        ("/nowhere", None, "GET", 404),
        ("/v1/locks/acquire", None, "GET", 405),
        ("/v1/locks", {}, "POST", 405),
    ]
    for path, body, method, status in cases:
        answer = ask(service.port, path, body, method=method, headers=JSON)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
        assert answer.json["code"] == answer.json["errorCode"] == "LOCK_INVALID_REQUEST"
        assert answer.json["requestId"]
        assert answer.headers.get("allow") == {404: None, 405: "POST" if body is None else "GET"}[status]
    for query in ("?key=a&key=b", "?kye=a", "?key=%ff", "?key", "", "?key=" + "a" * 9_000):
        answer = ask(service.port, f"/v1/locks/status{query}")
        assert answer.status == 400, query
