"""A server whose clock is set while it runs: it is noticed and told, and fencing tokens rise all the same."""

import secrets
import time
from collections.abc import Callable
from typing import Any

import pytest

import leased
from leased.observe import Event
from tests.servers.moving_clock import MovingClock
from tests.servers.process import Server

HOUR = 3_600.0
SOON = 20.0


@pytest.fixture(params=["valkey", "postgres"])
def server(request: pytest.FixtureRequest, moving_clock: MovingClock) -> Server:
    """A server of this test alone whose clock can be set."""
    private: Callable[..., Server] = request.getfixturevalue(f"private_{request.param}")
    return private(clock=moving_clock)


class Watched:
    """Locks on that server, and how far its clock was said to have been stepped."""

    def __init__(self, server: Server) -> None:
        self.events: list[Event] = []
        self.locks = leased.connect(
            f"{server.url}?leased_namespace={secrets.token_hex(8)}", observer=self.events.append
        )

    @property
    def steps(self) -> list[float]:
        return [event.data["step"] for event in self.events if event.name == "clock_warning"]

    def grant(self, key: str, **terms: Any) -> leased.Handle:
        return self.locks.lock(key, **terms).acquire()

    def grant_soon(self, key: str, **terms: Any) -> leased.Handle:
        """A server may show the time as it was to one more question or two after its clock was set."""
        give_up_at = time.monotonic() + SOON
        while (handle := self.locks.lock(key, **terms).try_acquire()) is None:
            assert time.monotonic() < give_up_at
        return handle


@pytest.mark.parametrize("step", [HOUR, -HOUR, 2.0, -2.0])
def test_a_step_is_told_and_fencing_tokens_rise(server: Server, moving_clock: MovingClock, step: float) -> None:
    """M4, P3: with the server's clock set forward or back the event says by how much, and tokens still rise."""
    watched = Watched(server)
    tokens: list[int] = []

    def grant_until(told: int) -> None:
        """A store compares clocks now and then: at least three grants, and as many as it takes until that is told."""
        give_up_at = time.monotonic() + SOON
        least = len(tokens) + 3
        while len(watched.steps) < told or len(tokens) < least:
            assert time.monotonic() < give_up_at
            handle = watched.grant("k", ttl=4 * HOUR)  # a step that comes right now does not end it
            tokens.append(handle.fencing_token)
            assert handle.release()

    grant_until(0)
    moving_clock.step(step)
    grant_until(1)
    grant_until(1)
    assert watched.steps == [pytest.approx(step, abs=0.5)]
    assert tokens == sorted(set(tokens))
    watched.locks.close()


def test_a_lease_ended_by_a_step_is_lost_to_its_holder_and_fenced_off(
    server: Server, moving_clock: MovingClock
) -> None:
    """M5, H2: a clock set forward ends leases early; the holder's next renewal says so, and the new token is higher."""
    watched = Watched(server)
    held = watched.grant("k", ttl=60)
    moving_clock.step(HOUR)
    successor = watched.grant_soon("k", ttl=60)
    assert successor.fencing_token > held.fencing_token
    renewed = held.renew()
    assert not renewed
    assert renewed.lost_reason == "taken"
    assert held.lost
    assert successor.renew()
    assert successor.release()
    watched.locks.close()


def test_a_clock_set_back_makes_no_second_holder_and_wedges_nothing(server: Server, moving_clock: MovingClock) -> None:
    """M4, M5: after a step back a lease lasts longer for others, its holder believes no longer, and release works."""
    watched = Watched(server)
    held = watched.grant("k", ttl=30)
    moving_clock.step(-HOUR)
    assert watched.locks.lock("k").try_acquire() is None
    assert held.remaining() <= 30
    assert held.renew()
    assert held.remaining() <= 30
    assert held.release()
    again = watched.grant("k", ttl=30)
    assert again.fencing_token > held.fencing_token
    assert again.remaining() <= 30
    assert again.release()
    watched.locks.close()


def test_a_lease_that_was_looked_at_under_a_wrong_clock_is_not_believed_for_longer(
    server: Server, moving_clock: MovingClock
) -> None:
    """M5: set back by an hour the server tells of an hour that is left; no handle believes in more than the ttl, so
    nobody does so still when the clock has been put right and another holds the key."""
    watched = Watched(server)
    held = watched.grant("k", ttl=2)
    moving_clock.step(-HOUR)
    restored = watched.locks.restore(held.dump())
    assert restored.remaining() <= 2
    held.hand_over()
    moving_clock.step(HOUR)
    successor = watched.grant("k", ttl=30, wait=SOON)
    assert restored.lost
    assert successor.fencing_token > restored.fencing_token
    assert successor.release()
    watched.locks.close()
