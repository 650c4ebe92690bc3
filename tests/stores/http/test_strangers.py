"""What the store over HTTP says when something else than a lock service is at its URL, or nothing, or only a proxy."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from leased.errors import InvalidRequest, StoreUnavailable
from leased.model import Claim
from tests.server.running import Running
from tests.servers.process import Server
from tests.stores.http.conftest import TIMEOUT, TOKEN, Caller
from tests.stores.http.peers import Behaviour, Peer, answer

CLAIM = Claim("key", TOKEN, 30.0)
PAGE = b"<!DOCTYPE html>\n<html><head><TITLE>\n Welcome to &quot;nginx&quot;!\x1b[2J </TITLE></head></html>"


def problem_of(caller: Caller, url: str) -> StoreUnavailable:
    """What a first claim meets at this URL; it was surely not made."""
    with pytest.raises(StoreUnavailable) as caught:
        caller(caller.open(url).acquire(CLAIM, timeout=TIMEOUT))
    assert caught.value.applied is False
    return caught.value


@pytest.mark.parametrize(
    ("body", "status", "met", "advice"),
    [
        (PAGE, 200, "a web page ('Welcome to \"nginx\"!\\\\x1b[2J')", "check host, port and path"),
        (PAGE, 404, "HTTP status 404 and a web page", "check host, port and path"),
        (b"<p>hello", 405, "HTTP status 405 and a web page", "check host, port and path"),
        (b"  no such thing\r\nand more", 404, "the text 'no such thing'", "check host, port and path"),
        (b"you sent Authorization: Bearer lk_1_secret", 404, "the text '…'", "check host, port and path"),
        (b'{"message": "Not Found"}', 404, "JSON that is not its own", "check host, port and path"),
        (b"", 404, "nothing in it", "check host, port and path"),
        (PAGE, 502, "HTTP status 502", "the service behind it"),
        (PAGE, 403, "HTTP status 403", "a login of its own"),
        (b"The plain HTTP request was sent to HTTPS port", 400, "HTTP status 400", "write https://"),
    ],
)
def test_an_answer_of_something_else_says_what_was_met(
    caller: Caller, peer: Callable[[Behaviour], Peer], *, body: bytes, status: int, met: str, advice: str
) -> None:
    """11: status and content are named, shortly and harmlessly, with what to try."""
    stranger = peer(lambda _, connection: connection.sendall(answer(body, status)))
    problem = problem_of(caller, stranger.url)
    assert stranger.url in problem.message
    assert met in problem.message
    assert advice in (problem.hint or "")


@contextmanager
def greeting(*, first: bytes = b"", then: bytes = b"") -> Iterator[str]:
    """The URL of who says something as soon as somebody connects, something when that one has spoken, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(first)
                    connection.recv(65_536)
                    connection.sendall(then)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10.0)


@pytest.mark.parametrize(
    ("first", "then", "met", "advice"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", b"", "it says 'SSH-2.0-OpenSSH_9.2p1 Debian-2'", "no lock service"),
        (b"", b"-ERR unknown command\r\n", "it says '-ERR unknown command'", "no lock service"),
        (b"", b"\x15\x03\x01\x00\x02\x02\x46", "it speaks TLS", "write https://"),
        (b"", b"", "closed the connection", "if that port speaks TLS, write https://"),
    ],
)
def test_what_speaks_no_http_is_quoted(
    caller: Caller, closing: ExitStack, *, first: bytes, then: bytes, met: str, advice: str
) -> None:
    """11: a greeting of another protocol is shown; TLS is recognised."""
    problem = problem_of(caller, closing.enter_context(greeting(first=first, then=then)))
    assert met in problem.message
    assert advice in (problem.hint or "")


def test_http_to_a_port_with_tls_and_back(caller: Caller, private_service: Callable[..., Server]) -> None:
    """11: each says how the URL has to begin."""
    secure = private_service(tls=True).url
    assert "write https://" in (problem_of(caller, secure.replace("https:", "http:")).hint or "")


def test_https_to_a_port_without_tls(caller: Caller, service: Running) -> None:
    """11: each says how the URL has to begin."""
    assert "write http://" in (problem_of(caller, service.url.replace("http:", "https:")).hint or "")


def test_a_path_that_the_service_does_not_have(caller: Caller, service: Running) -> None:
    """11: the service itself answers: the path in the URL is too much."""
    with pytest.raises(InvalidRequest) as caught:
        caller(caller.open(f"{service.url}/locks").acquire(CLAIM, timeout=TIMEOUT))
    assert "/locks" in (caught.value.hint or "")
