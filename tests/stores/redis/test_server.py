"""What a Redis or Valkey server can do to the store: lose scripts, restart, forget, evict, fill up, refuse."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.model import Abandon, Acquire, Claim, Contended, Held, Look, Lost, Operation, Release, Released, Renew
from leased.policy import FENCE_RETENTION, REPLAY_WINDOW
from leased.stores._redis_names import Names
from leased.stores.redis import RedisStore
from tests.servers import valkey
from tests.servers.process import Server
from tests.stores.redis.conftest import TIMEOUT, Caller


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, private_valkey: Callable[..., Server]) -> Server:
    """A server of this test alone, of either program."""
    return private_valkey(request.param)


@pytest.fixture
def client(server: Server) -> Any:
    """A client that does to the server what others do."""
    with valkey.client_of(server.place) as client:
        yield client


def whole_life(caller: Caller, store: RedisStore, key: str) -> None:
    """Every operation once; each must work at its first call."""
    claim = Claim(key, f"token of {key}", 30.0)
    assert isinstance(caller(store.acquire(claim, timeout=TIMEOUT)), Held)
    assert isinstance(caller(store.renew(key, claim.token, ttl=20.0, number=1, timeout=TIMEOUT)), Held)
    assert caller(store.status(key, timeout=TIMEOUT)).state == "held"
    assert caller(store.release(key, claim.token, timeout=TIMEOUT))
    caller.take(store, key, "other")
    assert caller(store.force_release(key, timeout=TIMEOUT))
    caller(store.abandon(key, "third", timeout=TIMEOUT))


def test_scripts_are_sent_again_when_the_server_has_forgotten_them(caller: Caller, server: Server, client: Any) -> None:
    """C101: after SCRIPT FLUSH every operation works at the first call, alone and in a batch."""
    store = caller.open(server.url)
    for name in ("before", "after"):
        whole_life(caller, store, name)
        client.script_flush()
    held = [Claim(f"many{number}", "token", 30.0) for number in range(5)]
    operations = [Acquire(claim) for claim in held] + [Release(claim.key, claim.token) for claim in held]
    outcomes = caller(store.many(operations, timeout=TIMEOUT))
    assert [type(outcome) for outcome in outcomes] == [Held] * 5 + [Released] * 5
    client.script_flush()
    outcomes = caller(store.many([Look("many0", "token"), Acquire(held[0]), Look("many0", "token")], timeout=TIMEOUT))
    assert [type(outcome) for outcome in outcomes] == [Lost, Held, Held]


def test_a_batch_keeps_its_order_on_a_key_when_some_scripts_are_forgotten(
    caller: Caller, server: Server, client: Any
) -> None:
    """C101: what names a key twice is answered in order, also where only some of it has to be sent again."""
    store = caller.open(server.url)
    client.script_flush()
    caller.take(store, "elsewhere")  # the server knows this script again, and no other
    first, second = Claim("k", "first", 30.0), Claim("k", "second", 30.0)
    operations: list[Operation] = [
        Acquire(first),
        Renew("k", "first", 30.0, 1),
        Release("k", "first"),
        Acquire(second),
        Look("k", "second"),
    ]
    outcomes = caller(store.many(operations, timeout=TIMEOUT))
    assert [type(outcome) for outcome in outcomes] == [Held, Held, Released, Held, Held]
    assert outcomes[2] == Released()


@pytest.mark.parametrize("text", ["nan", "inf", "1e300", "-5", "9007199254740993", "12345678901234567890123"])
def test_a_record_that_is_no_fencing_token_is_not_read_as_one(
    caller: Caller, server: Server, client: Any, text: str
) -> None:
    """M4, C093: what somebody else has written there is told, and goes with a forced release."""
    store = caller.open(server.url)
    client.set("leased::{k}", text)
    with pytest.raises(StoreNotUsable):
        caller.take(store, "k")
    assert caller(store.force_release("k", timeout=TIMEOUT))
    assert caller.take(store, "k") < 2**53


@pytest.mark.parametrize("end", ["kill", "restart"])
def test_a_lost_connection_is_no_error(caller: Caller, server: Server, client: Any, end: str) -> None:
    """C101, S4: after CLIENT KILL, or a restart of the server, every operation works at the first call."""
    store = caller.open(server.url)
    whole_life(caller, store, "before")
    if end == "kill":
        client.client_kill_filter(_type="normal", skipme=True)
    else:
        server.restart()
    whole_life(caller, store, "after")


def test_leases_survive_a_restart_of_a_server_that_keeps_them(
    caller: Caller, private_valkey: Callable[..., Server]
) -> None:
    """With an append-only file a lease is still there after a kill, and its token still renews it."""
    server = private_valkey(settings=valkey.append_only("always"))
    store = caller.open(server.url)
    fencing_token = caller.take(store, "key")
    server.kill()
    server.start()
    found = caller(store.renew("key", "token", ttl=30.0, number=1, timeout=TIMEOUT))
    assert isinstance(found, Held)
    assert found.lease.fencing_token == fencing_token


def test_a_server_that_forgot_tells_the_holder_and_counts_on(caller: Caller, server: Server) -> None:
    """C103: after loss of all data the old holder is told at its next renewal, and fencing tokens still rise."""
    store = caller.open(server.url)
    before = caller.take(store, "key")
    server.restart(keep_data=False)
    assert caller.take(store, "key", "other") > before
    assert caller(store.renew("key", "token", ttl=30.0, number=1, timeout=TIMEOUT)) == Lost("taken")


def test_an_evicted_lock_is_lost_and_counts_on(caller: Caller, server: Server, client: Any) -> None:
    """C109: once its record is gone the holder's next renewal says lost, and the next fencing token is higher."""
    store = caller.open(server.url)
    before = caller.take(store, "key")
    client.delete(Names("").record("key"))
    assert caller(store.renew("key", "token", ttl=30.0, number=1, timeout=TIMEOUT)) == Lost("expired")
    assert caller.take(store, "key", "other") > before


def test_the_server_removes_what_is_over(caller: Caller, server: Server, client: Any) -> None:
    """S9: every record and mark expires by itself: a day after its key opened, and marks alone after their window."""
    store = caller.open(server.url)
    caller.take(store, "held", ttl=30.0)
    caller.take(store, "freed")
    caller(store.release("freed", "token", late=True, timeout=TIMEOUT))
    names = Names("")
    left = {key: client.pttl(names.record(key)) / 1000 for key in ("held", "freed")}
    assert FENCE_RETENTION + 25 < left["held"] <= FENCE_RETENTION + 31
    assert FENCE_RETENTION - 5 < left["freed"] <= FENCE_RETENTION + 1
    caller(store.abandon("never held", "token", timeout=TIMEOUT))
    assert REPLAY_WINDOW - 5 < client.pttl(names.record("never held")) / 1000 <= REPLAY_WINDOW + 1
    assert all(client.ttl(name) > 0 for name in client.scan_iter())


def test_a_record_stays_small_however_many_tokens_are_remembered(caller: Caller, server: Server, client: Any) -> None:
    """Marks weigh on no operation: 2,000 in a minute leave the record as it was, each still counts, and all go."""
    store = caller.open(server.url)
    record = Names("").record("key")
    caller.take(store, "key", "warm", late=True)
    caller(store.release("key", "warm", late=True, timeout=TIMEOUT))
    caller.take(store, "key", "sized", late=True)
    size = client.hstrlen(record, "record")
    caller(store.release("key", "sized", late=True, timeout=TIMEOUT))
    for number in range(0, 2000, 100):
        names = [f"token{each}" for each in range(number, number + 100)]
        caller(store.many([Abandon("key", name) for name in names], timeout=TIMEOUT))
    caller.take(store, "key", "last")
    assert client.hstrlen(record, "record") <= size + 8
    for name in ("token0", "token1000", "token1999", "warm"):
        found = caller(store.acquire(Claim("key", name, 30.0), timeout=TIMEOUT))
        assert isinstance(found, Contended)
        assert found.ended
    store.offset = REPLAY_WINDOW + 1.0
    before = client.hlen(record)
    for number in range(10):
        caller(store.abandon("key", f"new{number}", timeout=TIMEOUT))
    assert client.hlen(record) < before - 10
    store.offset = 2 * REPLAY_WINDOW + 2.0
    caller.take(store, "key", "anew")
    assert client.type(record) == "string"


def test_only_the_hash_of_a_token_is_kept(caller: Caller, server: Server, client: Any) -> None:
    """M3: no token reaches the server."""
    store = caller.open(server.url)
    caller.take(store, "key", "very-secret")
    assert b"very-secret" not in client.dump(Names("").record("key"))
    assert not [entry for entry in client.slowlog_get() if b"very-secret" in entry["command"]]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?decode_responses=true",
        "?encoding=utf-16",
        "?encoding=latin-1&decode_responses=true",
        "?protocol=3",
        "?protocol=2",
    ],
)
def test_options_of_a_client_change_no_answer(caller: Caller, valkey_server: Server, query: str) -> None:
    """C107: with and without decoding, another encoding, RESP2 and RESP3: keys, owners and answers are the same."""
    store = caller.open(f"{valkey_server.url}{query}", namespace=f"options{query}{caller.face.name}")
    claim = Claim("schlüssel", "token", 30.0, owner="läufer")
    held = caller(store.acquire(claim, timeout=TIMEOUT))
    assert isinstance(held, Held)
    assert held.lease.owner == "läufer"
    refused = caller(store.acquire(Claim("schlüssel", "other", 30.0, owner="laufer"), timeout=TIMEOUT))
    assert isinstance(refused, Contended)
    assert refused.status is not None
    assert refused.status.owner == "läufer"
    assert [status.key for status in caller(store.list("", after="", limit=10, timeout=TIMEOUT))] == ["schlüssel"]
    assert caller(store.release("schlüssel", "token", timeout=TIMEOUT))


@pytest.mark.parametrize("kind", ["string", "hash"])
@pytest.mark.parametrize("rubbish", [b"", b"\x02\x01", b"rubbish", b"\x03" + bytes(150)])
def test_a_record_that_cannot_be_read_is_opened_by_force(
    caller: Caller, server: Server, client: Any, rubbish: bytes, kind: str
) -> None:
    """C093: an empty, truncated or newer record grants nothing, is shown, and goes by a forced release of the key."""
    store = caller.open(server.url)
    if kind == "string":
        client.set(Names("").record("key"), rubbish)
    else:
        client.hset(Names("").record("key"), "record", rubbish)
    with pytest.raises(StoreNotUsable, match="forced release"):
        caller(store.acquire(Claim("key", "token", 30.0), timeout=TIMEOUT))
    assert caller(store.status("key", timeout=TIMEOUT)).held
    assert not caller(store.force_release("key", fencing_token=5, timeout=TIMEOUT))
    assert caller(store.force_release("key", timeout=TIMEOUT))
    caller.take(store, "key")


@pytest.mark.parametrize("data", ["list", "hash"])
def test_other_data_in_the_place_of_a_record_grants_nothing(
    caller: Caller, server: Server, client: Any, data: str
) -> None:
    """A list or a hash where the record would be is no open key; the message says how to go on."""
    store = caller.open(server.url)
    if data == "list":
        client.rpush(Names("").record("key"), "x")
    else:
        client.hset(Names("").record("key"), "field", "x")
    with pytest.raises(StoreNotUsable, match="cannot be read"):
        caller(store.acquire(Claim("key", "token", 30.0), timeout=TIMEOUT))
    assert caller(store.force_release("key", timeout=TIMEOUT))


def test_leases_end_and_go_on_while_memory_is_full(caller: Caller, server: Server, client: Any) -> None:
    """A server that refuses new values refuses grants, with the reason; renewals, releases and marks still work."""
    store = caller.open(server.url)
    for key in ("released", "late", "forced", "abandoned"):
        caller.take(store, key)
    client.config_set("maxmemory", 1)
    with pytest.raises(StoreUnavailable, match="memory is full") as caught:
        caller(store.acquire(Claim("new", "token", 30.0), timeout=TIMEOUT))
    assert caught.value.applied is False
    assert isinstance(caller(store.renew("released", "token", ttl=60.0, number=1, timeout=TIMEOUT)), Held)
    assert caller(store.release("released", "token", timeout=TIMEOUT))
    assert caller(store.release("late", "token", late=True, timeout=TIMEOUT))
    assert caller(store.force_release("forced", timeout=TIMEOUT))
    caller(store.abandon("abandoned", "token", timeout=TIMEOUT))
    client.config_set("maxmemory", 0)
    assert caller(store.list("", after="", limit=10, timeout=TIMEOUT)) == []
    assert caller(store.acquire(Claim("late", "token", 30.0), timeout=TIMEOUT)) == Contended(
        caller(store.status("late", timeout=TIMEOUT)), ended=True
    )


def test_a_list_is_complete_page_by_page_while_keys_come_and_go(caller: Caller, server: Server) -> None:
    """L7: pages of any size, taken one after the other, show every key that is there throughout, in byte order."""
    store = caller.open(server.url)
    keys = sorted((f"{mark}{number}" for mark in ("a", "ä", "{*}", "😀") for number in range(300)), key=str.encode)
    for start in range(0, len(keys), 400):
        claims = [Claim(key, f"token {key}", 60.0) for key in keys[start : start + 400]]
        caller(store.many([Acquire(claim) for claim in claims], timeout=TIMEOUT))
    found: list[str] = []
    while page := caller(store.list("", after=found[-1] if found else "", limit=170, timeout=TIMEOUT)):
        found += [status.key for status in page]
        caller(store.release(found[0], f"token {found[0]}", timeout=TIMEOUT))
    assert found == keys
    starred = caller(store.list("{*", after="{*}29", limit=5, timeout=TIMEOUT))
    assert [status.key for status in starred] == [key for key in keys if key.startswith("{*") and key > "{*}29"][:5]


def test_foreign_names_are_no_keys(caller: Caller, server: Server, client: Any) -> None:
    """A name that is no UTF-8, although it looks like one of a record, is not listed, and keeps none from being."""
    store = caller.open(server.url)
    caller.take(store, "key")
    client.set(b"leased::{\xff\xfe}", "foreign")
    assert [status.key for status in caller(store.list("", after="", limit=10, timeout=TIMEOUT))] == ["key"]


def test_without_hiredis_the_whole_life_works(
    caller: Caller, valkey_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader in Python serves calls, batches and long lists as well."""
    monkeypatch.setitem(__import__("sys").modules, "hiredis", None)
    store = caller.open(valkey_server.url, namespace=f"plain{caller.face.name}")
    whole_life(caller, store, "key")
    claims = [Claim(f"many{number}", "token", 30.0, owner="x" * 200) for number in range(300)]
    outcomes = caller(store.many([Acquire(claim) for claim in claims], timeout=TIMEOUT))
    assert all(isinstance(outcome, Held) for outcome in outcomes)
    assert len(caller(store.list("many", after="", limit=500, timeout=TIMEOUT))) == 300


@pytest.mark.parametrize("what", ["nobody", "wrong password", "no scripts", "no keys", "no such database"])
def test_what_can_never_work_is_said_at_once(caller: Caller, private_valkey: Callable[..., Server], what: str) -> None:
    """S2: no password, a wrong one, or a user without the rights is not retryable, says what helps, shows no secret."""
    rights = "~* &* +@all -evalsha -eval" if what == "no scripts" else "~other:* &* +@all"
    server = private_valkey(password="s3cret-default", users=[f"worker on >s3cret {rights}"])
    login = {"nobody": "", "wrong password": "worker:s3cret-wrong@", "no such database": ":s3cret-default@"}
    url = f"redis://{login.get(what, 'worker:s3cret@')}{server.host}:{server.port}/{99 if 'database' in what else 0}"
    store = caller.open(url)
    with pytest.raises(StoreNotUsable) as caught:
        caller(store.acquire(Claim("key", "token", 30.0), timeout=TIMEOUT))
    assert caught.value.applied is False
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__!r} {caught.value.__context__!r}"


def test_a_user_with_few_rights_can_lock(caller: Caller, private_valkey: Callable[..., Server]) -> None:
    """Rights over the store's own names are enough; without the right to publish, releases are not told, and work."""
    rights = "-@all +eval +evalsha +get +set +hget +hset +hdel +pexpire +del +time +scan"
    server = private_valkey(users=[f"worker on >pw ~leased:* resetchannels {rights}"])
    store = caller.open(f"redis://worker:pw@{server.host}:{server.port}")
    whole_life(caller, store, "key")
    assert caller(store.list("", after="", limit=5, timeout=TIMEOUT)) == []


def test_nobody_locks_in_another_database(caller: Caller, private_valkey: Callable[..., Server]) -> None:
    """A user who may not select the database of the URL is refused: in another one he would hold what others hold."""
    server = private_valkey(users=["worker on >pw ~* &* +@all -select"])
    store = caller.open(f"redis://worker:pw@{server.host}:{server.port}/1")
    with pytest.raises(StoreNotUsable, match="NOPERM") as caught:
        caller(store.acquire(Claim("key", "token", 30.0), timeout=TIMEOUT))
    assert caught.value.applied is False
    caller.take(caller.open(f"redis://worker:pw@{server.host}:{server.port}/0"), "key")


def test_something_else_than_redis_is_noticed(caller: Caller, postgres_server: Server) -> None:
    """A port where something else listens is no Redis, and no reason to try again until the time is over."""
    store = caller.open(f"redis://{postgres_server.host}:{postgres_server.port}")
    with pytest.raises(StoreUnavailable) as caught:
        caller(store.status("key", timeout=TIMEOUT))
    assert caught.value.applied is False


def test_a_replica_takes_no_locks(caller: Caller, private_valkey: Callable[..., Server]) -> None:
    """A replica is refused at once with what helps, and nothing was applied."""
    primary = private_valkey()
    replica = private_valkey(replica_of=primary)
    store = caller.open(replica.url)
    with pytest.raises(StoreUnavailable, match="replica") as caught:
        caller(store.acquire(Claim("key", "token", 30.0), timeout=TIMEOUT))
    assert caught.value.applied is False


def test_a_server_that_became_a_replica_applies_nothing(caller: Caller, private_valkey: Callable[..., Server]) -> None:
    """READONLY means that it did not happen; once the server is a primary again, the next call works."""
    other, server = private_valkey(), private_valkey()
    store = caller.open(server.url)
    caller.take(store, "key")
    with valkey.client_of(server.place) as client:
        client.execute_command("REPLICAOF", other.host, str(other.port))
        with pytest.raises(StoreUnavailable) as caught:
            caller(store.acquire(Claim("second", "token", 30.0), timeout=TIMEOUT))
        assert caught.value.applied is False
        client.execute_command("REPLICAOF", "NO", "ONE")
    caller.take(store, "second")


def test_a_unix_socket_is_a_place(caller: Caller, server: Server) -> None:
    """`redis+unix://` names a socket; locks there are those of the same server by its port."""
    store = caller.open(f"redis+unix://{valkey.socket_of(server)}")
    whole_life(caller, store, "key")
    caller.take(store, "shared")
    assert caller(caller.open(server.url).status("shared", timeout=TIMEOUT)).held
    assert store.assurance().exclusive == "until-failover", "the same answers as by its port"


def test_tls_is_used_and_checked(caller: Caller, private_valkey: Callable[..., Server]) -> None:
    """`rediss://` speaks TLS with a certificate that is checked; batches over several records come back whole."""
    server = private_valkey("redis", tls=True)
    store = caller.open(server.url)
    whole_life(caller, store, "key")
    claims = [Claim(f"many{number}", "token", 30.0, owner="x" * 255) for number in range(500)]
    outcomes = caller(store.many([Acquire(claim) for claim in claims], timeout=TIMEOUT))
    assert all(isinstance(outcome, Held) for outcome in outcomes)
    stranger = caller.open(server.url.partition("?")[0])
    with pytest.raises(LeasedError, match="TLS"):
        caller(stranger.status("key", timeout=TIMEOUT))


def test_the_documented_user_can_do_all_that_the_store_does(
    caller: Caller, private_valkey: Callable[..., Server]
) -> None:
    """The access list in docs/stores/redis.md is enough for the whole life, the push and the assurance."""
    page = (Path(__file__).parents[3] / "docs/stores/redis.md").read_text()
    rights = page.partition("ACL SETUSER leased on >PASSWORD ")[2].partition("\n")[0]
    server = private_valkey(users=[f"leased on >pw {rights}"])
    store = caller.open(f"redis://leased:pw@{server.host}:{server.port}/1")
    rung: list[bool] = []
    caller(store.watch("key", lambda: rung.append(True)))
    whole_life(caller, store, "key")
    give_up_at = time.monotonic() + TIMEOUT
    while not rung and time.monotonic() < give_up_at:
        time.sleep(0.002)
    assert rung
    assert caller(store.list("", after="", limit=5, timeout=TIMEOUT)) == []
    assert store.assurance().exclusive == "until-failover"
