"""The store on a Redis Cluster: the contract, keys on all nodes, and slots that move while it is used."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from redis.crc import key_slot

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Acquire, Claim, Held, Look, Lost, Operation, Release, Released
from leased.stores._redis_names import Names
from leased.stores._redis_url import Node
from leased.stores.redis import RedisStore
from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Async, Blocking, Face
from tests.contract.redis_places import redis
from tests.servers import valkey, valkey_groups
from tests.servers.fixtures import started
from tests.servers.process import Server
from tests.servers.valkey_groups import Group
from tests.stores.redis.conftest import TIMEOUT, Caller
from tests.stores.redis.test_names import ODD


@pytest.fixture(scope="module")
def cluster() -> Iterator[Group]:
    """Three nodes that share the slots, and believe each other there for a minute."""
    with started(valkey_groups.start_cluster) as group:
        for number in range(3):
            _tell(group, number, "CONFIG SET cluster-node-timeout 60000")
        yield group


@pytest.mark.parametrize("face", [Blocking(), Async()], ids=lambda face: face.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Check, face: Face, cluster: Group) -> None:
    """The store keeps this promise of the contract on a cluster."""
    result = run_check(check, redis(face, lambda: cluster.url, name="redis-cluster"))
    if result.error:
        raise result.error
    assert result.ok


def test_the_whole_life_of_odd_keys(caller: Caller, cluster: Group) -> None:
    """C105: every key is taken, renewed, shown, listed and freed, wherever its slot is, alone and in batches."""
    store = caller.open(cluster.url, namespace=f"odd{caller.face.name}")
    claims = [Claim(key, f"token {key}", 30.0) for key in ODD]
    outcomes = caller(store.many([Acquire(claim) for claim in claims], timeout=TIMEOUT))
    assert all(isinstance(outcome, Held) for outcome in outcomes)
    assert len({key_slot(Names("").record(key)) * 3 // 16384 for key in ODD}) == 3
    for claim in claims:
        renewed = caller(store.renew(claim.key, claim.token, ttl=20.0, number=1, timeout=TIMEOUT))
        assert isinstance(renewed, Held)
        assert caller(store.status(claim.key, timeout=TIMEOUT)).state == "held"
    listed = [status.key for status in caller(store.list("", after="", limit=100, timeout=TIMEOUT))]
    assert listed == sorted(ODD, key=str.encode)
    freed = caller(store.many([Release(claim.key, claim.token) for claim in claims], timeout=TIMEOUT))
    assert freed == [Released()] * len(claims)


def test_a_slot_that_moved_is_followed(caller: Caller, cluster: Group) -> None:
    """What a node passes on has not run there: it runs once on the new one, and no error reaches the caller."""
    store = caller.open(cluster.url, namespace="moving")
    key = f"moved{caller.face.name}"
    caller.take(store, "warm")
    slot = key_slot(Names("moving").record(key))
    ids = [_id(cluster, number) for number in range(3)]
    before = next(number for number, node in enumerate(cluster.nodes) if _has(cluster, number, slot))
    after = (before + 1) % 3
    _tell(cluster, after, f"CLUSTER SETSLOT {slot} IMPORTING {ids[before]}")
    _tell(cluster, before, f"CLUSTER SETSLOT {slot} MIGRATING {ids[after]}")
    caller.take(store, key, "during")  # the old node answers ASK
    for number in range(3):
        _tell(cluster, number, f"CLUSTER SETSLOT {slot} NODE {ids[after]}")
    try:
        assert isinstance(caller(store.renew(key, "during", ttl=30.0, number=1, timeout=TIMEOUT)), Held)
        batch: list[Operation] = [Release(key, "during"), Acquire(Claim(key, "after", 30.0)), Release("warm", "token")]
        outcomes = caller(store.many(batch, timeout=TIMEOUT))
        assert [type(outcome) for outcome in outcomes] == [Released, Held, Released]
    finally:
        caller(store.abandon(key, "after", timeout=TIMEOUT))


def test_one_node_of_a_cluster_says_how_to_go_on(caller: Caller, cluster: Group) -> None:
    """redis:// to a node that has other slots, and redis+cluster:// to a server alone, name the right scheme."""
    node = cluster.nodes[0]
    alone = caller.open(f"redis://{node.host}:{node.port}")
    with pytest.raises(StoreNotUsable, match=r"redis\+cluster"):
        caller(_each_status(alone))


def test_a_server_alone_is_no_cluster(caller: Caller, valkey_server: Server) -> None:
    """redis+cluster:// to a server that is no part of one names the right scheme."""
    store = caller.open(f"redis+cluster://{valkey_server.host}:{valkey_server.port}")
    with pytest.raises(StoreNotUsable, match="redis://"):
        caller(store.status("key", timeout=TIMEOUT))


def test_the_assurance_says_that_fail_overs_lose(caller: Caller, cluster: Group) -> None:
    """S10: a cluster promises exclusion until a fail-over."""
    store = caller.open(cluster.url)
    caller(store.status("key", timeout=TIMEOUT))
    assert store.assurance().exclusive == "until-failover"


def test_a_node_that_left_counts_no_more(caller: Caller, cluster: Group) -> None:
    """S10: what the store gives is what the nodes of the cluster give, not one that has left it."""
    store = caller.open(cluster.url)
    caller(_each_status(store))
    found = store.assurance()
    store._met[Node("gone", 1)] = replace(found, exclusive="volatile")
    store._tell_weakest()
    assert store.assurance().exclusive == "volatile"
    store._links._known = False  # type: ignore[attr-defined]  # as after a node was away
    caller(store.status("key", timeout=TIMEOUT))
    assert store.assurance().exclusive == found.exclusive


def test_too_little_refuses_only_the_grants_of_a_batch(caller: Caller, cluster: Group) -> None:
    """S10: where `require` is not met, what was held can still end and go on, also beside a grant on the same node."""
    name = f"require{caller.face.name}"
    store = caller.open(cluster.url, namespace=name)
    keys = [f"key{number}" for number in range(12)]
    for key in keys:
        caller.take(store, key)
    strict = caller.open(cluster.url, namespace=name, require="primary")
    grants: list[Operation] = [Acquire(Claim(f"other {key}", "token", 30.0)) for key in keys]
    batch: list[Operation] = [*grants, *(Release(key, "token") for key in keys)]
    outcomes = caller(strict.many(batch, timeout=TIMEOUT))
    assert [type(outcome) for outcome in outcomes[:12]] == [StoreNotUsable] * 12
    assert outcomes[12:] == [Released()] * 12
    assert not any(caller(store.status(f"other {key}", timeout=TIMEOUT)).held for key in keys)


@pytest.mark.parametrize("number", range(3))
def test_a_node_that_hangs_takes_only_its_own_keys_away(caller: Caller, cluster: Group, number: int) -> None:
    """Whichever node is stopped: a new store and an old one reach the others in time, also in one batch with it."""
    namespace = f"hang{caller.face.name}{number}"
    known = caller.open(cluster.url, namespace=namespace)
    keys = [f"key{position}" for position in range(40)]
    caller(known.many([Look(key, "token") for key in keys], timeout=TIMEOUT))
    slots = {key: key_slot(Names(namespace).record(key)) for key in keys}
    hung = {key for key in keys if _has(cluster, number, slots[key])}
    assert 0 < len(hung) < len(keys)
    node = cluster.nodes[number]
    node.pause()
    try:
        for store in (known, caller.open(cluster.url, namespace=namespace)):
            for _ in range(2):
                outcomes = caller(store.many([Look(key, "token") for key in keys], timeout=1.0))
                for key, outcome in zip(keys, outcomes, strict=True):
                    if key in hung:
                        assert isinstance(outcome, StoreUnavailable)
                        assert f":{node.port}" in str(outcome)
                    else:
                        assert outcome == Lost("expired"), (key, outcome)
                other = next(key for key in keys if key not in hung)
                assert caller(store.status(other, timeout=1.0)).state == "free"
    finally:
        node.resume()


async def _each_status(store: RedisStore) -> None:
    for key in ODD:
        await store.status(key, timeout=TIMEOUT)


def _id(cluster: Group, number: int) -> str:
    return _tell(cluster, number, "CLUSTER MYID")


def _has(cluster: Group, number: int, slot: int) -> bool:
    with valkey.client_of(cluster.nodes[number].place) as client:
        found: Any = client.execute_command("CLUSTER NODES")
    mine = f"{cluster.nodes[number].host}:{cluster.nodes[number].port}"
    places = found.items() if isinstance(found, dict) else []
    ranges = [bounds for place, told in places if place.startswith(mine) for bounds in told["slots"]]
    return any(int(bounds[0]) <= slot <= int(bounds[-1]) for bounds in ranges)


def _tell(cluster: Group, number: int, command: str) -> str:
    with valkey.client_of(cluster.nodes[number].place) as client:
        name, kind, *arguments = command.split(" ")
        answer: Any = client.execute_command(f"{name} {kind}", *arguments)
    return answer.decode() if isinstance(answer, bytes) else str(answer)
