"""Several Valkey or Redis servers that work together: a cluster of three, or a master with a replica and sentinels."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import redis

from tests.servers.process import Server, ServerFailed
from tests.servers.valkey import Program, client_of, recipe, start

SLOTS = 16_384
READY_WITHIN = 60.0
MASTER_NAME = "leased"


@dataclass(frozen=True, slots=True)
class Group:
    """Servers that were started together. `url` takes a client to all of them, `nodes` are the ones that hold data."""

    url: str
    nodes: tuple[Server, ...]
    sentinels: tuple[Server, ...]
    _closing: ExitStack

    def close(self) -> None:
        """End all of them."""
        self._closing.close()

    def __enter__(self) -> Group:
        """The group itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def start_cluster(program: Program = "valkey", *, settings: Mapping[str, str] | None = None) -> Group:
    """Three nodes without replicas that share all slots and accept commands; at `redis+cluster://…`."""
    with ExitStack() as stack:
        nodes = tuple(stack.enter_context(_cluster_node(program, settings or {})) for _ in range(3))
        bounds = [SLOTS * number // len(nodes) for number in range(len(nodes) + 1)]
        with ExitStack() as clients:
            asked = [clients.enter_context(client_of(node.place)) for node in nodes]
            for number, client in enumerate(asked):
                client.execute_command("CLUSTER ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            for node in nodes[1:]:
                asked[0].execute_command("CLUSTER MEET", node.host, node.port, node.place.second_port)
            for client in asked:
                _wait_for("the cluster", functools.partial(_complete, client, nodes=len(nodes)))
        return Group(f"redis+cluster://{_places(nodes)}/", nodes, (), stack.pop_all())


def start_sentinels(program: Program = "valkey", *, count: int = 3, down_after_ms: int = 500) -> Group:
    """A master and a replica (`nodes`, in this order at first) watched by sentinels, most of whom must agree.

    The URL is `redis+sentinel://…/leased`. A failover begins when the master was silent for `down_after_ms`.
    """
    with ExitStack() as stack:
        master = stack.enter_context(start(program))
        replica = stack.enter_context(start(program, replica_of=master))
        lines = [
            f"sentinel monitor {MASTER_NAME} {master.host} {master.port} {count // 2 + 1}",
            f"sentinel down-after-milliseconds {MASTER_NAME} {down_after_ms}",
            f"sentinel failover-timeout {MASTER_NAME} 5000",
        ]
        made = recipe(program, lines=lines, role="sentinel")
        sentinels = tuple(stack.enter_context(Server(made)) for _ in range(count))
        for sentinel in sentinels:
            with client_of(sentinel.place) as client:
                _wait_for("the sentinels", functools.partial(_watched, client, others=count - 1))
        url = f"redis+sentinel://{_places(sentinels)}/{MASTER_NAME}"
        return Group(url, (master, replica), sentinels, stack.pop_all())


def master_of(group: Group) -> tuple[str, int]:
    """Where the first sentinel says that the master is now."""
    with client_of(group.sentinels[0].place) as client:
        found: Any = client.sentinel_get_master_addr_by_name(MASTER_NAME)
    return str(found[0]), int(found[1])


def _cluster_node(program: Program, settings: Mapping[str, str]) -> Server:
    lines = [f"{name} {value}" for name, value in {"cluster-node-timeout": "2000", **settings}.items()]
    return Server(recipe(program, lines=lines, role="node"))


def _complete(client: redis.Redis, *, nodes: int) -> bool:
    found = dict(client.cluster("INFO"))
    return found["cluster_state"] == "ok" and int(found["cluster_known_nodes"]) == nodes


def _watched(client: redis.Redis, *, others: int) -> bool:
    found: Any = client.sentinel_master(MASTER_NAME)
    return int(found["num-slaves"]) == 1 and int(found["num-other-sentinels"]) == others


def _wait_for(what: str, met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while not met():
        if time.monotonic() > deadline:
            raise ServerFailed(f"{what} did not become ready within {READY_WITHIN} s")
        time.sleep(0.01)  # between two questions


def _places(servers: tuple[Server, ...]) -> str:
    return ",".join(f"{server.host}:{server.port}" for server in servers)
