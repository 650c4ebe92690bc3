"""The nodes of a cluster of Valkeys: who serves a key, who follows whom, and how slots and replicas are moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import redis

from leased.stores._redis_names import Names
from nemesis.scenarios.replication import is_replica, linked
from nemesis.stage import Break, wait_until
from tests.servers.process import Server
from tests.servers.valkey import client_of, recipe


class Nodes:
    """All nodes of one cluster, replicas too. What is asked is asked of the servers, each time anew."""

    def __init__(self, servers: Sequence[Server]) -> None:
        """A cluster of these, so far."""
        self._servers = [*servers]
        self._primaries = len(servers)
        self._known = [*servers]

    def add_replica(self, primary: Server, *, settings: Mapping[str, str], closing: ExitStack) -> Server:
        """Start another node, which follows this one and has what it has; it is closed with the rest."""
        lines = [f"{name} {value}" for name, value in {"cluster-node-timeout": "2000", **settings}.items()]
        server = closing.enter_context(Server(recipe("valkey", lines=lines, role="node")))
        with client_of(server.place) as client:
            client.execute_command("CLUSTER", "MEET", primary.host, primary.port, primary.place.second_port)
            followed = self.id_of(primary)
            wait_until("a new node", lambda: followed in {str(one["node_id"]) for one in view(server).values()})
            client.execute_command("CLUSTER", "REPLICATE", followed)
        wait_until("replication", lambda: is_replica(server) and linked(server))
        self._servers.append(server)
        return server

    def id_of(self, server: Server) -> str:
        """By what name the cluster knows it."""
        with client_of(server.place) as client:
            return str(client.execute_command("CLUSTER", "MYID"))

    def serving(self, slot: int) -> Server:
        """The primary that has this slot."""
        for server in self.primaries():
            for found in view(server).values():
                if "myself" in found["flags"] and any(int(one[0]) <= slot <= int(one[-1]) for one in found["slots"]):
                    return server
        raise LookupError(f"nobody serves slot {slot}")

    def replica_of(self, primary: Server) -> Server:
        """The one that follows it."""
        followed = self.id_of(primary)
        for server in self._servers:
            if any("myself" in one["flags"] and one["master_id"] == followed for one in view(server).values()):
                return server
        raise LookupError(f"nobody follows {primary.port}")

    def primaries(self) -> list[Server]:
        """Those that follow nobody."""
        return [server for server in self._servers if not is_replica(server)]

    def undisturbed(self) -> bool:
        """Whether the same nodes are primaries as when all was well last."""
        try:
            return self.primaries() == self._known
        except (OSError, redis.RedisError):
            return True  # one is too busy to say

    def settle(self) -> None:
        """Wait until every node agrees that all is well: all slots served, and every primary followed by one."""
        wait_until("a cluster that agrees", self._settled)
        self._known = self.primaries()

    def settle_as(self, fault: Break, *, old: Server | None = None, new: Server | None = None) -> None:
        """As `settle`; if then others are primaries than before, but for `new` in the place of `old`, the fault went
        further than it should."""
        expected = [new if server is old else server for server in self._known]
        self.settle()
        if {server.port for server in self._known} != {server.port for server in expected if server}:
            fault.got_out_of_hand()

    def _settled(self) -> bool:
        for server in self._servers:
            with client_of(server.place) as client:
                if client.cluster("INFO")["cluster_state"] != "ok":
                    return False
            found = view(server).values()
            flags = [one["flags"].split(",") for one in found]
            if len(flags) != len(self._servers) or any("fail" in flag or "fail?" in flag for flag in flags):
                return False
            if sum("master" in flag for flag in flags) != self._primaries or (
                is_replica(server) and not linked(server)
            ):
                return False
        return len({str(one["master_id"]) for one in view(self._servers[0]).values()}) == self._primaries + 1


def slot_of(key: str) -> int:
    """The slot of a lock."""
    from redis.crc import key_slot

    return key_slot(Names("").record(key))


def view(server: Server) -> dict[str, dict[str, Any]]:
    """The cluster as one node sees it, by address."""
    with client_of(server.place) as client:
        found: dict[str, dict[str, Any]] = client.cluster("NODES")
    return found
