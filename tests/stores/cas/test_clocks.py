"""Where only clients have clocks: who may take over, when, and what a clock that is off or was set may still do."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from leased.model import Held, Lost
from leased.policy import valid_until
from leased.stores._cas_clock import read_date
from tests.stores.cas.acting import TTL, ask, crew, granted, look, move, refused, release, renew, set_wall, status
from tests.stores.cas.shelves import Client

TICK = 0.001


def told(client: Client, *, ahead: float) -> None:
    """An answer of a server whose clock is so far ahead of this client's; it says whole seconds, as HTTP does."""
    right = client.clock.wall() + ahead
    client.wall.read(right, right, asked_at=client.clock.now())


def test_a_lapsed_lease_is_taken_over_after_the_margin_by_the_first_attempt() -> None:
    """M6: until the margin has passed the key is closed, and says when it opens; then one attempt takes it over."""
    clients = crew(0.0, 0.0)
    holder, taker = clients
    before = granted(holder, "first")
    move(clients, TTL)
    assert status(taker).state == "closed"
    assert status(taker).free_in == pytest.approx(1.0)
    move(clients, 1.0 - TICK)
    refused(taker, "second")
    move(clients, TICK)
    assert status(taker).state == "free"
    assert granted(taker, "second").fencing_token > before.fencing_token


def overlaps(random_: random.Random, *, apart: float) -> bool:
    """Whether a holder may still believe when another one is granted its key, in one play with clocks so far apart."""
    early, late = random_.sample([0.0, apart], 2)
    clients = crew(early, late)
    holder, taker = clients
    ttl = random_.uniform(0.2, 5.0)
    holder.shelf.before_put = holder.shelf.after_put = lambda: move(clients, random_.choice((0.0, ttl / 8, ttl / 3)))
    asked_at = holder.clock.now()
    lease = granted(holder, "first", ttl=ttl)
    for number in range(random_.randrange(3)):
        move(clients, random_.uniform(0.0, ttl / 2))
        asking_at = holder.clock.now()
        answer = renew(holder, "first", number=number + 1, ttl=ttl)
        if isinstance(answer, Lost):  # too late
            break
        lease, asked_at = answer.lease, asking_at
    holder.shelf.before_put = holder.shelf.after_put = lambda: None
    believed_until = valid_until(asked_at, waited=0.0, left=lease.left, margin=0.02)
    while not isinstance(outcome := ask(taker, f"taker {taker.clock.now()}"), Held):
        move(clients, 0.05)
    assert outcome.lease.fencing_token > lease.fencing_token
    return taker.clock.now() < believed_until


@pytest.mark.parametrize("seed", range(100))
def test_clocks_that_differ_by_less_than_the_margin_let_no_two_holders_overlap(seed: int) -> None:
    """M6, SAFE3: whoever is ahead, a holder has stopped believing when the next one is granted the key."""
    chance = random.Random(seed)
    assert not overlaps(chance, apart=chance.uniform(0.0, 0.999))


def test_clocks_that_differ_by_more_than_the_margin_can() -> None:
    """The play above can tell: with clocks three seconds apart some holders overlap; only fencing holds then."""
    assert any(overlaps(random.Random(seed), apart=3.0) for seed in range(20))


@pytest.mark.parametrize("takeover", ["margin", "observe"])
def test_a_slow_exchange_is_taken_off_once(takeover: str) -> None:
    """M6: a renewal that took a while gives all that is left since it was asked for, and never a moment more."""
    (client,) = crew(0.0, takeover=takeover)
    granted(client, "first")
    asked_at = client.clock.now()
    client.shelf.before_put = client.shelf.after_put = lambda: move([client], 2.0)
    answer = renew(client, "first", number=1)
    assert isinstance(answer, Held)
    assert answer.lease.left == pytest.approx(TTL)
    client.shelf.before_put = client.shelf.after_put = lambda: None
    move([client], asked_at + TTL - TICK - client.clock.now())
    assert isinstance(look(client, "first"), Held)
    move([client], TICK)
    assert isinstance(look(client, "first"), Lost)


@pytest.mark.parametrize("behind", [0.5, 30.0])
def test_a_released_key_is_open_to_those_whose_clock_is_behind(behind: float) -> None:
    """What was released by somebody whose clock is ahead is not closed until others' clocks come there."""
    holder, taker = crew(behind, 0.0)
    first = granted(holder, "first")
    assert release(holder, "first")
    assert status(taker).state == "free"
    assert granted(taker, "second").fencing_token > first.fencing_token


@pytest.mark.parametrize("off", [0.6, -0.6, 3600.0, -3600.0])
def test_a_client_whose_clock_is_off_says_so_and_takes_nothing_over(off: float) -> None:
    """M6: off from the server's by more than half the margin it reports that, once, and lets lapsed leases be."""
    clients = crew(0.0, off)
    holder, taker = clients
    granted(holder, "first")
    told(taker, ahead=-off)
    told(taker, ahead=-off)
    assert [event["event"] for event in taker.events] == ["clock_warning"]
    assert taker.events[0]["off"] == pytest.approx(-off, abs=0.01)
    move(clients, TTL + 1.0)
    refused(taker, "second")
    assert status(taker).state == "held"
    told(taker, ahead=0.0)
    set_wall(taker, -off)
    granted(taker, "third")


@pytest.mark.parametrize("off", [0.4, -0.4])
def test_a_clock_that_is_off_by_less_than_half_the_margin_is_good_enough(off: float) -> None:
    """Below that bound nothing is said, and leases that lapsed are taken over."""
    clients = crew(0.0, off)
    holder, taker = clients
    granted(holder, "first")
    told(taker, ahead=-off)
    assert not taker.events
    move(clients, TTL + 1.5)
    granted(taker, "second")


def test_what_an_exchange_took_proves_nothing_of_a_clock() -> None:
    """An answer that took long, and a server that tells whole seconds, make no clock look off."""
    (client,) = crew(0.0)
    asked_at, wall = client.clock.now(), client.clock.wall()
    client.clock.move(20.0)
    for said in (wall, wall + 10.0, wall + 20.0):
        client.wall.read(said - 0.4, said + 0.4, asked_at=asked_at)
    assert not client.wall.off
    client.wall.read(wall + 20.6, wall + 21.6, asked_at=asked_at)
    assert client.wall.off


def test_the_date_of_an_answer_is_read() -> None:
    """It says whole seconds: the server's time lies within that second. What is no date says nothing."""
    (client,) = crew(0.0)
    wall = client.clock.wall()
    for date in ("", "yesterday", format_datetime(datetime.fromtimestamp(wall - 0.4, UTC), usegmt=True)):
        read_date(client.wall, date, asked_at=client.clock.now())
        assert not client.wall.off
    read_date(
        client.wall, format_datetime(datetime.fromtimestamp(wall - 2.6, UTC), usegmt=True), asked_at=client.clock.now()
    )
    assert client.wall.off


@pytest.mark.parametrize("off", [30.0, -30.0])
def test_a_client_whose_clock_is_off_writes_times_that_others_understand(off: float) -> None:
    """It may take open keys; what it writes counts from the server's time as far as that is known, so that others,
    whose clocks are right, take its lease over neither early nor half a minute late."""
    clients = crew(off, 0.0)
    holder, taker = clients
    told(holder, ahead=-off)
    granted(holder, "first")
    move(clients, TTL - TICK)
    refused(taker, "second")
    move(clients, 1.0 + TICK)
    granted(taker, "third")


@pytest.mark.parametrize("by", [0.6, -0.6, 3600.0, -3600.0])
def test_a_holder_whose_wall_clock_was_set_is_lost(by: float) -> None:
    """M6: set by more than half the margin since the last write nobody knows when the lease ends; releasing frees."""
    (holder,) = crew(0.0)
    granted(holder, "first")
    set_wall(holder, by)
    assert isinstance(look(holder, "first"), Lost)
    assert isinstance(renew(holder, "first", number=1), Lost)
    assert bool(release(holder, "first")) == (by < TTL)


def test_a_wall_clock_that_is_slewed_is_no_step() -> None:
    """Each write begins anew: a clock that is brought right by 0.4 s at a time loses nothing."""
    (holder,) = crew(0.0)
    granted(holder, "first")
    for number in range(10):
        set_wall(holder, 0.4)
        assert isinstance(renew(holder, "first", number=number + 1), Held)


def test_no_more_is_left_than_this_process_knows_of() -> None:
    """M5: a wall clock that was set back by less than the bound makes no lease look longer."""
    (holder,) = crew(0.0)
    granted(holder, "first")
    holder.clock.move(4.0)
    set_wall(holder, -0.4)
    answer = look(holder, "first")
    assert isinstance(answer, Held)
    assert answer.lease.left == pytest.approx(6.0)


def test_with_a_margin_of_nothing_every_clock_is_believed() -> None:
    """`skew_margin=0` is for hosts that share one clock: the key opens at the expiry, and no clock is doubted."""
    clients = crew(0.0, 0.0, skew_margin=0.0)
    holder, taker = clients
    granted(holder, "first")
    told(taker, ahead=3600.0)
    assert not taker.events
    move(clients, TTL)
    granted(taker, "second")


class TestObserving:
    """`takeover="observe"`: no clock is trusted."""

    @pytest.mark.parametrize("off", [0.0, 3600.0, -3600.0])
    def test_a_lease_is_over_when_it_was_seen_for_its_whole_length(self, off: float) -> None:
        """M6: a taker whose clock is an hour off, either way, has to see the same record for a lease of its own time,
        with the margin for different rates; then its next attempt wins."""
        clients = crew(0.0, off, takeover="observe")
        holder, taker = clients
        first = granted(holder, "first")
        move(clients, 100.0)
        refused(taker, "second")
        move(clients, TTL / 0.98 - TICK)
        refused(taker, "third")
        assert status(taker).held
        move(clients, 2 * TICK)
        assert not status(taker).held
        assert granted(taker, "fourth").fencing_token > first.fencing_token

    def test_a_renewal_begins_the_observation_anew(self) -> None:
        """A record that changed meanwhile was not seen for a whole lease."""
        clients = crew(0.0, 0.0, takeover="observe")
        holder, taker = clients
        granted(holder, "first")
        refused(taker, "second")
        for number in range(5):
            move(clients, TTL - 0.5)
            assert isinstance(renew(holder, "first", number=number + 1), Held)
            refused(taker, f"try {number}")
        move(clients, TTL - 0.5)
        refused(taker, "last")

    @pytest.mark.parametrize("by", [3600.0, -3600.0])
    def test_a_holder_whose_wall_clock_was_set_goes_on(self, by: float) -> None:
        """Its own lease ends by the local clock, which nobody can set: it renews before that, and not afterwards."""
        (holder,) = crew(0.0, takeover="observe")
        granted(holder, "first")
        set_wall(holder, by)
        assert isinstance(look(holder, "first"), Held)
        assert isinstance(renew(holder, "first", number=1), Held)
        holder.clock.move(TTL)
        assert isinstance(renew(holder, "first", number=2), Lost)

    def test_the_lock_delay_is_observed_too(self) -> None:
        """M10: the key stays closed that long after the lease."""
        clients = crew(0.0, 0.0, takeover="observe")
        holder, taker = clients
        granted(holder, "first", delay=20.0)
        refused(taker, "second")
        move(clients, (TTL + 20.0) / 0.98 - TICK)
        refused(taker, "third")
        move(clients, 2 * TICK)
        granted(taker, "fourth")

    def test_a_released_key_is_open_at_once(self) -> None:
        """Only what was not given back has to be watched."""
        holder, taker = crew(3600.0, 0.0, takeover="observe")
        granted(holder, "first")
        refused(taker, "second")
        assert release(holder, "first")
        granted(taker, "third")


def test_a_grant_that_came_after_its_lease_is_a_grant_with_nothing_left() -> None:
    """C050: a write that took longer than the lease answers an acquire as a grant, never as a loss, so that it is
    handed back."""
    (client,) = crew(0.0)
    client.shelf.before_put = lambda: client.clock.move(TTL + 1.0)
    assert granted(client, "late").left == 0.0
