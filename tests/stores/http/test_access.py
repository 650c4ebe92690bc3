"""What a service refuses, as its users meet it: rules, limits and credentials that end while something is held."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

import leased
import leased.aio
from leased import AccessDenied, LeasedError, LockTimeout, RateLimited, Unauthenticated
from leased.clocks import BlockingClock
from leased.server.principals import LOCAL, Action, OpenGate, Principal, Shown
from leased.stores.memory import MemoryStore
from tests.server.running import Running, running

SOON = 20.0


class Guard:
    """A gate that refuses what a test says, by action; an error without an action is for whoever comes."""

    def __init__(self) -> None:
        self._open = OpenGate()
        self.refusing: dict[Action, list[LeasedError]] = {}
        self.turning_away: LeasedError | None = None
        self.asked: list[Action] = []

    async def identify(self, shown: Shown, *, peer: str) -> Principal:
        """See `Gate`."""
        if self.turning_away is not None:
            raise self.turning_away
        return LOCAL

    async def admit(self, principal: Principal, action: Action, *, key: str = "", count: int = 1) -> None:
        """See `Gate`."""
        self.asked.append(action)
        refusals = self.refusing.get(action)
        if refusals:
            raise refusals.pop(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open, name)


@pytest.fixture
def guard() -> Guard:
    """Lets everybody in until told otherwise."""
    return Guard()


@pytest.fixture
def service(guard: Guard) -> Iterator[Running]:
    """A service behind that gate."""
    with running(MemoryStore(BlockingClock()), gate=cast("Any", guard)) as found:
        yield found


def test_a_rule_refuses_and_waiting_does_not_help(guard: Guard, service: Running) -> None:
    """A3: a denial comes up at once, also from a wait, and leaves nothing behind."""
    with leased.connect(service.url) as locks:
        for wait in (0.0, SOON):
            guard.refusing["acquire"] = [AccessDenied("no")]
            began = time.monotonic()
            with pytest.raises(AccessDenied):
                locks.lock("key", wait=wait).acquire()
            assert time.monotonic() - began < SOON / 2
        assert not locks.status("key").held


def test_a_hold_whose_renewal_is_denied_lasts_to_its_deadline(guard: Guard, service: Running) -> None:
    """A4: the hold is believed until its lease is over, then it is lost (`denied`); its release is never refused."""
    with leased.connect(service.url) as locks:
        held = locks.lock("key", ttl=1.5, renew=True).acquire()
        began = time.monotonic()
        guard.refusing["renew"] = [AccessDenied("no") for _ in range(100)]
        while not held.lost:
            assert time.monotonic() - began < SOON
            time.sleep(0.01)
        assert time.monotonic() - began > 0.5
        assert held.lost_reason == "denied"
        assert guard.asked.count("renew") == 1
        held.release()
        assert not locks.status("key").held


def test_a_waiter_absorbs_limits_within_its_wait(guard: Guard, service: Running) -> None:
    """R2: a limit is waited out; a wait that ends in one is a time-out; a single try shows it."""
    with leased.connect(service.url) as locks:
        guard.refusing["acquire"] = [RateLimited("slowly", retry_after=0.3)]
        began = time.monotonic()
        assert locks.lock("key", wait=SOON).acquire().release()
        assert time.monotonic() - began >= 0.3
        guard.refusing["acquire"] = [RateLimited("slowly", retry_after=60.0) for _ in range(100)]
        with pytest.raises(LockTimeout):
            locks.lock("key", wait=0.5).acquire()
        with pytest.raises(RateLimited) as caught:
            locks.lock("key").acquire()
        assert caught.value.retry_after == 60.0


def test_a_credential_that_ends_is_told_as_such(guard: Guard, service: Running) -> None:
    """V5: a revoked credential is `Unauthenticated` for whoever asks, and no sign that the key is held."""

    async def scene() -> None:
        async with leased.aio.connect(service.url) as locks:
            held = await locks.lock("key", ttl=30).acquire()
            guard.turning_away = Unauthenticated("revoked")
            with pytest.raises(Unauthenticated):
                await locks.lock("other").acquire()
            with pytest.raises(Unauthenticated):
                await held.renew()
            assert not held.lost
            guard.turning_away = None
            assert await held.renew()
            assert await held.release()

    asyncio.run(scene())
