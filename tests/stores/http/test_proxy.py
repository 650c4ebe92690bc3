"""The way through a proxy that the environment names, and what becomes of a caller whose proxy leads nowhere."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from leased.errors import InvalidRequest, StoreUnavailable
from leased.stores._http_proxy import proxy_to
from leased.stores._http_url import read_address
from leased.targets import Options
from leased.testing.clocks import MovableClock
from tests.server.running import running
from tests.stores.http.conftest import TIMEOUT, Caller

ELSEWHERE = "http://service.example:8080?leased_insecure=1"
OPEN = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Tunnel:
    """A proxy that leads all who ask for a tunnel to one port, whatever they asked for, or answers as told."""

    def __init__(self, port: int, *, answer: bytes = OPEN) -> None:
        self._port = port
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.heads: list[str] = []
        self.place = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """End all connections, and the threads."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in tuple(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in tuple(self._threads):
            thread.join(10.0)
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                asking, _ = self._listening.accept()
                self._open.append(asking)
                self._begin(self._lead, asking)

    def _begin(self, work: Callable[..., None], *of: socket.socket) -> None:
        thread = threading.Thread(target=work, args=of, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _lead(self, asking: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += asking.recv(1)
        self.heads.append(head.decode())
        asking.sendall(self._answer)
        if self._answer is not OPEN:
            with contextlib.suppress(OSError):  # whoever asked may have gone already
                asking.shutdown(socket.SHUT_RDWR)
            return
        asked = socket.create_connection(("127.0.0.1", self._port))
        self._open.append(asked)
        self._begin(_carry, asked, asking)
        _carry(asking, asked)


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def lead(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Tunnel]]:
    """Starts proxies to a service of this test alone, and names them in the environment."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with contextlib.ExitStack() as closing:
        service = closing.enter_context(running(allowed_hosts=("service.example",)))

        def start(*, answer: bytes = OPEN, login: str = "") -> Tunnel:
            tunnel = Tunnel(service.port, answer=answer)
            closing.callback(tunnel.close)
            monkeypatch.setenv("http_proxy", f"http://{login}{tunnel.place}")
            return tunnel

        yield start


def test_locks_are_had_through_a_proxy(caller: Caller, lead: Callable[..., Tunnel]) -> None:
    """The proxy is asked for a tunnel, with the credentials of its URL, and everything works through it."""
    tunnel = lead(login="ada:secret%21@")
    store = caller.open(ELSEWHERE)
    caller.take(store, "key")
    assert caller(store.status("key", timeout=TIMEOUT)).held
    head = tunnel.heads[0]
    assert head.startswith("CONNECT service.example:8080 HTTP/1.1\r\nHost: service.example:8080\r\n")
    assert "Proxy-Authorization: Basic YWRhOnNlY3JldCE=\r\n" in head


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n", "status 407"),
        (b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n", "status 502"),
        (b"SSH-2.0-OpenSSH\r\n", "understood"),
        (b"", "closed the connection"),
    ],
)
def test_a_proxy_that_leads_nowhere_is_a_failure(
    caller: Caller, lead: Callable[..., Tunnel], answer: bytes, said: str
) -> None:
    """S2: nothing was sent to the service then, and the message names the proxy, but not who asked it."""
    lead(answer=answer, login="ada:secret@")
    store = caller.open(ELSEWHERE)
    with pytest.raises(StoreUnavailable, match=said) as caught:
        caller.take(store, "key")
    assert caught.value.applied is False
    assert "the proxy 127.0.0.1:" in str(caught.value)
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"


def test_who_needs_no_proxy_asks_none(lead: Callable[..., Tunnel], monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback, and what `no_proxy` names, are reached directly; what is no proxy's URL is refused."""
    lead()
    options = Options(MovableClock(), own={"insecure": "1"})
    assert proxy_to(read_address("http://127.0.0.1:8080", options)) is None
    elsewhere = read_address("http://service.example:8080", options)
    assert proxy_to(elsewhere) is not None
    assert proxy_to(read_address("https://service.example", Options(MovableClock()))) is None
    monkeypatch.setenv("all_proxy", "other.example")
    found = proxy_to(read_address("https://service.example", Options(MovableClock())))
    assert found is not None
    assert (found.host, found.port, found.login) == ("other.example", 3128, None)
    monkeypatch.setenv("no_proxy", ".example")
    assert proxy_to(elsewhere) is None
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("http_proxy", "socks5://ada:secret@127.0.0.1:1")
    with pytest.raises(InvalidRequest) as caught:
        proxy_to(elsewhere)
    assert "secret" not in str(caught.value)
