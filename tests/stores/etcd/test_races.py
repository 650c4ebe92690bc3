"""On a real etcd: answers that are lost, big batches, what is swept, and watches that fell behind."""

import base64
import secrets
from collections.abc import Callable
from typing import Any

import pytest

from leased.clocks import BlockingClock
from leased.model import Acquire, Claim, Contended, Held, Lost, Release, Released
from leased.stores._etcd_feed import connect_feed, told
from leased.stores._etcd_url import read_address
from leased.targets import Options
from tests.servers import etcd as servers
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.stores.etcd.conftest import TIMEOUT, TOKEN, Caller

OTHER = "another-token-16"


@pytest.mark.parametrize("work", ["acquire", "renew", "release"])
def test_a_write_that_worked_and_went_unanswered_is_no_rival(
    caller: Caller, etcd_server: Server, proxy_to: Callable[[Server], Proxy], work: str
) -> None:
    """C043, C046: asked again, a call meets its own earlier write, which beats it, and is answered as by the first."""
    proxy = proxy_to(etcd_server)
    store = caller.open(proxy.url, namespace=secrets.token_hex(8))
    calls: dict[str, Callable[[], Any]] = {
        "acquire": lambda: store.acquire(Claim("key", TOKEN, 30.0), timeout=TIMEOUT),
        "renew": lambda: store.renew("key", TOKEN, ttl=30.0, number=1, timeout=TIMEOUT),
        "release": lambda: store.release("key", TOKEN, timeout=TIMEOUT),
    }
    caller(store.status("key", timeout=TIMEOUT))
    if work != "acquire":
        caller(calls["acquire"]())
    proxy.lose_reply()
    with pytest.raises(ConnectionError) as caught:
        caller(calls[work]())
    assert getattr(caught.value, "applied", "") is None
    answer = caller(calls[work]())
    if work == "release":
        assert answer == Released("not_holder")
        assert not caller(store.status("key", timeout=TIMEOUT)).held
    else:
        assert isinstance(answer, Held)
        assert answer.lease.renewal == (work == "renew")


def test_a_batch_is_as_many_transactions_as_it_needs(caller: Caller, etcd_server: Server) -> None:
    """More keys than one transaction of etcd takes are granted and released in one call, each by itself."""
    store = caller.open(etcd_server.url, namespace=secrets.token_hex(8))
    caller.take(store, "key7", "somebody-else-16")
    operations = [Acquire(Claim(f"key{number}", TOKEN, 30.0)) for number in range(333)]
    outcomes = caller(store.many(operations, timeout=30.0))
    assert [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, Held)] == [7]
    assert isinstance(outcomes[7], Contended)
    freed = caller(store.many([Release(f"key{number}", TOKEN) for number in range(333)], timeout=30.0))
    assert [number for number, outcome in enumerate(freed) if outcome != Released()] == [7]


def test_a_sweep_removes_what_nobody_needs(caller: Caller, etcd_server: Server) -> None:
    """Records of keys that opened long ago go with time; those that are held, or were a moment ago, stay."""
    namespace = f"sweep{secrets.token_hex(8)}"
    store = caller.open(etcd_server.url, namespace=namespace)
    for number in range(5):
        caller.take(store, f"old{number}")
        caller(store.release(f"old{number}", TOKEN, timeout=TIMEOUT))
    store.offset = 2 * 86_400.0
    caller.take(store, "new")
    assert store._old is not None
    caller(store._sweep(store._old))
    assert servers.keys(etcd_server.place, f"leased/{namespace}/") == 1
    assert caller(store.status("new", timeout=TIMEOUT)).held


def test_what_a_restored_cluster_has_forgotten_is_lost_and_fenced_off(caller: Caller, etcd_server: Server) -> None:
    """C103, M4: an older state is put back, in which there is no lease: another gets the key, with a higher fencing
    token although the last one is gone, and the first holder is told at its next renewal."""
    namespace = secrets.token_hex(8)
    store, other = (caller.open(etcd_server.url, namespace=namespace) for _ in range(2))
    first = caller.take(store, "key", ttl=600.0)
    name = base64.b64encode(f"leased/{namespace}/key".encode()).decode()
    servers.ask(etcd_server.place, "/v3/kv/deleterange", {"key": name})
    assert caller.take(other, "key", OTHER) > first
    assert caller(store.renew("key", TOKEN, ttl=600.0, number=1, timeout=TIMEOUT)) == Lost("taken")


def test_a_watch_that_fell_behind_a_compaction_begins_again(private_etcd: Callable[..., Server]) -> None:
    """A watch that etcd ends because its history was compacted away begins anew on the same connection, and rings: what
    was missed is looked for."""
    server = private_etcd()
    address = read_address(server.url, Options(BlockingClock()))
    feed = connect_feed(address)
    try:
        for _ in range(3):
            servers.put(server.place, "leased//key", b"before")
        revision = servers.compact(server.place)
        say = feed._say
        feed._say = lambda message: say(  # type: ignore[method-assign]
            {"create_request": {**message["create_request"], "start_revision": str(revision - 1)}}
        )
        feed.listen(["leased//key"])
        feed._say = say  # type: ignore[method-assign]
        assert _read(feed, until=3) == (["leased//key"] * 2, ["leased//key"])
        servers.put(server.place, "leased//key", b"after")
        assert _read(feed, until=1) == ([], ["leased//key"])
        assert told(address.listening, "leased//key") == b"after"
        feed.unlisten([])
        _read(feed, until=0)  # the sign of life that this asked for
        feed.unlisten([])
        with pytest.raises(TimeoutError):
            feed.unlisten([])
    finally:
        feed.close()
    assert told(address.listening, "leased//key") is None


def _read(feed: Any, *, until: int) -> tuple[list[str], list[str]]:
    """What comes, until something rang and so much was confirmed or rang."""
    import select

    confirmed: list[str] = []
    rung: list[str] = []
    while True:
        assert select.select([feed], [], [], 20.0)[0]
        more, further = feed.read()
        confirmed += more
        rung += further
        if len(confirmed) + len(rung) >= until:
            return confirmed, rung
