"""What servers for tests can be started with does what it says: replicas, TLS, users, groups, a clock that moves."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pymysql
import pytest
import redis
from redis.exceptions import NoPermissionError

from tests.servers import mariadb, postgres, valkey, valkey_groups
from tests.servers.fixtures import started
from tests.servers.moving_clock import MovingClock
from tests.servers.process import Place, Server, ServerFailed
from tests.servers.proxy import Proxy
from tests.servers.remembering import remember, remembered

FOLLOWS_A_CLOCK: dict[str, Callable[..., Server]] = {
    "valkey": valkey.start,
    "postgres": postgres.start,
    "mariadb": mariadb.start,
}


def soon(true: Callable[[], bool]) -> None:
    """Return as soon as it is true."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it did not become true within 30 s"
        time.sleep(0.01)


@pytest.fixture(params=FOLLOWS_A_CLOCK)
def moved(request: pytest.FixtureRequest, closing: ExitStack, moving_clock: MovingClock) -> Server:
    """A server whose clock is `moving_clock`."""
    return closing.enter_context(started(FOLLOWS_A_CLOCK[request.param], clock=moving_clock))


def ahead(server: Server) -> float:
    """By how many seconds its wall clock is before ours."""
    return server.wall_clock() - time.time()


def test_a_clock_is_moved_while_the_server_runs(moved: Server, moving_clock: MovingClock) -> None:
    """Steps add up, a rate gains from then on, what it gained stays over a restart, and `right` ends it all."""
    assert ahead(moved) == pytest.approx(0, abs=1)
    moving_clock.step(3600)
    assert ahead(moved) == pytest.approx(3600, abs=1)
    moving_clock.step(-3610)
    assert ahead(moved) == pytest.approx(-10, abs=1)
    moving_clock.run_at(11.0)
    soon(lambda: ahead(moved) > -5)
    moving_clock.run_at(1.0)
    gained = ahead(moved)
    assert gained > -6
    moved.restart()
    assert ahead(moved) == pytest.approx(gained, abs=1)
    moving_clock.right()
    assert ahead(moved) == pytest.approx(0, abs=1)


def test_a_clock_never_touches_monotonic_time(tmp_path: Path, moving_clock: MovingClock) -> None:
    """A program that follows a clock set forward sees another wall clock and the same monotonic one."""
    environment = moving_clock.environment(Place(0, 0, tmp_path))
    moving_clock.step(3600)
    before = time.monotonic(), time.time()
    printed = subprocess.check_output(
        [sys.executable, "-c", "import time; print(time.monotonic(), time.time())"], env=environment, text=True
    )
    after = time.monotonic(), time.time()
    steady, wall = map(float, printed.split())
    assert before[0] <= steady <= after[0]
    assert before[1] + 3599 <= wall <= after[1] + 3601


def test_a_rate_keeps_what_it_gained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moving_clock: MovingClock
) -> None:
    """Since a program counts a rate from its own start, what was gained until now becomes an offset at each change."""
    wall = [1000.0]
    monkeypatch.setattr(time, "time", lambda: wall[0])
    place, file = Place(0, 0, tmp_path), tmp_path / "clock"
    moving_clock.environment(place)
    assert file.read_text() == "+0.000000 x1.0\n"
    wall[0] = 1010.0
    moving_clock.run_at(3.0)
    assert file.read_text() == "-20.000000 x3.0\n"  # where it was, ten seconds after the start
    wall[0] = 1020.0
    moving_clock.environment(place)  # started again, with 20 seconds gained
    assert file.read_text() == "+20.000000 x3.0\n"
    wall[0] = 1025.0
    moving_clock.run_at(0.5)
    assert file.read_text() == "+32.500000 x0.5\n"  # 30 gained, and the half that five seconds at 0.5 would lose


def test_a_clock_belongs_to_one_server(moved: Server, moving_clock: MovingClock, tmp_path: Path) -> None:
    """Given to a second server it is refused, since the two would disagree about when they started."""
    with pytest.raises(ServerFailed, match="a clock belongs to one server"):
        moving_clock.environment(Place(0, 0, tmp_path))


def test_redis_refuses_a_clock_that_would_hang_it(moving_clock: MovingClock) -> None:
    """The error says what to take instead."""
    with pytest.raises(ValueError, match="take Valkey"):
        valkey.start("redis", clock=moving_clock)


@pytest.mark.parametrize("program", ["valkey", "redis"])
def test_a_replica_of_redis_follows(
    program: valkey.Program, private_valkey: Callable[..., Server], closing: ExitStack
) -> None:
    """It has what was written before it was started and gets what is written later."""
    first = private_valkey(program)
    remember(first, "early")
    second = private_valkey(program, replica_of=first)
    assert remembered(second) == "early"
    remember(first, "late")
    soon(lambda: remembered(second) == "late")


@pytest.mark.parametrize("source", ["debian", "wheel"])
def test_a_replica_of_postgres_follows_and_can_be_promoted(
    source: postgres.Source, private_postgres: Callable[..., Server]
) -> None:
    """A hot standby reads what the first wrote, writes nothing, and goes on alone when the first is dead."""
    first = private_postgres(source)
    second = private_postgres(source, replica_of=first)
    remember(first, "one")
    soon(lambda: remembered(second) == "one")
    with psycopg.connect(second.url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("CREATE TABLE more ()")
        first.kill()
        assert connection.execute("SELECT pg_promote()").fetchone() == (True,)
        connection.execute("CREATE TABLE more ()")
    assert remembered(second) == "one"


def test_redis_speaks_tls_only_when_asked(private_valkey: Callable[..., Server]) -> None:
    """The URL leads a client to a verified connection with the password; without TLS or password there is none."""
    server = private_valkey("redis", tls=True, password="open sesame")
    with redis.Redis.from_url(server.url) as client:
        assert client.ping()
    with valkey.client_of(server.place, password="open sesame") as plain, pytest.raises(redis.ConnectionError):
        plain.ping()
    with valkey.client_of(server.place, tls=True) as unknown, pytest.raises(redis.AuthenticationError):
        unknown.ping()


def test_postgres_speaks_tls_only_when_asked(private_postgres: Callable[..., Server]) -> None:
    """The URL leads a client to a verified connection; one without TLS is refused."""
    server = private_postgres(tls=True)
    with psycopg.connect(server.url) as connection:
        secure = connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
    assert secure == (True,)
    with pytest.raises(psycopg.OperationalError, match="no encryption"):
        psycopg.connect(postgres.url_of(server.place) + "?sslmode=disable")


def test_mariadb_speaks_tls_only_when_asked(private_mariadb: Callable[..., Server]) -> None:
    """A client that trusts the authority is let in; one without TLS is refused."""
    server = private_mariadb(tls=True)
    with mariadb.connection_to(server.place, tls=True) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        status = cursor.fetchone()
        assert status is not None
        assert status[1]
    with pytest.raises(pymysql.OperationalError, match="Access denied"):
        pymysql.connect(
            host=server.host, port=server.port, user=mariadb.USER, password=mariadb.PASSWORD, ssl_disabled=True
        )


def test_users_may_do_what_their_line_says(private_valkey: Callable[..., Server]) -> None:
    """A user is let in with the password and kept from what the line does not grant; the socket works as well."""
    server = private_valkey(users=("worker on >secret ~mine:* +get +set",))
    path = str(valkey.socket_of(server))
    with redis.Redis(unix_socket_path=path, username="worker", password="secret") as client:
        assert client.set("mine:1", "x")
        with pytest.raises(NoPermissionError):
            client.set("yours:1", "x")
        with pytest.raises(NoPermissionError):
            client.flushall()


@pytest.mark.parametrize("program", ["valkey", "redis"])
def test_a_cluster_takes_every_key(program: valkey.Program, closing: ExitStack) -> None:
    """Three nodes share the slots: keys of all three are written and read, and one of them can go and come back."""
    group = closing.enter_context(started(valkey_groups.start_cluster, program))
    assert group.url.startswith("redis+cluster://")
    with redis.RedisCluster(group.nodes[0].host, group.nodes[0].port) as client:
        for number in range(30):
            client.set(f"key-{number}", number)
        assert [int(client.get(f"key-{number}") or 0) for number in range(30)] == [*range(30)]
    sizes = []
    for node in group.nodes:
        with valkey.client_of(node.place) as client_of_one:
            sizes.append(client_of_one.dbsize())
    assert sum(sizes) == 30
    assert all(sizes)


def test_sentinels_promote_the_replica(closing: ExitStack) -> None:
    """When the master is dead, they agree on the replica."""
    group = closing.enter_context(started(valkey_groups.start_sentinels))
    master, replica = group.nodes
    assert valkey_groups.master_of(group) == (master.host, master.port)
    master.kill()
    soon(lambda: valkey_groups.master_of(group) == (replica.host, replica.port))


def test_a_reply_is_lost_in_front_of_a_real_server(valkey_server: Server, proxy_to: Callable[..., Proxy]) -> None:
    """The server has done what it was asked to, and the client sees its connection end."""
    proxy = proxy_to(valkey_server)
    with valkey.client_of(Place(proxy.port, 0, valkey_server.place.directory)) as client:
        client.set("servers:lost", "before")
        proxy.lose_reply(containing=b"servers:lost")
        with pytest.raises(redis.ConnectionError):
            client.set("servers:lost", "after")
        assert client.get("servers:lost") == "after"
        proxy.lose_request(containing=b"servers:lost")
        with pytest.raises(redis.ConnectionError):
            client.set("servers:lost", "never")
        assert client.getdel("servers:lost") == "after"
    assert proxy.traffic.tripped == 2
