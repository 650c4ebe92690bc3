"""On real servers that have no clock to ask: clients whose clocks are apart, or are set, and who takes over when."""

import secrets
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from leased.clocks import BlockingClock, step
from leased.model import Claim, Contended, Held, Lost
from leased.store import Signal
from leased.stores._cas_store import CasStore
from leased.targets import Options
from tests.servers.process import Server
from tests.stores.callers import TIMEOUT
from tests.stores.dynamodb.conftest import open_read as open_dynamodb
from tests.stores.etcd.conftest import open_read as open_etcd
from tests.stores.nats.conftest import open_read as open_nats

TOKEN = "0123456789abcdef"
OTHER = "another-token-16"
OPENED: dict[str, Callable[..., CasStore]] = {"etcd": open_etcd, "nats": open_nats, "dynalite": open_dynamodb}


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
    """One program: a store with clocks of its own."""

    def __init__(self, open_store: Callable[..., CasStore], url: str, **options: Any) -> None:
        self.clock = AheadClock()
        self.events: list[str] = []
        asked = Options(clock=self.clock, observer=lambda event: self.events.append(event.name), **options)
        self.store = open_store(url, face="blocking", options=asked)

    def acquire(self, token: str, *, ttl: float = 30.0) -> Held | Contended:
        """Try once."""
        return step(self.store.acquire(Claim("key", token, ttl), timeout=TIMEOUT))

    def renew(self, token: str, *, number: int = 1, ttl: float = 30.0) -> Held | Lost:
        """Renew once."""
        return step(self.store.renew("key", token, ttl=ttl, number=number, timeout=TIMEOUT))


@pytest.fixture(params=OPENED)
def client(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Makes clients of the same keys, on each of these servers."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    namespace, made = secrets.token_hex(8), list[Client]()

    def make(**options: Any) -> Client:
        made.append(Client(OPENED[request.param], server.url, namespace=namespace, **options))
        return made[-1]

    yield make
    for one in made:
        step(one.store.close())


def test_a_lapsed_lease_is_taken_over_after_the_margin(client: Callable[..., Client]) -> None:
    """M6, C136: the skew margin after its expiry, by the clock of who comes, one attempt gets a dead holder's key."""
    holder, other = client(), client(skew_margin=60.0)
    first = holder.acquire(TOKEN)
    assert isinstance(first, Held)
    other.store.offset = 31.0  # expired, and within the margin
    assert isinstance(other.acquire(OTHER), Contended)
    other.store.offset = 91.0
    second = other.acquire(OTHER)
    assert isinstance(second, Held)
    assert second.lease.fencing_token > first.lease.fencing_token


def test_clocks_that_are_slightly_apart_take_over_by_the_margin_as_well(client: Callable[..., Client]) -> None:
    """M6: less than half of a margin apart, in either direction, is no reason for doubt: the margin covers it."""
    holder, other = client(skew_margin=60.0), client(skew_margin=60.0)
    holder.clock.wall_ahead, other.clock.wall_ahead = -10.0, 20.0
    assert isinstance(holder.acquire(TOKEN, ttl=10.0), Held)
    assert isinstance(other.acquire(OTHER), Contended)
    other.store.offset = 40.0
    assert isinstance(other.acquire(OTHER), Held)
    assert holder.events == other.events == []


@pytest.mark.parametrize("apart", [0.9, -0.9])
def test_clocks_apart_by_less_than_the_margin_let_nobody_in_early(client: Callable[..., Client], apart: float) -> None:
    """M6, C066, C067: in the last moments of a lease a clock that is 0.9 s ahead or behind grants nothing of it."""
    holder, other = client(), client()
    assert isinstance(holder.acquire(TOKEN, ttl=0.5), Held)
    other.clock.wall_ahead = apart
    assert isinstance(other.acquire(OTHER), Contended)


@pytest.mark.parametrize("off", [180.0, -180.0])
def test_a_client_whose_clock_is_off_says_so_and_takes_nothing_over(client: Callable[..., Client], off: float) -> None:
    """C066, C067, M6: three minutes ahead or behind, by what the server's answers tell: an event says so, and a lease
    stays whose it is, also when it has lapsed; who has the right time takes it over then."""
    holder, wrong = client(), client()
    assert isinstance(holder.acquire(TOKEN), Held)
    wrong.clock.wall_ahead = off
    assert isinstance(wrong.acquire(OTHER), Contended)
    assert isinstance(wrong.acquire(OTHER), Contended)
    assert wrong.events == ["clock_warning"]
    assert holder.events == []
    wrong.store.offset = 60.0
    assert isinstance(wrong.acquire(OTHER), Contended)
    right = client()
    right.store.offset = 60.0
    assert isinstance(right.acquire("the-third-token-"), Held)


@pytest.mark.parametrize("by", [0.8, -0.8])
def test_a_holder_whose_wall_clock_was_set_is_lost(client: Callable[..., Client], by: float) -> None:
    """M6: set by more than half the margin since its last write, nobody knows when the lease ends: it is not renewed,
    and what is there stays until it is over."""
    holder, other = client(), client()
    assert isinstance(holder.acquire(TOKEN), Held)
    assert isinstance(holder.renew(TOKEN), Held)
    holder.clock.wall_ahead = by
    assert isinstance(holder.renew(TOKEN, number=2), Lost)
    assert isinstance(other.acquire(OTHER), Contended)


def test_an_observer_has_to_see_a_whole_lease(client: Callable[..., Client]) -> None:
    """M6, C072: with `takeover=observe` the record has to stand still for a lease of the observer's own time, whatever
    the clocks say; a renewal begins it anew."""
    holder, other = client(takeover="observe"), client(takeover="observe")
    assert isinstance(holder.acquire(TOKEN, ttl=10.0), Held)
    other.clock.wall_ahead = 3_600.0
    assert isinstance(other.acquire(OTHER), Contended)
    other.clock.pass_by(9.0)
    assert isinstance(holder.renew(TOKEN, ttl=10.0), Held)
    assert isinstance(other.acquire(OTHER), Contended)
    other.clock.pass_by(9.0)
    assert isinstance(other.acquire(OTHER), Contended)
    other.clock.pass_by(2.0)
    assert isinstance(other.acquire(OTHER), Held)
    assert isinstance(holder.renew(TOKEN, number=2, ttl=10.0), Lost)
