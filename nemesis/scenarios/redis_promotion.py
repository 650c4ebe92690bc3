"""A Valkey with a replica that sentinels promote when it dies or stalls; clients ask the sentinels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from nemesis.history import Recorder
from nemesis.scenarios.redis_server import pause
from nemesis.scenarios.replication import cut_off, follow, is_replica, join
from nemesis.stage import Scenario, Stage, broken, wait_until
from tests.servers.process import Server
from tests.servers.valkey import client_of
from tests.servers.valkey_groups import MASTER_NAME, Group, master_of, start_sentinels

DOWN_AFTER = 0.5
"""Seconds of silence after which sentinels replace a primary."""


@contextmanager
def _sentinels() -> Iterator[Stage]:
    with start_sentinels(down_after_ms=int(DOWN_AFTER * 1000)) as group:
        for sentinel in group.sentinels:
            with client_of(sentinel.place) as client:  # the next fail-over may not begin before twice that
                client.execute_command("SENTINEL", "SET", MASTER_NAME, "failover-timeout", "1000")
                client.execute_command("SENTINEL", "DEBUG", "INFO-PERIOD", "500")

        def lose(recorder: Recorder, chance: Random) -> None:
            _lose(group, recorder, unreplicated=chance.uniform(0.1, 1.0))

        def replace(recorder: Recorder, chance: Random) -> None:
            _replace(group, recorder, chance=chance)

        def stall(recorder: Recorder, chance: Random) -> None:
            pause(_pair(group)[0], recorder, seconds=chance.uniform(0.05, DOWN_AFTER / 3))

        def silence(recorder: Recorder, chance: Random) -> None:
            pause(chance.choice(group.sentinels), recorder, seconds=chance.uniform(0.5, 2.0))

        yield Stage(group.url, (lose, lose, replace, stall, silence))


def _pair(group: Group) -> tuple[Server, Server]:
    """The primary and the replica, as the sentinels see them now."""
    port = master_of(group)[1]
    primary, replica = sorted(group.nodes, key=lambda node: node.port != port)
    return primary, replica


def _lose(group: Group, recorder: Recorder, *, unreplicated: float) -> None:
    """The primary dies, with grants that its replica never saw; sentinels promote the replica."""
    old, new = _pair(group)
    with broken(recorder, f"primary killed, {unreplicated:.1f} s of it lost", loses=True) as fault:
        cut_off(new, primary=old)
        time.sleep(unreplicated)
        old.kill()
        fault.gone()
        _wait_for_primary(group, new)
    old.start()
    _rejoin(group, old, primary=new)


def _replace(group: Group, recorder: Recorder, *, chance: Random) -> None:
    """The primary stalls until it has been replaced, and goes on for a while as if nothing had happened."""
    old, new = _pair(group)
    with broken(recorder, "primary stalled and replaced", loses=True) as fault:
        old.pause()
        _wait_for_primary(group, new)
        old.resume()
        time.sleep(chance.uniform(0.0, 1.0))
        follow(old, new)
        fault.gone()
    _rejoin(group, old, primary=new)


def _wait_for_primary(group: Group, server: Server) -> None:
    def agreed() -> bool:
        for sentinel in group.sentinels:
            with client_of(sentinel.place) as client:
                found: Any = client.sentinel_get_master_addr_by_name(MASTER_NAME)
            if int(found[1]) != server.port:
                return False
        return not is_replica(server)

    wait_until("a new primary", agreed)


def _rejoin(group: Group, server: Server, *, primary: Server) -> None:
    """Let the old primary follow the new one, until the sentinels would promote it."""
    follow(server, primary)
    join(server)

    def known() -> bool:
        for sentinel in group.sentinels:
            with client_of(sentinel.place) as client:
                found = [one for one in client.sentinel_slaves(MASTER_NAME) if int(one["port"]) == server.port]
            if not found or found[0]["is_sdown"] or found[0]["is_disconnected"] or not found[0]["is_slave"]:
                return False
            if found[0]["master-link-status"] != "ok":
                return False
        return True

    wait_until("a replica that could be promoted", known)


SCENARIOS = (
    Scenario(
        "redis-promotion",
        "a Valkey with a replica that sentinels promote when the primary dies or stalls",
        _sentinels,
        {"fail-overs": 3, "grants lost to fail-over": 2, "faults": 5, "unknown outcomes": 3},
    ),
)
