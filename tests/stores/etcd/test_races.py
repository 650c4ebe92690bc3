"""On a real etcd: clocks apart, leases that nobody renews, answers that are lost, big batches, and what is swept."""

import secrets
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from leased.clocks import BlockingClock, step
from leased.model import Acquire, Claim, Contended, Held, Lost, Release, Released
from leased.store import Signal
from leased.stores._cas_store import CasStore
from leased.stores._etcd_feed import connect_feed, told
from leased.stores._etcd_url import read_address
from leased.stores.etcd import open as open_etcd
from leased.targets import Options
from tests.servers import etcd as servers
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.stores.etcd.conftest import TIMEOUT, TOKEN, Caller

OTHER = "another-token-16"


class AheadClock:
    """The clocks of this machine, both so many seconds ahead; they are set by hand."""

    def __init__(self) -> None:
        self.inner = BlockingClock()
        self.wall_ahead = 0.0
        self.ahead = 0.0

    def now(self) -> float:
        return self.inner.now() + self.ahead

    def wall(self) -> float:
        return self.inner.wall() + self.wall_ahead

    def pass_by(self, seconds: float) -> None:
        """Let time pass for this client."""
        self.ahead += seconds
        self.wall_ahead += seconds

    async def sleep(self, seconds: float) -> None:
        await self.inner.sleep(seconds)

    def signal(self) -> Signal:
        return self.inner.signal()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.inner.start(work)


class Client:
    """One process: a store with clocks of its own."""

    def __init__(self, server: Server, namespace: str, **options: Any) -> None:
        self.clock = AheadClock()
        self.events: list[str] = []
        asked = Options(
            clock=self.clock, namespace=namespace, observer=lambda event: self.events.append(event.name), **options
        )
        self.store: CasStore = open_etcd(server.url, face="blocking", options=asked)

    def acquire(self, token: str, *, ttl: float = 30.0) -> Held | Contended:
        """Try once."""
        return step(self.store.acquire(Claim("key", token, ttl), timeout=TIMEOUT))


@pytest.fixture
def client(etcd_server: Server) -> Iterator[Callable[..., Client]]:
    """Makes clients of the same keys."""
    namespace, made = secrets.token_hex(8), list[Client]()

    def make(**options: Any) -> Client:
        made.append(Client(etcd_server, namespace, **options))
        return made[-1]

    yield make
    for one in made:
        step(one.store.close())


def test_a_lapsed_lease_is_taken_over_after_the_margin(client: Callable[..., Client]) -> None:
    """M6: at its expiry by the clock of the next one, and the skew margin, a dead holder's key is granted again."""
    holder, other = client(skew_margin=600.0), client(skew_margin=600.0)
    first = holder.acquire(TOKEN)
    assert isinstance(first, Held)
    other.clock.wall_ahead = 100.0  # expired, and within the margin: half of it is not yet reason for doubt
    assert isinstance(other.acquire(OTHER), Contended)
    both = client(skew_margin=0.0)
    both.clock.wall_ahead = 31.0
    second = both.acquire(OTHER)
    assert isinstance(second, Held)
    assert second.lease.fencing_token > first.lease.fencing_token


def test_a_client_whose_clock_is_off_says_so_and_takes_nothing_over(client: Callable[..., Client]) -> None:
    """C066, M6: three minutes ahead, by the dates of etcd's answers: an event says so, and the key stays."""
    holder, wrong = client(), client()
    assert isinstance(holder.acquire(TOKEN), Held)
    wrong.clock.wall_ahead = 180.0
    assert isinstance(wrong.acquire(OTHER), Contended)
    assert isinstance(wrong.acquire(OTHER), Contended)
    assert "clock_warning" in wrong.events
    assert "clock_warning" not in holder.events


@pytest.mark.parametrize("apart", [0.9, -0.9])
def test_clocks_apart_by_less_than_the_margin_let_nobody_in_early(client: Callable[..., Client], apart: float) -> None:
    """M6, C066: in the last moments of a lease a clock that is 0.9 s ahead or behind grants nothing of it."""
    holder, other = client(), client()
    assert isinstance(holder.acquire(TOKEN, ttl=0.5), Held)
    other.clock.wall_ahead = apart
    assert isinstance(other.acquire(OTHER), Contended)


def test_an_observer_has_to_see_a_whole_lease(client: Callable[..., Client]) -> None:
    """M6: with `takeover=observe` the record has to stand still for a lease of the observer's own time, whatever the
    clocks say; a renewal begins it anew."""
    holder, other = client(takeover="observe"), client(takeover="observe")
    assert isinstance(holder.acquire(TOKEN, ttl=10.0), Held)
    other.clock.wall_ahead = 3_600.0
    assert isinstance(other.acquire(OTHER), Contended)
    other.clock.pass_by(9.0)
    assert isinstance(step(holder.store.renew("key", TOKEN, ttl=10.0, number=1, timeout=TIMEOUT)), Held)
    assert isinstance(other.acquire(OTHER), Contended)
    other.clock.pass_by(9.0)
    assert isinstance(other.acquire(OTHER), Contended)
    other.clock.pass_by(2.0)
    assert isinstance(other.acquire(OTHER), Held)
    assert isinstance(step(holder.store.renew("key", TOKEN, ttl=10.0, number=2, timeout=TIMEOUT)), Lost)


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
    caller(store._sweep())
    assert servers.keys(etcd_server.place, f"leased/{namespace}/") == 1
    assert caller(store.status("new", timeout=TIMEOUT)).held


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
