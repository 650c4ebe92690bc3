"""C103, step by step: a primary dies with a grant that its replica never saw, and the replica takes its place."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import leased
from nemesis import guard
from nemesis.scenarios.cluster_nodes import Nodes, slot_of
from nemesis.scenarios.redis_redirect import Front
from nemesis.scenarios.replication import catch_up, cut_off, is_replica, promote
from nemesis.stage import wait_until
from tests.servers import valkey
from tests.servers.fixtures import started
from tests.servers.found import valkey_program
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.servers.valkey import client_of
from tests.servers.valkey_groups import start_cluster, start_sentinels

KEY = "invoice"
TTL = 60.0
"""Seconds: what ends before that did not run out."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary and its replica at a URL; `replace` returns when the replica serves, after the primary died."""

    url: str
    primary: Server
    replica: Server
    replace: Callable[[], None]


@contextmanager
def redirected() -> Iterator[Pair]:
    """Whoever runs the servers promotes the replica, and sends all clients there."""
    with valkey.start() as primary, valkey.start(replica_of=primary) as replica:
        front = Front(primary, replica)
        with Proxy(front) as proxy:

            def replace() -> None:
                promote(replica)
                front.swap()
                proxy.cut()

            yield Pair(proxy.url, primary, replica, replace)


@contextmanager
def watched() -> Iterator[Pair]:
    """Sentinels promote it, and name it to clients."""
    with start_sentinels() as group:
        primary, replica = group.nodes
        yield Pair(group.url, primary, replica, lambda: _wait_for(replica))


@contextmanager
def clustered() -> Iterator[Pair]:
    """The replica takes the slots of its primary over."""
    with start_cluster() as group, ExitStack() as closing:
        nodes = Nodes(group.nodes)
        primary = nodes.serving(slot_of(KEY))
        replica = nodes.add_replica(primary, settings={}, closing=closing)

        def replace() -> None:
            with client_of(replica.place) as client:
                client.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
            _wait_for(replica)

        yield Pair(group.url, primary, replica, replace)


def _wait_for(replica: Server) -> None:
    wait_until("a new primary", lambda: not is_replica(replica))


@pytest.mark.parametrize("place", [redirected, watched, clustered])
def test_a_grant_that_was_not_replicated(place: Callable[[], AbstractContextManager[Pair]], tmp_path: Path) -> None:
    """C103, M4, S6: A is told at its next renewal, B's fencing token is higher although the last number was lost, the
    resource refuses A's write, and that all of this can happen is what `assurance` says."""
    started(valkey_program)
    with place() as pair, leased.connect(pair.url) as here:
        first = here.lock(KEY, ttl=TTL).acquire()
        first.release()
        assert (here.assurance.exclusive, here.assurance.early_loss) == ("until-failover", True)
        assert any("fail-over can lose" in note for note in here.assurance.notes)
        catch_up(pair.replica, primary=pair.primary)
        cut_off(pair.replica, primary=pair.primary)
        lost = here.lock(KEY, ttl=TTL).acquire()
        assert guard.write(tmp_path, KEY, fencing_token=lost.fencing_token).accepted
        pair.primary.kill()
        pair.replace()
        with leased.connect(pair.url) as there:
            later = there.lock(KEY, ttl=TTL).acquire(wait=TTL / 2)
            assert later.fencing_token > lost.fencing_token > first.fencing_token
            assert not lost.lost, "both may run until A renews: the window that assurance states"
            assert guard.write(tmp_path, KEY, fencing_token=later.fencing_token).accepted
            assert not guard.write(tmp_path, KEY, fencing_token=lost.fencing_token).accepted
            told = lost.renew()
            assert (told.reason, told.lost_reason) == ("lease_lost", "taken")
            assert lost.lost_reason == "taken"
            assert lost.release().reason == "not_holder"
            assert later.renew()
            assert later.release()
