"""Three members of which one dies, hangs or stops leading: what was granted stays, and locks go on."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import leased
from leased.errors import LeasedError
from leased.model import Claim, Held
from tests.servers.etcd import Members, ask, compact
from tests.servers.process import Server
from tests.stores.etcd.conftest import TIMEOUT, TOKEN, Caller

PATIENCE = 30.0


def until_answered(caller: Caller, work: Callable[[], object]) -> object:
    """Ask again until there is an answer, as the library does, for a while."""
    give_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            return work()
        except LeasedError:
            assert time.monotonic() < give_up_at


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_the_leader_is_lost(caller: Caller, etcd_members: Members, how: str) -> None:
    """C103, C104: a leader that dies or hangs takes no grant with it; another leads, the holder renews, nobody else
    gets the key, and the next grant has a higher fencing token."""
    store = caller.open(etcd_members.url)
    claim = Claim("key", TOKEN, 60.0)
    granted = caller(store.acquire(claim, timeout=TIMEOUT))
    assert isinstance(granted, Held)
    leader = etcd_members.leader()
    leader.kill() if how == "kill" else leader.pause()
    try:
        number = iter(range(1, 1000))
        renewed = until_answered(
            caller, lambda: caller(store.renew("key", TOKEN, ttl=60.0, number=next(number), timeout=TIMEOUT))
        )
        assert isinstance(renewed, Held)
        other = Claim("key", "another-token-16", 60.0)
        assert not isinstance(until_answered(caller, lambda: caller(store.acquire(other, timeout=TIMEOUT))), Held)
        until_answered(caller, lambda: caller(store.release("key", TOKEN, timeout=TIMEOUT)))
        later = Claim("key", "yet-another-token", 60.0)
        again = until_answered(caller, lambda: caller(store.acquire(later, timeout=TIMEOUT)))
        assert isinstance(again, Held)
        assert again.lease.fencing_token > granted.lease.fencing_token
    finally:
        if how == "pause":
            leader.resume()


def test_a_member_that_is_no_leader_is_lost_without_a_word(caller: Caller, etcd_members: Members) -> None:
    """Whichever member a client asks, the next one is asked once it is gone; what only reads never fails."""
    store = caller.open(etcd_members.url)
    caller.take(store, "key", ttl=60.0)
    leader = etcd_members.leader()
    lost = next(server for server in etcd_members.servers if server is not leader)
    lost.kill()
    for _ in range(6):
        assert caller(store.status("key", timeout=TIMEOUT)).held
    lost.start()


def test_reading_goes_past_a_member_that_hangs(caller: Caller, etcd_members: Members) -> None:
    """W2: what only reads leaves a member that hangs within the time of the call, whichever it is."""
    store = caller.open(etcd_members.url)
    caller.take(store, "key", ttl=60.0)
    leader = etcd_members.leader()
    for lost in etcd_members.servers:
        if lost is leader:
            continue
        lost.pause()
        try:
            began = time.monotonic()
            assert caller(store.status("key", timeout=TIMEOUT)).held
            assert time.monotonic() - began < TIMEOUT
        finally:
            lost.resume()


def test_the_leader_hands_over(etcd_members: Members) -> None:
    """A new leader, on purpose, while clients count under a lock: none loses a count or sees an error."""
    counted = 0

    def count(_: int) -> None:
        nonlocal counted
        with leased.connect(etcd_members.url) as locks:
            for _ in range(10):
                with locks.lock("counter", wait=PATIENCE, ttl=PATIENCE):
                    counted += 1

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(count, number) for number in range(3)]
        for _ in range(3):
            leader = etcd_members.leader()
            other = next(server for server in etcd_members.servers if server is not leader)
            target = ask(other.place, "/v3/maintenance/status", {})["header"]["member_id"]
            ask(leader.place, "/v3/maintenance/transfer-leadership", {"targetID": target})
        for done in running:
            done.result()
    assert counted == 30


def test_the_assurance_names_the_members(caller: Caller, etcd_members: Members, etcd_server: Server) -> None:
    """Assurance: consensus, with what may be lost; a single member is said to be one."""
    three, one = caller.open(etcd_members.url), caller.open(etcd_server.url, takeover="observe")
    assert not three.assurance().known
    for store in (three, one):
        caller(store.status("key", timeout=TIMEOUT))
        assert store.assurance().exclusive == "consensus"
    assert "1 of 3 members" in three.assurance().durable
    assert three.assurance().takeover == "margin"
    assert "single member" in "; ".join(one.assurance().notes)
    assert one.assurance().takeover == "observe"


def test_waiters_are_woken_through_the_loss_of_a_member_and_a_compaction(etcd_members: Members) -> None:
    """W3, C143: a waiter whose watch breaks, or whose history is compacted away, gets the key when it is released."""
    with leased.connect(etcd_members.url) as locks, leased.connect(etcd_members.url) as others:
        for lose in (True, False):
            held = others.lock("key", ttl=60).acquire()
            with ThreadPoolExecutor(1) as thread:
                waiting = thread.submit(lambda: locks.lock("key", ttl=60, wait=PATIENCE).acquire())
                compact(etcd_members.leader().place)
                if lose:
                    leader = etcd_members.leader()
                    lost = next(server for server in etcd_members.servers if server is not leader)
                    lost.kill()
                assert held.release()
                assert waiting.result().release()
