"""Three servers of which one dies or hangs: what was granted stays, and locks go on."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import leased
from leased.errors import LeasedError
from leased.model import Claim, Held
from tests.servers.nats import Members
from tests.stores.nats.conftest import TIMEOUT, TOKEN, Caller

PATIENCE = 60.0


def until_answered(work: Callable[[], object]) -> object:
    """Ask again until there is an answer, as the library does, for a while."""
    give_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            return work()
        except LeasedError:
            assert time.monotonic() < give_up_at


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_the_leader_is_lost(caller: Caller, nats_members: Members, how: str) -> None:
    """C103, C104: a leader that dies or hangs takes no grant with it; another leads, the holder renews, nobody else
    gets the key, and the next grant has a higher fencing token."""
    store = caller.open(nats_members.url)
    granted = caller(store.acquire(Claim("key", TOKEN, 120.0), timeout=TIMEOUT))
    assert isinstance(granted, Held)
    assert store.assurance().exclusive == "replicated"
    leader = nats_members.leader()
    leader.kill() if how == "kill" else leader.pause()
    try:
        number = iter(range(1, 1000))
        renewed = until_answered(
            lambda: caller(store.renew("key", TOKEN, ttl=120.0, number=next(number), timeout=TIMEOUT))
        )
        assert isinstance(renewed, Held)
        other = Claim("key", "another-token-16", 60.0)
        assert not isinstance(until_answered(lambda: caller(store.acquire(other, timeout=TIMEOUT))), Held)
        until_answered(lambda: caller(store.release("key", TOKEN, timeout=TIMEOUT)))
        later = Claim("key", "yet-another-token", 60.0)
        again = until_answered(lambda: caller(store.acquire(later, timeout=TIMEOUT)))
        assert isinstance(again, Held)
        assert again.lease.fencing_token > granted.lease.fencing_token
    finally:
        if how == "pause":
            leader.resume()


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_server_that_is_no_leader_is_lost(caller: Caller, nats_members: Members, how: str) -> None:
    """W2: whichever server a client has a connection to, the next is asked once that is gone or hangs; the bucket has
    two left and goes on, and a write is never in doubt that was not sent."""
    stores = [caller.open(nats_members.url) for _ in range(6)]
    caller.take(stores[0], "key", ttl=120.0)
    for number, store in enumerate(stores):
        caller.take(store, f"key{number}", ttl=120.0)
    leader = nats_members.leader()
    lost = next(server for server in nats_members.servers if server is not leader)
    lost.kill() if how == "kill" else lost.pause()
    try:
        numbers = iter(range(1, 1000))
        for number, store in enumerate(stores):

            def renew(store: Any = store, key: str = f"key{number}") -> object:
                return caller(store.renew(key, TOKEN, ttl=120.0, number=next(numbers), timeout=TIMEOUT))

            assert isinstance(until_answered(renew), Held)
            assert caller(store.status("key", timeout=TIMEOUT)).held
    finally:
        if how == "pause":
            lost.resume()


def test_waiters_are_woken_through_the_loss_of_a_server(nats_members: Members) -> None:
    """W3, C143: a waiter whose watch breaks with its server gets the key when it is released."""
    with leased.connect(nats_members.url) as locks, leased.connect(nats_members.url) as others:
        held = others.lock("key", ttl=120).acquire()
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(lambda: locks.lock("key", ttl=60, wait=PATIENCE).acquire())
            leader = nats_members.leader()
            lost = next(server for server in nats_members.servers if server is not leader)
            lost.kill()
            until_answered(held.release)
            handle = waiting.result()
            until_answered(handle.release)
