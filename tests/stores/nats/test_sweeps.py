"""What nobody needs any more goes faster than it comes, also where every question takes its time."""

import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from leased.errors import StoreUnavailable
from leased.model import Acquire, Claim, Operation, Release
from leased.stores import _cas_store, _nats_shelf
from leased.stores._cas_shelf import Put
from leased.stores._cas_store import CasStore
from leased.stores._nats_shelf import NatsShelf
from tests.servers.nats import messages
from tests.servers.process import Server
from tests.stores.nats.conftest import TIMEOUT, TOKEN, Caller

DAY = 86_400.0
MANY = _cas_store._SWEEP_PAGE + 76  # more than one sweep looks at


class Slowed:
    """A store whose questions take as many seconds as they shall, on a clock that only they move."""

    def __init__(self, store: CasStore, monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> None:
        assert isinstance(store._shelf, NatsShelf)
        self.at = 0.0
        self.seconds = seconds
        self.asked = 0
        self.lost = 0
        self._ask: Callable[..., Any] = store._shelf._link.ask
        monkeypatch.setattr(store._shelf._link, "ask", self.ask)
        monkeypatch.setattr(_nats_shelf, "now", self.now)
        monkeypatch.setattr(store, "_clock", self)

    def now(self) -> float:
        return self.at

    async def ask(self, connection: Any, questions: Sequence[Any], *, seconds: float) -> Any:
        """The answers, if there is time for them; the last of them may be lost."""
        self.asked += 1
        self.at += min(self.seconds, seconds)
        nothing = [StoreUnavailable("no answer", applied=None) for _ in questions]
        if seconds < self.seconds:
            return nothing
        answers = await self._ask(connection, questions, seconds=TIMEOUT)
        heard = max(len(answers) - self.lost, 0)
        return answers[:heard] + nothing[heard:]


@pytest.fixture
def bucket() -> str:
    """One of this test's own."""
    return f"b{secrets.token_hex(6)}"


def do(caller: Caller, store: CasStore, operations: Sequence[Operation]) -> None:
    """Many at once."""
    assert len(caller(store.many(operations, timeout=60.0))) == len(operations)


def leave(caller: Caller, store: CasStore, count: int) -> None:
    """So many records of keys that somebody had."""
    keys = [f"old{number}" for number in range(count)]
    do(caller, store, [Acquire(Claim(key, TOKEN, 30.0)) for key in keys])
    do(caller, store, [Release(key, TOKEN) for key in keys])


def sweep(caller: Caller, store: CasStore) -> None:
    assert store._old is not None
    caller(store._sweep(store._old))


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.02])
def test_a_sweep_removes_more_than_was_written_since_the_last(
    caller: Caller, nats_server: Server, bucket: str, monkeypatch: pytest.MonkeyPatch, *, seconds: float
) -> None:
    """S9: whatever a round trip costs, the bucket does not grow, and half a second is not even used up."""
    store = caller.open(f"{nats_server.url}/{bucket}")
    leave(caller, store, 2000)
    store.offset = 2 * DAY
    slowed = Slowed(store, monkeypatch, seconds=seconds)
    for left in (2000 - _cas_store._SWEEP_EVERY, 2000 - 2 * _cas_store._SWEEP_EVERY):
        before = slowed.at
        sweep(caller, store)
        assert messages(nats_server.place, bucket) <= left
        assert slowed.at - before <= _cas_store._SWEEP_TIME
    for _ in range(2):
        sweep(caller, store)
    assert messages(nats_server.place, bucket) == 0
    before = slowed.at
    sweep(caller, store)
    assert slowed.at - before == pytest.approx(seconds)  # one question


def test_what_is_needed_hides_nothing_behind_it(
    caller: Caller, nats_server: Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases that were written long ago and last are passed once, and what lies behind them goes."""
    store = caller.open(f"{nats_server.url}/{bucket}")
    do(caller, store, [Acquire(Claim(f"held{number}", TOKEN, 9 * DAY)) for number in range(MANY)])
    leave(caller, store, 10)
    store.offset = 2 * DAY
    Slowed(store, monkeypatch, seconds=0.002)
    for _ in range(2):
        sweep(caller, store)
    assert messages(nats_server.place, bucket) == MANY
    assert store._sweep_from == ""  # and begins anew


def test_a_value_of_somebody_else_stops_no_sweep(caller: Caller, nats_server: Server, bucket: str) -> None:
    """What cannot be read stays, and all else goes."""
    store = caller.open(f"{nats_server.url}/{bucket}")
    caller(store._shelf.put([Put("odd", b"something else", None, 0.0)], timeout=TIMEOUT))
    leave(caller, store, 3)
    store.offset = 2 * DAY
    sweep(caller, store)
    assert messages(nats_server.place, bucket) == 1


def test_answers_that_are_lost_lose_no_others(
    caller: Caller, nats_server: Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found until then is given back, and the next sweep goes on there."""
    store = caller.open(f"{nats_server.url}/{bucket}")
    leave(caller, store, 500)
    store.offset = 2 * DAY
    slowed = Slowed(store, monkeypatch, seconds=0.2)
    slowed.lost = 8
    shelf = store._shelf
    assert isinstance(shelf, NatsShelf)
    before = store._wall.micros() / 1e6
    with pytest.raises(StoreUnavailable):  # nothing at all was heard
        caller(shelf.old(before, begin="", limit=1000, timeout=1.0))
    slowed.lost = 0
    ask, rounds = slowed.ask, itertools.count()

    async def lose(connection: Any, questions: Sequence[Any], *, seconds: float) -> Any:
        slowed.lost = 8 if next(rounds) else 0
        return await ask(connection, questions, seconds=seconds)

    monkeypatch.setattr(shelf._link, "ask", lose)
    page, begin = caller(shelf.old(before, begin="", limit=1000, timeout=1.0))
    assert [key for key, _ in page] == [f"old{number}" for number in range(len(page))]
    assert 1 < len(page) < 500
    rounds, slowed.lost = itertools.count(), 0
    rest, _ = caller(shelf.old(before, begin=begin, limit=1, timeout=1.0))
    assert [key for key, _ in rest] == [f"old{len(page)}"]
