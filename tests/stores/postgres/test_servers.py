"""Servers that stop, standbys, and poolers: what a store sees of them, and what it says that they give."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from leased.clocks import step
from leased.errors import InvalidRequest, StoreNotUsable, StoreUnavailable
from leased.model import Abandon, Acquire, Held, Release, Released, Renew
from leased.observe import Event
from leased.stores import postgres
from leased.stores._postgres_waiting import LoopWaiting
from leased.targets import hide_secrets
from tests.servers import postgres as servers
from tests.servers.process import Server
from tests.stores.postgres.conftest import Make, claim
from tests.until import until

Start = Callable[..., Server]


def test_a_server_that_is_killed_and_comes_back(private_postgres: Start, make: Make) -> None:
    """S4: while it is away calls fail at once with nothing applied; afterwards the lease is as it was."""
    server = private_postgres()
    store, held = make(server.url), claim("key")
    number = step(store.acquire(held, timeout=5)).lease.fencing_token
    server.kill()
    with pytest.raises(StoreUnavailable) as caught:
        step(store.renew("key", held.token, ttl=30.0, number=1, timeout=5))
    assert caught.value.applied is False
    server.start()
    assert step(store.renew("key", held.token, ttl=30.0, number=1, timeout=5)).lease.fencing_token == number
    server.restart()
    assert step(store.release("key", held.token, timeout=5))


def test_a_server_that_stands_still(private_postgres: Start, make: Make) -> None:
    """S4: a call ends in its time, its effect is unknown, and its connection is not used again."""
    server = private_postgres()
    store, held = make(server.url), claim("key")
    step(store.acquire(held, timeout=5))
    server.pause()
    with pytest.raises(StoreUnavailable, match="within 0.3") as caught:
        step(store.renew("key", held.token, ttl=30.0, number=1, timeout=0.3))
    assert caught.value.applied is None
    with pytest.raises(StoreUnavailable) as looked:
        step(store.look("key", held.token, timeout=0.3))
    assert looked.value.applied is False
    server.resume()
    assert isinstance(step(store.renew("key", held.token, ttl=30.0, number=2, timeout=5)), Held)


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a host that never answers: its queue is full."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            caller = opened.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@pytest.mark.parametrize(("more", "seconds"), [("", 2.0), ("?connect_timeout=1", 20.0)])
def test_a_silent_host_leaves_time_for_the_next(
    postgres_server: Server, make: Make, silent: int, more: str, seconds: float
) -> None:
    """S4: the hosts of a URL share the time of a call, and none takes more than its connect_timeout."""
    store = make(f"postgresql://postgres@127.0.0.1:{silent},127.0.0.1:{postgres_server.port}/postgres{more}")
    started = time.monotonic()
    assert step(store.status("key", timeout=seconds)).state == "free"
    assert 0.9 < time.monotonic() - started < 5.0


def test_hosts_that_all_fail(make: Make, silent: int) -> None:
    """S4: the call ends in its time; what may pass is told before what will not."""
    store = make(f"postgresql://postgres@127.0.0.1:{silent},/nowhere:1/postgres")
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match="took no connection within 0.2 s") as caught:
        step(store.status("key", timeout=0.4))
    assert time.monotonic() - started < 1.0
    assert caught.value.applied is False


def test_hosts_and_ports_that_do_not_match(make: Make) -> None:
    """C105: refused before anything is opened."""
    with pytest.raises(InvalidRequest, match="as many ports as hosts"):
        make("postgresql:///postgres?host=a,b,c&port=1,2")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:100%secret@host/db",
        "postgresql://user:sec%ret@host:port/db",
        "postgresql://100%secret@host/db",
        "postgresql://user:hunter/secret@host/db",
        "postgresql://user:123/secret@host/db",
        "postgresql://host/db?password=100%secret",
        "postgresql://host/db?PASSWORD=100%25secret",
    ],
)
def test_a_wrong_url_tells_no_password(make: Make, url: str) -> None:
    """S8: libpq quotes what it cannot read, which may be a part of the password; the form of a URL is told instead."""
    with pytest.raises(InvalidRequest, match="%25") as caught:
        make(url)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    for part in ("secret", "hunter", "%ret"):
        assert part not in f"{caught.value} {caught.value!r}"


def test_a_name_that_nobody_looks_up() -> None:
    """S4: in an event loop a name server that does not answer costs a call no more than its time."""
    released = threading.Event()

    async def look_up() -> None:
        with pytest.raises(TimeoutError):
            await LoopWaiting().begin(lambda _: released.wait(10), b"", seconds=0.1)
        released.set()

    asyncio.run(look_up())


def test_a_standby_grants_nothing(private_postgres: Start, make: Make) -> None:
    """A standby is told apart from contention, with the way to the primary; it shows leases, grants once promoted."""
    primary = private_postgres()
    first = make(primary.url)
    held = claim("key")
    step(first.acquire(held, timeout=5))
    standby = private_postgres(replica_of=primary)
    store = make(standby.url)
    with pytest.raises(StoreUnavailable, match="target_session_attrs=read-write") as caught:
        step(store.acquire(claim("other"), timeout=5))
    assert caught.value.applied is False
    with pytest.raises(StoreUnavailable, match="target_session_attrs=read-write") as abandoned:
        step(store.abandon("key", held.token, timeout=5))
    assert abandoned.value.applied is False
    assert isinstance(step(store.look("key", held.token, timeout=5)), Held)
    assert any("standby" in note for note in store.assurance().notes)
    primary.kill()
    with psycopg.connect(standby.url, autocommit=True) as connection:
        connection.execute("SELECT pg_promote()")
    assert isinstance(step(store.acquire(claim("other"), timeout=5)), Held)
    assert isinstance(step(store.renew("key", held.token, ttl=30.0, number=1, timeout=5)), Held)


def test_what_is_promised_follows_the_configuration(private_postgres: Start, make: Make) -> None:
    """S10: durability, fail-over and standbys show in the assurance, a change for the worse is an event, and
    `require` is checked before the first grant."""
    server = private_postgres(settings={**servers.DURABLE, "full_page_writes": "on"})
    events: list[Event] = []
    store = make(server.url, observer=events.append)
    assert not store.assurance().known
    step(store.status("key", timeout=5))
    assert (store.assurance().exclusive, store.assurance().early_loss) == ("primary", False)
    assert "PostgreSQL 15" in " ".join(store.assurance().notes)
    with pytest.raises(StoreNotUsable, match="replicated"):
        step(make(server.url, require="replicated").acquire(claim("key"), timeout=5))
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE postgres SET synchronous_commit = off")
    server.kill()
    server.start()
    step(store.status("key", timeout=5))
    assert store.assurance().exclusive == "volatile"
    assert [event.name for event in events] == ["assurance_changed"]
    assert "synchronous_commit = off" in events[0].data["notes"]


def test_less_than_required_refuses_grants_alone(private_postgres: Start, make: Make) -> None:
    """S10: where a store gives less than `require` asks for, a batch refuses its grants; what is held still ends."""
    server = private_postgres()
    kept, freed, dropped = claim("kept"), claim("freed"), claim("dropped")
    for held in (kept, freed, dropped):
        step(make(server.url).acquire(held, timeout=5))
    asked = [
        Acquire(claim("new")),
        Renew("kept", kept.token, 30.0, 1),
        Release("freed", freed.token),
        Abandon("dropped", dropped.token),
        Acquire(claim("newer")),
        Release("new", "nobody's"),
    ]
    store = make(server.url, require="consensus")
    outcomes = step(store.many(asked, timeout=5))
    refused = [outcomes.pop(0), outcomes.pop(3)]
    assert [type(outcome) for outcome in refused] == [StoreNotUsable] * 2
    assert refused[0] is not refused[1]
    assert isinstance(outcomes[0], Held)
    assert outcomes[1:] == [Released(), None, Released("not_holder")]
    states = [step(store.status(one.key, timeout=5)).state for one in (kept, freed, dropped)]
    assert states == ["held", "free", "free"]
    assert [type(outcome) for outcome in step(store.many(asked[::4], timeout=5))] == [StoreNotUsable] * 2


def wait_for_standbys(primary: Server, count: int) -> None:
    """Until so many follow this server."""
    with psycopg.connect(primary.url, autocommit=True) as connection:
        until(
            lambda: connection.execute("SELECT count(*) FROM pg_stat_replication").fetchone() == (count,),
            what=f"{count} standbys",
        )


def test_standbys_count(private_postgres: Start, make: Make) -> None:
    """S10: with a standby that lags a fail-over can lose leases; one that confirms every commit gives `replicated`."""
    settings = {**servers.DURABLE, "full_page_writes": "on"}
    primary = private_postgres(settings=settings)
    private_postgres(replica_of=primary, settings=settings)
    wait_for_standbys(primary, 1)
    store = make(primary.url)
    step(store.status("key", timeout=5))
    assert (store.assurance().exclusive, store.assurance().early_loss) == ("until-failover", True)
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW synchronous_standby_names").fetchone() != ("*",):
            pass
    store = make(primary.url, require="replicated")
    assert isinstance(step(store.acquire(claim("key"), timeout=5)), Held)
    assert (store.assurance().exclusive, store.assurance().early_loss) == ("replicated", False)


def test_a_standby_that_is_cut_off_counts(private_postgres: Start, make: Make) -> None:
    """S10: a primary cannot know whether a standby that left is about to take over: who met it goes on saying so, and
    with a replication slot everybody does."""
    primary = private_postgres(settings=servers.DURABLE)
    standby = private_postgres(replica_of=primary)
    wait_for_standbys(primary, 1)
    store = make(primary.url)
    step(store.status("key", timeout=5))
    standby.kill()
    wait_for_standbys(primary, 0)
    newcomer = make(primary.url)
    step(newcomer.status("key", timeout=5))
    assert newcomer.assurance().exclusive == "primary"
    primary.kill()
    primary.start()
    step(store.status("key", timeout=5))
    assert (store.assurance().exclusive, store.assurance().early_loss) == ("until-failover", True)
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("SELECT pg_create_physical_replication_slot('standby')")
    newcomer = make(primary.url)
    step(newcomer.status("key", timeout=5))
    assert (newcomer.assurance().exclusive, newcomer.assurance().early_loss) == ("until-failover", True)


def test_no_state_is_kept_in_a_session(private_pgbouncer: Any, postgres_server: Server, make: Make) -> None:
    """C111: several clients live a whole life through a pooler with two connections; a crash leaves nothing behind."""
    pooler = private_pgbouncer(postgres_server, pool_size=2)
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        settings = "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')"
        stores = [make(pooler.url) for _ in range(5)]
        for turn in range(6):
            for number, store in enumerate(stores):
                asked = claim(f"key {number} {turn}", late=turn == 3)
                assert isinstance(step(store.acquire(asked, timeout=5)), Held)
                other = stores[number - 1]
                assert isinstance(step(other.renew(asked.key, asked.token, ttl=30.0, number=1, timeout=5)), Held)
                crashed = step(other._pool.take(5))
                crashed.close()
                other._pool.drop(crashed)
                assert step(other.release(asked.key, asked.token, late=turn == 4, timeout=5))
        claims = [claim(f"batch {number}") for number in range(20)]
        assert all(isinstance(one, Held) for one in step(stores[0].many([Acquire(one) for one in claims], timeout=5)))
        assert all(step(stores[1].many([Release(one.key, one.token) for one in claims], timeout=5)))
        assert any("pooler" in note for note in stores[0].assurance().notes)
        with psycopg.connect(pooler.url, autocommit=True) as through:
            assert through.execute(settings).fetchone() == connection.execute(settings).fetchone()
            assert through.execute(
                "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'leased%'"
            ).fetchone() == (0,)


def test_errors_name_the_server_and_no_secret(private_postgres: Start, make: Make) -> None:
    """No password is in any error."""
    server = private_postgres()
    url = server.url.replace("postgres@", "postgres:open-sesame@")
    store = make(url)
    server.kill()
    with pytest.raises(StoreUnavailable) as caught:
        step(store.acquire(claim("key"), timeout=5))
    assert hide_secrets(url) in str(caught.value)
    assert "open-sesame" not in str(caught.value)


def test_encrypted_and_verified(private_postgres: Start, make: Make) -> None:
    """TLS is libpq's: the parameters of the URL decide, and a server that cannot prove who it is gets nothing."""
    server = private_postgres(tls=True)
    store, held = make(server.url), claim("key")
    assert "verify-full" in server.url
    assert isinstance(step(store.acquire(held, timeout=5)), Held)
    assert step(store.release("key", held.token, timeout=5))
    unknown = server.url.partition("&sslrootcert")[0] + "&sslrootcert=system"
    with pytest.raises(StoreUnavailable) as caught:
        step(make(unknown).acquire(claim("key"), timeout=5))
    assert caught.value.applied is False


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("postgresql://a@h/d", "postgres://b:secret@H:5432/d?sslmode=require", True),
        ("postgresql://h/d", "postgresql:///d?host=h", True),
        ("postgresql:///d?host=/run/a", "postgresql:///d?host=/run/b", False),
        ("postgresql://h/d", "postgresql://h:5433/d", False),
        ("postgresql://h/d", "postgresql://h/D", False),
        ("postgresql://h1,h2/d", "postgresql://h1/d", False),
    ],
)
def test_one_place_by_many_names(one: str, other: str, *, same: bool) -> None:
    """Waiters of one server and database share a line in their process, those of two never do."""
    assert (postgres.place_of(one) == postgres.place_of(other)) is same
    assert "secret" not in postgres.place_of(other)
