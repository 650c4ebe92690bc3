"""A cluster of three Valkeys with a replica each: nodes are stopped, killed and replaced, and slots move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random

from nemesis.fleet import KEYS
from nemesis.history import Recorder
from nemesis.scenarios.cluster_nodes import Nodes, slot_of
from nemesis.scenarios.replication import cut_off, is_replica, join, mend
from nemesis.stage import Break, Scenario, Stage, broken, wait_until
from tests.servers import valkey
from tests.servers.process import Server
from tests.servers.valkey import client_of
from tests.servers.valkey_groups import start_cluster

NODE_TIMEOUT = 2.0
"""Seconds of silence after which a node is replaced; that of the servers for tests."""


@contextmanager
def _cluster() -> Iterator[Stage]:
    settings = valkey.append_only("always")
    with start_cluster(settings=settings) as group, ExitStack() as closing:
        nodes = Nodes(group.nodes)
        for primary in group.nodes:
            nodes.add_replica(primary, settings=settings, closing=closing)
        nodes.settle()
        yield Stage(group.url, [partial(fault, nodes) for fault in _FAULTS], nodes.undisturbed, nodes.settle)


def _stall(nodes: Nodes, recorder: Recorder, chance: Random) -> None:
    """A node is stopped, for less time than after which it would be replaced."""
    node, seconds = nodes.serving(_slot(chance)), chance.uniform(0.1, NODE_TIMEOUT * 0.6)
    with broken(recorder, f"node paused for {seconds:.1f} s") as fault:
        node.pause()
        time.sleep(seconds)
        node.resume()
        nodes.settle_as(fault)


def _crash(nodes: Nodes, recorder: Recorder, chance: Random) -> None:
    """A node dies and comes back, with all that it had, before it would be replaced."""
    node = nodes.serving(_slot(chance))
    with broken(recorder, "node killed and restarted") as fault:
        node.kill()
        time.sleep(chance.uniform(0.0, NODE_TIMEOUT / 4))
        node.start()
        nodes.settle_as(fault)


def _stall_until_replaced(nodes: Nodes, recorder: Recorder, chance: Random) -> None:
    """A node is stopped until its replica serves, and goes on as if nothing had happened."""
    old = nodes.serving(_slot(chance))
    new = nodes.replica_of(old)
    with broken(recorder, "node paused and replaced", loses=True) as fault:
        old.pause()
        wait_until("a new primary", lambda: not is_replica(new))
        old.resume()
        wait_until("the old one's obedience", lambda: is_replica(old))
        fault.gone()
        nodes.settle_as(fault, old=old, new=new)


def _lose(nodes: Nodes, recorder: Recorder, chance: Random) -> None:
    """A node dies with grants that its replica never saw, which then serves."""
    old = nodes.serving(_slot(chance))
    new = nodes.replica_of(old)
    with broken(recorder, "node killed, some of it lost", loses=True) as fault:
        cut_off(new, primary=old)
        time.sleep(chance.uniform(0.1, 1.0))
        old.kill()
        fault.gone()
        wait_until("a new primary", lambda: not is_replica(new))
        _come_back(nodes, fault, old=old, new=new)


def _take_over(nodes: Nodes, recorder: Recorder, chance: Random) -> None:
    """A replica that has missed grants takes over from a node that lives."""
    old = nodes.serving(_slot(chance))
    new = nodes.replica_of(old)
    with broken(recorder, "node deposed, some of it lost", loses=True) as fault:
        cut_off(new, primary=old)
        time.sleep(chance.uniform(0.5, 1.5))
        with client_of(new.place) as client:
            client.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
        wait_until("the old one's obedience", lambda: is_replica(old))
        fault.gone()
        _come_back(nodes, fault, old=old, new=new)


def _hand_over(nodes: Nodes, recorder: Recorder, chance: Random) -> None:
    """A node hands over to its replica, which waits until it has everything: nothing may be lost."""
    old = nodes.serving(_slot(chance))
    new = nodes.replica_of(old)
    with broken(recorder, "node handed over", hurts=False) as fault, client_of(new.place) as client:
        client.execute_command("CLUSTER", "FAILOVER")
        wait_until("a new primary", lambda: not is_replica(new) and is_replica(old))
        nodes.settle_as(fault, old=old, new=new)


def _move(nodes: Nodes, recorder: Recorder, chance: Random) -> None:
    """A slot with a lock moves to another node, as resharding tools do it: key by key."""
    slot = _slot(chance)
    source = nodes.serving(slot)
    target = chance.choice([node for node in nodes.primaries() if node is not source])
    with (
        broken(recorder, f"slot {slot} moved", hurts=False) as fault,
        client_of(source.place) as giving,
        client_of(target.place) as taking,
    ):
        taking.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", nodes.id_of(source))
        giving.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", nodes.id_of(target))
        while names := giving.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            time.sleep(chance.uniform(0.0, 0.2))
            giving.migrate(target.host, target.port, names, 0, 5000)
        time.sleep(chance.uniform(0.0, 0.2))
        for client in (taking, giving):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", nodes.id_of(target))
        wait_until("the new place of a slot", lambda: nodes.serving(slot) is target)
        nodes.settle_as(fault)


def _slot(chance: Random) -> int:
    return slot_of(chance.choice(KEYS))


def _come_back(nodes: Nodes, fault: Break, *, old: Server, new: Server) -> None:
    """The old primary, and the setting that kept the new one from learning."""
    old.start()
    mend(new)
    wait_until("the old one's obedience", lambda: is_replica(old))
    join(old)
    nodes.settle_as(fault, old=old, new=new)


_FAULTS: tuple[Callable[[Nodes, Recorder, Random], None], ...] = (
    _stall,
    _crash,
    _stall_until_replaced,
    _lose,
    _take_over,
    _take_over,
    _take_over,
    _hand_over,
    _move,
    _move,
)

SCENARIOS = (
    Scenario(
        "redis-cluster",
        "a cluster of three Valkeys with a replica each: nodes stopped, killed and replaced, slots moved",
        _cluster,
        {"fail-overs": 2, "grants lost to fail-over": 1, "faults": 6, "unknown outcomes": 3},
    ),
)
