"""The servers for tests keep what `tests/servers` promises: they start, end, and keep or lose their data, as told."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.servers import found, mariadb, pgbouncer, postgres, valkey
from tests.servers.fixtures import started
from tests.servers.ports import Port
from tests.servers.process import Place, Server, ServerFailed
from tests.servers.remembering import remember, remembered

ROOT = Path(__file__).parents[2]

STARTS: dict[str, Callable[[], Server]] = {
    "valkey": lambda: valkey.start(settings=valkey.append_only()),
    "redis": lambda: valkey.start("redis", settings=valkey.append_only()),
    "postgres-debian": postgres.start,
    "postgres-wheel": lambda: postgres.start("wheel"),
    "mariadb": mariadb.start,
}
PROGRAMS: tuple[Callable[[], Path], ...] = (
    found.valkey_program,
    found.redis_program,
    found.debian_postgres,
    found.wheel_postgres,
    found.mariadb_program,
    found.pgbouncer_program,
    found.faketime_library,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_server_is_on_this_machine(program: Callable[[], Path]) -> None:
    """With CI=true a missing server is a failure; elsewhere its tests are skipped with the command that installs it."""
    assert started(program).exists()


def test_a_missing_server_skips_a_test_but_fails_it_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of both names the program and the command that installs it."""

    def start() -> Server:
        raise found.ServerMissing("a server")

    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^a server is not installed; run: sudo sh scripts/servers\.sh$"):
        started(start)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"^a server is not installed; run: sudo sh scripts/servers\.sh$"):
        started(start)


@pytest.mark.parametrize("kind", STARTS)
def test_a_server_keeps_its_data_until_told_otherwise(kind: str, closing: ExitStack) -> None:
    """What was written is there after a stop and after a kill, in the same place, and gone after a fresh start."""
    server = closing.enter_context(started(STARTS[kind]))
    place, first = server.url, server.pid
    remember(server, "one")
    server.restart()
    assert server.url == place
    assert server.pid != first
    assert remembered(server) == "one"
    server.kill()
    assert not server.running
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, server.port))
    server.start()
    assert remembered(server) == "one"
    server.restart(keep_data=False)
    assert remembered(server) is None


@pytest.mark.parametrize("kind", STARTS)
def test_a_paused_server_is_silent_until_it_goes_on(kind: str, closing: ExitStack) -> None:
    """While it is paused every process of it is stopped and a connection gets no answer; afterwards it answers."""
    server = closing.enter_context(started(STARTS[kind]))
    connections = [socket.create_connection((server.host, server.port), timeout=10) for _ in range(2)]
    with connections[0], connections[1]:
        server.pause()
        assert {state_of(pid) for pid in family_of(server.pid)} <= {"T", "Z"}
        with socket.create_connection((server.host, server.port), timeout=0.05) as late:
            late.sendall(b"PING\r\n")
            with pytest.raises(TimeoutError):
                late.recv(1)
        server.resume()
        assert abs(server.wall_clock() - server.wall_clock()) < 60
    assert server.running


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("valkey", found.valkey_program),
        ("postgres-wheel", found.wheel_postgres),
        ("mariadb", found.mariadb_program),
    ],
    ids=["valkey", "postgres", "mariadb"],
)
def test_a_server_does_not_outlive_whoever_started_it(kind: str, program: Callable[[], Path]) -> None:
    """When the process that started it is killed, even while the server is paused, it and its data are removed."""
    started(program)
    script = f"""
import sys
from tests.servers.test_servers import STARTS
server = STARTS[{kind!r}]()
server.pause()
print(server.pid, server.place.directory, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().split()
        family = [os.pidfd_open(one) for one in family_of(int(pid))]
        parent.kill()
    for descriptor in family:
        assert select.select([descriptor], [], [], 30)[0], "it runs on"
        os.close(descriptor)
    assert parent.returncode == -signal.SIGKILL
    wait_until_gone(Path(directory))


@pytest.mark.parametrize("kind", ["valkey_server", "postgres_server", "mariadb_server", "pgbouncer_server"])
def test_a_port_taken_meanwhile_is_left_to_whoever_has_it(kind: str, request: pytest.FixtureRequest) -> None:
    """When somebody else has the chosen port, the server starts on another and answers there."""
    recipe = request.getfixturevalue(kind).recipe
    taken: list[socket.socket] = []

    def prepare(place: Place) -> None:
        if not taken:
            taken.append(socket.socket())
            taken[0].bind((place.host, place.port))
        recipe.prepare(place)

    with Server(replace(recipe, prepare=prepare)) as server, taken[0]:
        assert server.port != taken[0].getsockname()[1]
        assert server.running
        assert abs(server.wall_clock() - request.getfixturevalue(kind).wall_clock()) < 60


def test_a_server_that_cannot_start_says_what_it_logged() -> None:
    """The error holds its log, and nothing of it is left."""
    with pytest.raises(ServerFailed, match=r"(?s)valkey ended with code 1; it logged:.*no-such-setting") as caught:
        started(valkey.start, settings={"no-such-setting": "1"})
    (directory,) = {
        frame.frame.f_locals["self"].place.directory
        for frame in caught.traceback
        if isinstance(frame.frame.f_locals.get("self"), Server)
    }
    assert not directory.exists()


def test_a_port_is_reserved_until_it_is_released() -> None:
    """Two reservations never meet, and each port can be bound by who holds it."""
    ports = [Port() for _ in range(50)]
    assert len({port.number for port in ports}) == 50
    for port in ports:
        socket.create_server(("127.0.0.1", port.number)).close()
        port.release()


def test_pgbouncer_shares_few_connections_by_transaction(pgbouncer_server: Server) -> None:
    """Five clients at once are served by no more than two sessions of the server, a transaction each."""
    import psycopg

    with ExitStack() as stack:
        clients = [stack.enter_context(psycopg.connect(pgbouncer_server.url)) for _ in range(5)]
        sessions = set()
        for client in clients:
            client.prepare_threshold = None
            sessions.add(client.execute("SELECT pg_backend_pid()").fetchone())
            client.commit()
        assert 1 <= len(sessions) <= 2


def test_pgbouncer_is_ended_with_its_server_still_there(closing: ExitStack, postgres_server: Server) -> None:
    """A pooler comes back to its port like any server, and the server behind it does not notice."""
    pooler = closing.enter_context(started(pgbouncer.start, postgres_server))
    place = pooler.url
    pooler.kill()
    assert postgres_server.running
    pooler.start()
    assert pooler.url == place
    assert remembered(pooler) is None


def wait_until_gone(path: Path) -> None:
    """Return once nothing is at this path."""
    deadline = time.monotonic() + 30
    while path.exists():
        assert time.monotonic() < deadline, f"{path} is still there"
        time.sleep(0.01)


def family_of(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *(int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def state_of(pid: int) -> str:
    """The state of a process, as the kernel writes it: T is stopped, Z has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
