"""Clients that write the same key: one of them wins, whatever each remembers, and whatever answer is lost."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from leased.clocks import step
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Acquire, Claim, Contended, Held, Lost, Operation, Release, Renew
from leased.stores._cas_shelf import Found
from tests.stores.cas.acting import LIMIT, TTL, ask, crew, granted, look, move, refused, release, renew, status
from tests.stores.cas.shelves import Client


def test_a_pair_costs_two_writes_and_no_reading() -> None:
    """An acquire and a release of a key, new or known, are one write each."""
    (client,) = crew(0.0)
    for number in range(3):
        granted(client, f"t{number}")
        assert isinstance(renew(client, f"t{number}", number=1), Held)
        assert release(client, f"t{number}")
    assert client.shelf.calls == ["put"] * 9


def test_what_is_remembered_is_never_an_answer() -> None:
    """What another client changed meanwhile is found out: a grant, a loss and a contention are never from memory."""
    first, second = crew(0.0, 0.0)
    granted(first, "a")
    assert release(first, "a")
    granted(second, "b")
    refused(first, "c")
    assert release(second, "b")
    granted(first, "d")
    assert step(second.store.force_release("k", timeout=LIMIT))
    assert look(first, "d") == Lost("force_released")
    assert status(first).state == "free"


@pytest.mark.parametrize("tells", [True, False])
def test_of_two_who_write_at_once_one_wins(tells: bool) -> None:
    """Between the decision of one and its write another is granted the key: the first is refused."""
    data: dict[str, Found] = {}
    first, second = Client(data, tells=tells), Client(data, tells=tells)

    def cut_in() -> None:
        first.shelf.before_put = lambda: None
        granted(second, "quick")

    first.shelf.before_put = cut_in
    refused(first, "slow")
    assert isinstance(look(second, "quick"), Held)


def test_others_that_are_always_faster_end_a_call_at_its_time() -> None:
    """Who is beaten again and again gives up within his time-out, and says that nothing was done."""
    data: dict[str, Found] = {}
    first, second = Client(data), Client(data)
    turn = 0

    def cut_in() -> None:
        nonlocal turn
        turn += 1
        first.clock.move(1.0)
        granted(second, f"quick {turn}")
        assert release(second, f"quick {turn}")

    first.clock.flowing = True
    first.shelf.before_put = cut_in
    with pytest.raises(StoreUnavailable) as raised:
        ask(first, "slow")
    assert raised.value.applied is False
    assert turn > 2


class TestLostAnswers:
    """A write was made, and its answer was lost."""

    def test_an_acquire_asked_again_has_the_same_lease(self) -> None:
        """SAFE7: our own earlier write is found, and is no contention."""
        (client,) = crew(0.0)
        client.shelf.lost = 1
        with pytest.raises(StoreUnavailable) as raised:
            ask(client, "t")
        assert raised.value.applied is None
        lease = granted(client, "t")
        assert granted(client, "t").fencing_token == lease.fencing_token
        assert len(client.shelf.data) == 1

    def test_a_renewal_goes_on_from_the_number_of_the_store(self) -> None:
        """M7: the lost renewal counts, and the next one is numbered above it."""
        (client,) = crew(0.0)
        granted(client, "t")
        client.shelf.lost = 1
        with pytest.raises(StoreUnavailable):
            renew(client, "t", number=1)
        answer = renew(client, "t", number=1)
        assert isinstance(answer, Held)
        assert answer.lease.renewal == 1
        assert isinstance(renew(client, "t", number=2), Held)

    def test_a_release_asked_again_finds_nothing_to_free(self) -> None:
        """The key is open, and nobody else's lease was touched."""
        first, second = crew(0.0, 0.0)
        granted(first, "t")
        first.shelf.lost = 1
        with pytest.raises(StoreUnavailable):
            release(first, "t")
        granted(second, "u")
        assert release(first, "t").reason == "not_holder"
        assert isinstance(look(second, "u"), Held)

    def test_an_unanswered_renewal_is_not_believed(self) -> None:
        """The earlier deadline stands for what this process knows of its own lease."""
        (client,) = crew(0.0, takeover="observe")
        granted(client, "t")
        client.clock.move(6.0)
        client.shelf.lost = 1
        with pytest.raises(StoreUnavailable):
            renew(client, "t", number=1)
        answer = look(client, "t")
        assert isinstance(answer, Held)
        assert answer.lease.left == pytest.approx(4.0)


def test_a_batch_is_settled_key_by_key() -> None:
    """One failing or beaten member changes no other's outcome; two on one key are done in their order."""
    first, second = crew(0.0, 0.0)
    granted(second, "theirs")
    batch: list[Operation] = [
        Acquire(Claim("k", "mine", TTL)),
        Acquire(Claim("a", "one", TTL)),
        Release("a", "one"),
        Acquire(Claim("a", "two", TTL)),
        Renew("b", "nobody", TTL, 1),
    ]
    outcomes = step(first.store.many(batch, timeout=LIMIT))
    assert [type(outcome).__name__ for outcome in outcomes] == ["Contended", "Held", "Released", "Held", "Lost"]


def test_a_value_of_somebody_else_is_refused_and_left_alone() -> None:
    """What leased has not written is no record: the call says so, and nothing is changed."""
    for value in (b"\xff\x00", b"17", b"{}", b'{"format":2}', b'{"format":1,"token":5}', b"[" * 100_000):
        data = {"k": Found(7, value)}
        client = Client(data)
        with pytest.raises(StoreNotUsable, match="'k'"):
            ask(client, "t")
        assert data == {"k": Found(7, value)}


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("tells", [True, False], ids=["telling", "silent"])
def test_many_clients_never_hold_at_once(seed: int, tells: bool) -> None:
    """SAFE1, SAFE2: in a play of chance with writes cut in upon, lost answers and lapses, no two tokens hold the key by
    the right time, and fencing tokens rise from grant to grant."""
    chance = random.Random(seed)
    data: dict[str, Found] = {}
    clients = [Client(data, tells=tells) for _ in range(3)]
    for client in clients:
        client.clock.set_wall(client.clock.wall() + chance.uniform(-0.49, 0.49))
        client.shelf.before_put = lambda: _cut_in(chance, clients)
    held: dict[str, tuple[Client, int]] = {}
    fences: list[int] = []
    for turn in range(80):
        client = chance.choice(clients)
        try:
            answer = ask(client, f"t{turn}", ttl=chance.choice([2.0, TTL]))
        except StoreUnavailable:
            continue
        if isinstance(answer, Contended):
            move(clients, chance.uniform(0.0, 2.0))
            continue
        fences.append(answer.lease.fencing_token)
        others = [token for token, (other, _) in held.items() if isinstance(look(other, token), Held)]
        assert not others
        held = {f"t{turn}": (client, 0)}
        if chance.random() < 0.5:
            client.shelf.lost = chance.randrange(2)
            with suppress(StoreUnavailable):
                release(client, f"t{turn}")
            client.shelf.lost = 0
    assert len(fences) > 5
    assert fences == sorted(set(fences))


def _cut_in(chance: random.Random, clients: list[Client]) -> None:
    if chance.random() < 0.2:
        other = chance.choice(clients)
        before, other.shelf.before_put = other.shelf.before_put, lambda: None
        step(other.store.force_release("k", timeout=LIMIT))
        other.shelf.before_put = before
