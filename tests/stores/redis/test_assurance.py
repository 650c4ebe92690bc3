"""What the store says of itself is what the server, as configured now, gives: S10, C109, and replicas that confirm."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

import leased
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Acquire, Claim, Held, Look, Operation, Release, Released
from leased.stores.redis import RedisStore
from tests.servers import valkey
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.stores.redis.conftest import TIMEOUT, Caller

EVICTING = {"maxmemory": "100mb", "maxmemory-policy": "volatile-lru"}


@pytest.fixture(params=["valkey", "redis"])
def start(request: pytest.FixtureRequest, private_valkey: Callable[..., Server]) -> Callable[..., Server]:
    """Starts a server of either program."""
    return lambda **options: private_valkey(request.param, **options)


def used(caller: Caller, url: str, **options: Any) -> RedisStore:
    """A store that has asked its server something."""
    store = caller.open(url, **options)
    assert not store.assurance().known
    caller(store.status("key", timeout=TIMEOUT))
    return store


@pytest.mark.parametrize(
    ("settings", "exclusive", "word"),
    [
        ({}, "until-failover", "nothing certain survives"),
        (valkey.append_only("everysec"), "until-failover", "everysec"),
        (valkey.append_only("always"), "primary", "every answer survives"),
        ({**EVICTING, **valkey.append_only("always")}, "volatile", "every answer survives"),
        ({"maxmemory": "100mb"}, "until-failover", "nothing certain survives"),
    ],
)
def test_a_configuration_is_told(
    caller: Caller, start: Callable[..., Server], settings: dict[str, str], exclusive: str, word: str
) -> None:
    """Exclusivity, possible early loss and durability follow from persistence and eviction."""
    found = used(caller, start(settings=settings).url).assurance()
    assert found.known
    assert found.exclusive == exclusive
    assert found.early_loss is (exclusive != "primary")
    assert word in found.durable
    assert bool(found.notes) is (exclusive != "primary")


def test_eviction_is_warned_of_once(
    caller: Caller, start: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """C109: a policy that may evict locks is one line in the log, which names the setting."""
    server = start(settings=EVICTING)
    with caplog.at_level(logging.WARNING, "leased"):
        store = used(caller, server.url)
        with valkey.client_of(server.place) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        caller(store.status("key", timeout=TIMEOUT))
    assert len([line for line in caplog.messages if "maxmemory-policy volatile-lru" in line]) == 1
    assert any("maxmemory-policy" in note for note in store.assurance().notes)


def test_what_cannot_be_read_is_unknown(caller: Caller, start: Callable[..., Server]) -> None:
    """S6: a user who may not read the configuration is told so, and nothing is promised."""
    server = start(users=["worker on >pw ~* &* +@all -config"], settings=valkey.append_only("always"))
    found = used(caller, f"redis://worker:pw@{server.host}:{server.port}").assurance()
    assert (found.exclusive, found.durable, found.early_loss) == ("unknown", "unknown", True)
    assert any("CONFIG GET" in note for note in found.notes)


def test_replicas_mean_fail_overs(caller: Caller, start: Callable[..., Server]) -> None:
    """However durable a primary is, a fail-over to a replica can lose a lease."""
    server = start(settings=valkey.append_only("always"))
    start(replica_of=server)
    found = used(caller, server.url).assurance()
    assert found.exclusive == "until-failover"
    assert any("fail-over" in note for note in found.notes)


def test_a_replica_that_is_cut_off_counts(caller: Caller, start: Callable[..., Server]) -> None:
    """A primary cannot know whether a replica that left is about to take over: it does not look alone at once."""
    server = start(settings=valkey.append_only("always"))
    replica = start(replica_of=server)
    store = used(caller, server.url)
    replica.kill()
    with valkey.client_of(server.place) as client:
        while client.info("replication")["connected_slaves"]:
            pass
        assert used(caller, server.url).assurance().exclusive == "until-failover"
        client.config_set("repl-backlog-ttl", 1)
        while client.info("replication")["repl_backlog_active"]:
            pass
        assert used(caller, server.url).assurance().exclusive == "primary"
        client.client_kill_filter(_type="normal", skipme=True)
        caller(store.status("key", timeout=TIMEOUT))
        assert (store.assurance().exclusive, store.assurance().early_loss) == ("until-failover", True)


def test_too_little_is_refused_before_a_grant(caller: Caller, start: Callable[..., Server]) -> None:
    """S10: `require` refuses grants at the first call already; what is held can still be released."""
    server = start()
    caller.take(caller.open(server.url), "key")
    store = caller.open(server.url, require="primary")
    with pytest.raises(StoreNotUsable, match="'primary' is required"):
        caller(store.acquire(Claim("other", "token", 30.0), timeout=TIMEOUT))
    assert not caller(store.status("other", timeout=TIMEOUT)).held
    batch: list[Operation] = [Acquire(Claim("other", "token", 30.0)), Look("key", "token")]
    outcomes = caller(store.many(batch, timeout=TIMEOUT))
    assert [type(outcome) for outcome in outcomes] == [StoreNotUsable, Held]
    assert caller(store.release("key", "token", timeout=TIMEOUT))


def test_a_change_for_the_worse_is_an_event(caller: Caller, start: Callable[..., Server]) -> None:
    """S10: what the server gives is read again after a reconnect."""
    server = start(settings=valkey.append_only("always"))
    store = used(caller, server.url)
    with valkey.client_of(server.place) as client:
        client.config_set("appendonly", "no")
        client.client_kill_filter(_type="normal", skipme=True)
    caller(store.status("key", timeout=TIMEOUT))
    assert [event.name for event in caller.events] == ["assurance_changed"]
    assert store.assurance().exclusive == "until-failover"


def test_a_confirmed_grant_is_on_a_replica(caller: Caller, start: Callable[..., Server]) -> None:
    """`leased_wait=1`: when a grant is answered a replica has it; batches wait once."""
    primary = start()
    replica = start(replica_of=primary)
    store = caller.open(primary.url, own={"wait": "1"})
    caller.take(store, "key")
    with valkey.client_of(replica.place) as client:
        assert len(client.keys("*key*")) == 1
    assert isinstance(caller(store.renew("key", "token", ttl=30.0, number=1, timeout=TIMEOUT)), Held)
    assert any("1 of the replicas" in note for note in store.assurance().notes)


def test_an_unconfirmed_grant_is_given_back(caller: Caller, start: Callable[..., Server]) -> None:
    """S6: a grant that no replica confirms in time raises, and the key is open again; so does a renewal."""
    primary = start()
    replica = start(replica_of=primary)
    store = caller.open(primary.url, own={"wait": "1"})
    caller.take(store, "held")
    replica.pause()
    try:
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas") as caught:
            caller(store.acquire(Claim("key", "token", 30.0), timeout=0.5))
        assert caught.value.applied is False
        assert not caller(store.status("key", timeout=TIMEOUT)).held
        with pytest.raises(StoreUnavailable, match="replicas") as caught:
            caller(store.renew("held", "token", ttl=30.0, number=1, timeout=0.5))
        assert caught.value.applied is None
        assert caller(store.release("held", "token", timeout=TIMEOUT))
    finally:
        replica.resume()


def test_too_few_replicas_are_a_failure_and_not_somebody_else(start: Callable[..., Server]) -> None:
    """S2, S6: a single try on a server without the replicas that `leased_wait` asks for is a store that failed, for
    every caller: nobody has the key."""
    server = start()
    with leased.connect(f"{server.url}?leased_wait=1&leased_timeout=1") as locks:
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            locks.lock("key").acquire()
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            locks.lock("key").try_acquire()
        assert not locks.status("key").held


def test_what_is_asked_again_is_confirmed_as_well(
    caller: Caller, start: Callable[..., Server], proxy_to: Callable[[Server], Proxy]
) -> None:
    """`leased_wait=1`: after a lost answer, the same claim or renewal again waits for the replica like the first."""
    primary = start()
    replica = start(replica_of=primary)
    proxy = proxy_to(primary)
    store = caller.open(proxy.url, own={"wait": "1"})
    caller.take(store, "held")
    replica.pause()
    try:
        proxy.lose_reply()
        with pytest.raises(StoreUnavailable) as caught:
            caller(store.renew("held", "token", ttl=60.0, number=1, timeout=0.8))
        assert caught.value.applied is None
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            caller(store.renew("held", "token", ttl=60.0, number=1, timeout=0.8))
        caller(store.status("key", timeout=TIMEOUT))  # there is a connection
        proxy.lose_reply()
        with pytest.raises(StoreUnavailable) as caught:
            caller(store.acquire(Claim("key", "token", 30.0), timeout=0.8))
        assert caught.value.applied is None
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            caller(store.acquire(Claim("key", "token", 30.0), timeout=0.8))
    finally:
        replica.resume()


def test_what_was_retaken_without_confirmation_is_not_undone(caller: Caller, start: Callable[..., Server]) -> None:
    """S6: an unconfirmed re-take has ended the lease before it, so nobody may read that nothing happened."""
    primary = start()
    replica = start(replica_of=primary)
    store = caller.open(primary.url, own={"wait": "1"})
    caller.take(store, "key", "old", owner="me")
    replica.pause()
    try:
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas") as caught:
            caller(store.acquire(Claim("key", "new", 30.0, owner="me"), timeout=0.5))
        assert caught.value.applied is None
        assert not caller(store.status("key", timeout=TIMEOUT)).held
    finally:
        replica.resume()


def test_a_grant_that_cannot_be_taken_back_is_open_and_changes_no_other_outcome(
    caller: Caller, start: Callable[..., Server], proxy_to: Callable[[Server], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: no connection for the taking back means that nobody knows of the grant; the release beside it took place."""
    server = start()
    proxy = proxy_to(server)
    store = caller.open(proxy.url, own={"wait": "1"})
    direct = caller.open(server.url)
    caller(direct.release("held", "token", timeout=TIMEOUT))  # the server knows the scripts
    caller.take(direct, "held")
    caller(store.status("key", timeout=TIMEOUT))
    pool = store._links._pool  # type: ignore[attr-defined]  # the way breaks right between two exchanges
    give = pool.give

    def break_off(connection: Any) -> None:
        give(connection)
        monkeypatch.undo()
        proxy.refuse()
        pool.drop(pool._place().idle.pop())

    monkeypatch.setattr(pool, "give", break_off)
    batch: list[Operation] = [Release("held", "token"), Acquire(Claim("key", "token", 30.0))]
    released, refused = caller(store.many(batch, timeout=1.0))
    assert released == Released()
    assert isinstance(refused, StoreUnavailable)
    assert refused.applied is None
    assert "0 of 1 replicas" in str(refused)
    assert caller(direct.status("key", timeout=TIMEOUT)).held
