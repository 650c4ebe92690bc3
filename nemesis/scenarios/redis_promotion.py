"""A Valkey with a replica that sentinels promote when it dies or stalls; clients ask the sentinels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import redis

from nemesis.history import Recorder
from nemesis.scenarios.redis_server import pause
from nemesis.scenarios.replication import cut_off, follow, is_replica, linked, mend
from nemesis.stage import Break, Scenario, Stage, StageFailed, broken, wait_until
from tests.servers.process import Server
from tests.servers.valkey import client_of
from tests.servers.valkey_groups import MASTER_NAME, Group, start_sentinels

DOWN_AFTER = 1.0
"""Seconds of silence after which sentinels replace a primary."""


class _Watched:
    """A primary and a replica under the eyes of sentinels, as they were last."""

    def __init__(self, group: Group) -> None:
        self.sentinels = group.sentinels
        self.primary, self.replica = group.nodes

    def undisturbed(self) -> bool:
        """Whether nobody was promoted since."""
        try:
            return not is_replica(self.primary) and is_replica(self.replica)
        except (OSError, redis.RedisError):
            return True  # it is too busy to say

    def settle(self) -> None:
        """Wait until one follows the other, and the sentinels would promote it; take them as they then are."""
        for server in (self.primary, self.replica):
            mend(server)
        wait_until("a replica that could be promoted", self._settled)
        self.primary, self.replica = self._roles()

    def settle_as(self, fault: Break, *, primary: Server) -> None:
        """As `settle`; if then another one is the primary, the fault went further than it should."""
        self.settle()
        if self.primary is not primary:
            fault.got_out_of_hand()

    def described(self) -> str:
        """How they stand, for whoever has to find out why they do not do what they should."""
        lines = []
        for server in (self.primary, self.replica):
            with client_of(server.place) as client:
                found = client.info("replication")
            told = {name: found.get(name) for name in ("role", "master_port", "master_link_status", "connected_slaves")}
            lines.append(f"{server.port}: {told}; it logged:\n{server.log[-1500:]}")
        for sentinel in self.sentinels:
            with client_of(sentinel.place) as client:
                told = client.info("sentinel")
            lines.append(f"sentinel {sentinel.port}: {told}; it logged:\n{sentinel.log[-1500:]}")
        return "\n".join(lines)

    def _roles(self) -> tuple[Server, Server]:
        primary, replica = sorted((self.primary, self.replica), key=is_replica)
        return primary, replica

    def _settled(self) -> bool:
        primary, replica = self._roles()
        if is_replica(primary) or not is_replica(replica) or not linked(replica):
            return False
        for sentinel in self.sentinels:
            with client_of(sentinel.place) as client:
                named: Any = client.sentinel_get_master_addr_by_name(MASTER_NAME)
                known = [one for one in client.sentinel_slaves(MASTER_NAME) if int(one["port"]) == replica.port]
            if int(named[1]) != primary.port or not known or known[0]["master-link-status"] != "ok":
                return False
            if known[0]["is_sdown"] or known[0]["is_disconnected"] or not known[0]["is_slave"]:
                return False
        return True


@contextmanager
def _sentinels() -> Iterator[Stage]:
    with start_sentinels(down_after_ms=int(DOWN_AFTER * 1000)) as group:
        for sentinel in group.sentinels:
            with client_of(sentinel.place) as client:  # the next fail-over may not begin before twice that
                client.execute_command("SENTINEL", "SET", MASTER_NAME, "failover-timeout", "1000")
                client.execute_command("SENTINEL", "DEBUG", "INFO-PERIOD", "500")
        watched = _Watched(group)
        watched.settle()
        faults = [partial(_or_described, watched, fault) for fault in _FAULTS]
        yield Stage(group.url, faults, watched.undisturbed, watched.settle)


def _or_described(
    watched: _Watched, fault: Callable[[_Watched, Recorder, Random], None], recorder: Recorder, chance: Random
) -> None:
    try:
        fault(watched, recorder, chance)
    except StageFailed as error:
        raise StageFailed(f"{error}\n{watched.described()}") from error


def _lose(watched: _Watched, recorder: Recorder, chance: Random) -> None:
    """The primary dies, with grants that its replica never saw; sentinels promote the replica."""
    old, new = watched.primary, watched.replica
    unreplicated = chance.uniform(0.1, 1.0)
    with broken(recorder, f"primary killed, {unreplicated:.1f} s of it lost", loses=True) as fault:
        cut_off(new, primary=old)
        time.sleep(unreplicated)
        old.kill()
        fault.gone()
        _wait_for_primary(watched, new)
        old.start()
        follow(old, new)
        watched.settle_as(fault, primary=new)


def _replace(watched: _Watched, recorder: Recorder, chance: Random) -> None:
    """The primary stalls until it has been replaced, and goes on for a while as if nothing had happened."""
    old, new = watched.primary, watched.replica
    with broken(recorder, "primary stalled and replaced", loses=True) as fault:
        old.pause()
        _wait_for_primary(watched, new)
        old.resume()
        time.sleep(chance.uniform(0.0, 1.0))
        follow(old, new)
        wait_until("the new data", lambda: linked(old))  # until then a replica shows what it had to those who only look
        fault.gone()
        watched.settle_as(fault, primary=new)


def _stall(watched: _Watched, recorder: Recorder, chance: Random) -> None:
    """The primary stalls, too briefly to be replaced."""
    pause(watched.primary, recorder, seconds=chance.uniform(0.05, DOWN_AFTER / 4))


def _silence(watched: _Watched, recorder: Recorder, chance: Random) -> None:
    """A sentinel stalls."""
    pause(chance.choice(watched.sentinels), recorder, seconds=chance.uniform(0.3, 1.2))


def _wait_for_primary(watched: _Watched, server: Server) -> None:
    def agreed() -> bool:
        for sentinel in watched.sentinels:
            with client_of(sentinel.place) as client:
                found: Any = client.sentinel_get_master_addr_by_name(MASTER_NAME)
            if int(found[1]) != server.port:
                return False
        return not is_replica(server)

    wait_until("a new primary", agreed)


_FAULTS: tuple[Callable[[_Watched, Recorder, Random], None], ...] = (_lose, _lose, _replace, _stall, _silence)

SCENARIOS = (
    Scenario(
        "redis-promotion",
        "a Valkey with a replica that sentinels promote when the primary dies or stalls",
        _sentinels,
        {"fail-overs": 3, "grants lost to fail-over": 1, "faults": 5, "unknown outcomes": 1},
    ),
)
