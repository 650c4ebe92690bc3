"""Thousands of connections to one service process: waiters whose clients vanish, and clients that say nothing."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.proof.credentials import Credentials
from tests.server.talking import PATIENCE, ask, until
from tests.servers import lock_service
from tests.servers.fixtures import started
from tests.servers.process import Server

CROWD = 2_000
ROUNDS = 20 if os.environ.get("LEASED_SOAK") else 2
IDLE_COST = 100e6
"""Bytes that 2,000 idle connections may cost."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


@pytest.fixture(autouse=True)
def _room() -> Iterator[None]:
    """Descriptors for all of them, in this process and in those it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * CROWD
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            too_few = f"{wanted} descriptors are needed, and {hard} are allowed: raise `ulimit -Hn`"
            # In CI there has to be room; elsewhere it says how to make some.
            pytest.fail(too_few) if os.environ.get("CI") else pytest.skip(too_few)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident(server: Server) -> int:
    """Bytes of memory that it occupies."""
    return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def descriptors(server: Server) -> int:
    """How many files and sockets it has open."""
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def gauge(server: Server, name: str) -> int:
    """What the service measures of itself."""
    text = ask(server.port, "/metrics").body.decode()
    return int(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])


def state(server: Server, key: str) -> tuple[str, int]:
    """Whether it is held, and how many wait for it."""
    found = ask(server.port, f"/v1/locks/status?key={key}").json
    return found["state"], found["waiters"]


def take(server: Server, key: str) -> str:
    return str(ask(server.port, "/v1/locks/acquire", {"key": key, "ttlMs": 3_600_000}).json["token"])


def release(server: Server, key: str, token: str) -> None:
    assert ask(server.port, "/v1/locks/release", {"key": key, "token": token}).json == {"released": True}


def begin_wait(server: Server, key: str) -> socket.socket:
    """A client that has asked to wait for an hour, for a lease of an hour."""
    client = socket.create_connection((server.host, server.port), timeout=PATIENCE)
    body = json.dumps({"key": key, "ttlMs": 3_600_000, "waitMs": 3_600_000}).encode()
    head = f"POST /v1/locks/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return client


def close(client: socket.socket) -> None:
    client.close()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def half_close(client: socket.socket) -> None:
    """It says that nothing more will come, and then it is gone."""
    client.shutdown(socket.SHUT_WR)
    client.close()


WAYS: tuple[Callable[[socket.socket], None], ...] = (close, reset, half_close)


@pytest.fixture
def service() -> Iterator[Server]:
    settings = {"max_wait_slice": "3600", "max_waiters": str(2 * CROWD), "timeout": "30"}
    with started(lock_service.start, store="memory:", settings=settings) as server:
        yield server


def test_waiters_whose_clients_vanish_leave_nothing(service: Server) -> None:
    """V3, W4: 2,000 waiters on 20 keys vanish in every way while the keys are held: none of them is granted a key, and
    waiters, descriptors and memory are again as few as before, round after round."""
    keys = [f"k{number}" for number in range(20)]
    sizes = []
    open_before = descriptors(service)
    for _ in range(ROUNDS + 1):
        tokens = {key: take(service, key) for key in keys}
        crowd = [begin_wait(service, keys[number % len(keys)]) for number in range(CROWD)]
        until(lambda: gauge(service, "leased_waiters") == CROWD, what="all waiters")
        for number, client in enumerate(crowd):
            WAYS[number % len(WAYS)](client)
        until(lambda: gauge(service, "leased_waiters") == 0, what="an empty line")
        for key, token in tokens.items():
            release(service, key, token)
        assert [state(service, key) for key in keys] == [("free", 0)] * len(keys)
        until(lambda: descriptors(service) <= open_before + 1, what="closed descriptors")
        sizes.append(resident(service))
    assert sizes[-1] - sizes[0] < 20e6, sizes  # the first round makes room, the others use it


def test_a_long_line_passes_over_those_who_have_gone(service: Server) -> None:
    """V3, W4: two of three in a line of 300 vanish, in two waves; then it goes on through those who stay, in order, and
    nobody else is granted the key."""
    token = take(service, "k")
    crowd = [begin_wait(service, "k") for _ in range(300)]
    until(lambda: gauge(service, "leased_waiters") == len(crowd), what="all waiters")
    gone, stay = crowd[::3] + crowd[1::3], crowd[2::3]
    for number, client in enumerate(gone[: len(gone) // 2]):
        WAYS[number % len(WAYS)](client)
    until(lambda: gauge(service, "leased_waiters") == len(crowd) - len(gone) // 2, what="the line of who is left")
    for number, client in enumerate(gone[len(gone) // 2 :]):
        WAYS[number % len(WAYS)](client)
    until(lambda: gauge(service, "leased_waiters") == len(stay), what="the line of who stays")
    release(service, "k", token)
    for client in stay:
        with contextlib.closing(client):
            answer = json.loads(client.recv(65_536).partition(b"\r\n\r\n")[2])
            assert answer["acquired"] is True
            release(service, "k", answer["token"])
    assert state(service, "k") == ("free", 0)


def test_idle_connections_of_every_kind_cost_little(tmp_path: Path) -> None:
    """SEC12: 2,000 connections that were used once and say nothing more, at a service with credentials: at most 100 MB,
    and everybody else is served."""
    credentials = Credentials(tmp_path)
    headers = credentials.headers("owner")
    settings = {**credentials.settings(plenty=True), "idle_timeout": "600", "max_connections": str(2 * CROWD)}
    with started(lock_service.start, store="memory:", settings=settings) as server, contextlib.ExitStack() as stack:
        asked = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = f"GET /v1/locks/status?key=k HTTP/1.1\r\nHost: localhost\r\n{asked}\r\n".encode()
        before = resident(server)
        for _ in range(CROWD):
            client = stack.enter_context(socket.create_connection((server.host, server.port), timeout=PATIENCE))
            client.sendall(request)
            assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert descriptors(server) > CROWD
        assert resident(server) - before < IDLE_COST
        body = {"key": "k", "ttlMs": 60_000}
        assert ask(server.port, "/v1/locks/acquire", body, headers=headers).json["acquired"] is True
