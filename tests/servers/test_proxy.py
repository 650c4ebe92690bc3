"""The proxy breaks connections as told: each fault does what it says, and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.servers.ports import HOST
from tests.servers.proxy import DROP, Proxy, Way


class Echo:
    """A server in this thread: the test itself accepts, reads and answers, so that nothing happens by chance."""

    def __init__(self) -> None:
        self.listener = socket.create_server((HOST, 0))
        self.listener.settimeout(10)
        self.host: str = HOST
        self.port: int = self.listener.getsockname()[1]
        self.url = f"echo://user:secret@{self.host}:{self.port}/path?a=b"

    def accept(self) -> socket.socket:
        accepted, _ = self.listener.accept()
        accepted.settimeout(10)
        return accepted


@pytest.fixture
def echo() -> Iterator[Echo]:
    """A server that does what the test does."""
    server = Echo()
    with closing(server.listener):
        yield server


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    """A proxy in front of it."""
    with Proxy(echo) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=10)


@contextmanager
def connected(proxy: Proxy, echo: Echo) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of one connection through the proxy."""
    with connect(proxy) as client, echo.accept() as server:
        yield client, server


def silent(end: socket.socket) -> bool:
    """Whether nothing has arrived here."""
    end.setblocking(False)
    try:
        end.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        end.settimeout(10)
    return False


def test_it_carries_everything_and_counts(echo: Echo, proxy: Proxy) -> None:
    """What goes in comes out, in both directions and larger than any buffer, and the traffic says how much it was."""
    with connected(proxy, echo) as (client, server):
        client.sendall(b"question")
        assert server.recv(100) == b"question"
        much = bytes(range(256)) * 40_000
        server.sendall(much[:1000])
        assert client.recv(2000) == much[:1000]
        proxy.wait_until(lambda traffic: traffic.bytes_down == 1000)
        assert proxy.traffic.bytes_up == len(b"question")
        assert (proxy.traffic.chunks_up, proxy.traffic.connections, proxy.traffic.open) == (1, 1, 1)
        server.setblocking(False)
        got, sent = bytearray(), 0
        while len(got) < len(much):
            if sent < len(much):
                try:
                    sent += server.send(much[sent : sent + 100_000])
                except BlockingIOError:
                    got += client.recv(1_000_000)
            else:
                got += client.recv(1_000_000)
        assert bytes(got) == much


def test_an_end_of_one_direction_leaves_the_other(echo: Echo, proxy: Proxy) -> None:
    """A client that has said its last still gets the answer; then the connection is over."""
    with connected(proxy, echo) as (client, server):
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert server.recv(100) == b"last"
        assert server.recv(100) == b""
        server.sendall(b"answer")
        server.close()
        assert client.recv(100) == b"answer"
        assert client.recv(100) == b""
        proxy.wait_until(lambda traffic: traffic.open == 0)


def test_its_url_is_that_of_the_server_by_another_way(echo: Echo, proxy: Proxy) -> None:
    """Only the port differs; login, path and parameters stay."""
    assert proxy.url == f"echo://user:secret@{HOST}:{proxy.port}/path?a=b"


def test_cut_resets_all_connections_at_once(echo: Echo, proxy: Proxy) -> None:
    """Both ends of every connection see the reset, and new connections are carried."""
    with connected(proxy, echo) as (first, first_server), connected(proxy, echo) as (second, _):
        assert proxy.cut() == 2
        for end in (first, first_server, second):
            with pytest.raises(ConnectionResetError):
                end.recv(1)
    with connected(proxy, echo) as (client, server):
        client.sendall(b"again")
        assert server.recv(100) == b"again"


def test_cut_can_close_instead(echo: Echo, proxy: Proxy) -> None:
    """With a close, both ends see an orderly end."""
    with connected(proxy, echo) as (client, server):
        assert proxy.cut("close") == 1
        assert client.recv(1) == b""
        assert server.recv(1) == b""


def test_refuse_is_a_closed_port_until_healed(echo: Echo, proxy: Proxy) -> None:
    """New connections are refused, an old one goes on, and after `heal` there are new ones."""
    with connected(proxy, echo) as (client, server):
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        client.sendall(b"still")
        assert server.recv(100) == b"still"
        proxy.heal()
        with connected(proxy, echo) as (another, another_server):
            another.sendall(b"new")
            assert another_server.recv(100) == b"new"


@pytest.mark.parametrize("way", ["up", "down", "both"])
def test_hold_keeps_things_back_and_heal_delivers_them(echo: Echo, proxy: Proxy, way: Way) -> None:
    """What is held does not arrive, the other direction does, and after `heal` everything has arrived in order."""
    with connected(proxy, echo) as (client, server):
        proxy.hold(way)
        client.sendall(b"up")
        server.sendall(b"down")
        up, down = way in {"up", "both"}, way in {"down", "both"}
        proxy.wait_until(lambda traffic: traffic.held_up == 2 * up and traffic.bytes_up == 2 * (not up))
        proxy.wait_until(lambda traffic: traffic.held_down == 4 * down and traffic.bytes_down == 4 * (not down))
        assert silent(server) is up
        assert silent(client) is down
        proxy.heal()
        assert server.recv(100) == b"up"
        assert client.recv(100) == b"down"


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_black_hole_swallows_one_direction(echo: Echo, proxy: Proxy, way: Way) -> None:
    """What went in is gone, the other direction is carried; `heal` resets what has a gap and carries new ones."""
    with connected(proxy, echo) as (client, server):
        proxy.black_hole(way)
        lossy, whole = (client, server) if way == "up" else (server, client)
        lossy.sendall(b"gone")
        whole.sendall(b"here")
        assert lossy.recv(100) == b"here"
        proxy.wait_until(lambda traffic: traffic.lost_up + traffic.lost_down == 4)
        assert silent(whole)
        proxy.heal()
        for end in (client, server):
            with pytest.raises(ConnectionResetError):
                end.recv(1)
    with connected(proxy, echo) as (client, server):
        client.sendall(b"again")
        assert server.recv(100) == b"again"


@pytest.mark.real_clock
def test_delay_makes_a_chunk_late(echo: Echo, proxy: Proxy) -> None:
    """A chunk arrives no earlier than told, in the direction told, and after `heal` at once."""
    import time

    with connected(proxy, echo) as (client, server):
        proxy.delay(0.2, "up")
        begun = time.monotonic()
        client.sendall(b"late")
        server.sendall(b"prompt")
        assert client.recv(100) == b"prompt"
        assert server.recv(100) == b"late"
        assert time.monotonic() - begun >= 0.2


def test_lose_request_cuts_before_the_server_sees_it(echo: Echo, proxy: Proxy) -> None:
    """The second chunk from now on never arrives: both ends are reset, and the server has seen only the first."""
    with connected(proxy, echo) as (client, server):
        proxy.lose_request(2)
        client.sendall(b"first")
        assert server.recv(100) == b"first"
        assert proxy.traffic.tripped == 0
        client.sendall(b"second")
        with pytest.raises(ConnectionResetError):
            server.recv(100)
        with pytest.raises(ConnectionResetError):
            client.recv(100)
        assert proxy.traffic.tripped == 1
    with connected(proxy, echo) as (client, server):
        client.sendall(b"third")
        assert server.recv(100) == b"third"


def test_lose_reply_lets_the_server_act_and_the_client_not_know(echo: Echo, proxy: Proxy) -> None:
    """The chunk arrives, the connection stays until the server answers, and the answer never gets back."""
    with connected(proxy, echo) as (client, server):
        proxy.lose_reply(containing=b"SET")
        client.sendall(b"GET")
        assert server.recv(100) == b"GET"
        server.sendall(b"1")
        assert client.recv(100) == b"1"
        client.sendall(b"SET")
        assert server.recv(100) == b"SET"
        assert (proxy.traffic.open, proxy.traffic.tripped) == (1, 0)
        server.sendall(b"2")
        with pytest.raises(ConnectionResetError):
            client.recv(100)
        assert (proxy.traffic.open, proxy.traffic.tripped) == (0, 1)


def test_a_server_that_is_away_resets_the_client(echo: Echo, proxy: Proxy) -> None:
    """When nothing listens behind the proxy, a connection is accepted and then reset."""
    echo.listener.close()

    def ask() -> bytes:
        with connect(proxy) as client:
            return client.recv(1)

    with pytest.raises(ConnectionResetError):
        ask()


def test_waiting_for_what_does_not_come_says_what_there_was(proxy: Proxy) -> None:
    """A condition that is not met in time fails with the traffic as it is."""
    with pytest.raises(AssertionError, match=r"connections=0"):
        proxy.wait_until(lambda traffic: traffic.connections == 1, within=0.01)


def test_it_drips(echo: Echo, proxy: Proxy) -> None:
    """What arrives comes out in drops, all of it and in order; once healed what follows comes at once again."""
    with connected(proxy, echo) as (client, server):
        proxy.drip(0.01)
        client.sendall(bytes(range(10 * DROP)))
        assert server.recv(1000) == bytes(range(DROP))
        found = bytes(range(DROP))
        while len(found) < 10 * DROP:
            found += server.recv(1000)
        assert found == bytes(range(10 * DROP))
        assert proxy.traffic.chunks_up == 10
        proxy.heal()
        client.sendall(bytes(100))
        assert server.recv(1000) == bytes(100)
