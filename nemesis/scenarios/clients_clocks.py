"""Stores that go by the clocks of their clients: etcd, NATS and DynamoDB. All keep every answer: nothing is excused."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Protocol

from nemesis.history import Recorder
from nemesis.scenarios.redis_network import FAULTS, behind
from nemesis.scenarios.redis_server import pause
from nemesis.stage import Scenario, Stage, StageFailed, broken
from tests.servers import dynamodb, etcd, nats
from tests.servers.process import Server
from tests.servers.proxy import Proxy


class Members(Protocol):
    """Servers that are one store, of which one leads."""

    @property
    def servers(self) -> tuple[Server, ...]:
        """All of them."""
        ...

    @property
    def url(self) -> str:
        """What `leased.connect` takes."""
        ...

    def leader(self) -> Server:
        """The one that leads now."""
        ...


@contextmanager
def _etcd() -> Iterator[Stage]:
    with etcd.start_members() as members:
        yield Stage(members.url, [partial(fault, members) for fault in (*_BREAKS, _compact)])


@contextmanager
def _nats() -> Iterator[Stage]:
    with nats.start_members() as members:
        yield Stage(members.url, [partial(fault, members) for fault in _BREAKS])


@contextmanager
def _dynamodb() -> Iterator[Stage]:
    """It keeps its tables in memory, so that it is never killed; an emulation that ends by itself proves nothing."""
    with dynamodb.credentials(), dynamodb.start() as server, Proxy(server) as proxy:

        def runs() -> bool:
            if not server.running:
                raise StageFailed(f"the emulation has ended by itself; it logged:\n{server.log}")
            return True

        def stall(recorder: Recorder, chance: Random) -> None:
            pause(server, recorder, seconds=chance.uniform(0.1, 3.0))

        yield Stage(proxy.url, [stall, *(partial(fault, proxy) for fault in FAULTS)], undisturbed=runs)


def _stall_leader(members: Members, recorder: Recorder, chance: Random) -> None:
    """The one that leads is stopped, so that another one may take its place, and wakes up believing that it leads."""
    leader = members.leader()
    with broken(recorder, "leader paused"):
        leader.pause()
        time.sleep(chance.uniform(0.1, 4.0))
        leader.resume()
        _well(members)


def _kill_leader(members: Members, recorder: Recorder, chance: Random) -> None:
    leader = members.leader()
    with broken(recorder, "leader killed and restarted"):
        _kill(leader, chance)
        _well(members)


def _kill_follower(members: Members, recorder: Recorder, chance: Random) -> None:
    """A majority is left, and answers; whoever asked the one that is gone has to ask another one."""
    leader = members.leader()
    follower = chance.choice([server for server in members.servers if server is not leader])
    with broken(recorder, "follower killed and restarted"):
        _kill(follower, chance)
        _well(members)


def _kill_all(members: Members, recorder: Recorder, chance: Random) -> None:
    """A power cut for the processes: what they had answered is in their files."""
    with broken(recorder, "all killed and restarted"):
        for server in members.servers:
            server.kill()
        with ThreadPoolExecutor(len(members.servers)) as together:  # one alone has no majority, and does not answer
            for started in [together.submit(server.start) for server in members.servers]:
                started.result()
        _well(members)


def _compact(members: Members, recorder: Recorder, chance: Random) -> None:
    """All history is forgotten, under those who watch."""
    with broken(recorder, "compacted", hurts=False), suppress(OSError, http.client.HTTPException):
        etcd.compact(members.leader().place)


def _kill(server: Server, chance: Random) -> None:
    server.kill()
    time.sleep(chance.uniform(0.0, 2.0))
    server.start()


def _well(members: Members) -> None:
    """Wait until one leads, and all answer."""
    members.leader()
    for server in members.servers:
        while not server.recipe.answers(server.place, server.pid):
            time.sleep(0.01)  # between two questions


_BREAKS: tuple[Callable[[Members, Recorder, Random], None], ...] = (
    _stall_leader,
    _kill_leader,
    _kill_follower,
    _kill_all,
)
# A key opens a second after its lease has run out, and a lost answer is asked for again: both happen less often.
_MEMBERS = {"faults": 5, "unknown outcomes": 3, "take-overs after expiry": 10}
_NETWORK = {"faults": 10, "unknown outcomes": 2, "take-overs after expiry": 10}
_LOSING = "while replies are lost, requests come late and connections are cut"

SCENARIOS = (
    Scenario(
        "etcd-members",
        "three members of etcd: the leader stopped, members killed and restarted, history compacted",
        _etcd,
        _MEMBERS,
    ),
    Scenario("etcd-network", f"one etcd, {_LOSING}", behind(etcd.start), _NETWORK),
    Scenario(
        "nats-members",
        "three servers of NATS: the leader of the bucket stopped, servers killed and restarted",
        _nats,
        _MEMBERS,
    ),
    Scenario("nats-network", f"one NATS, {_LOSING}", behind(nats.start), _NETWORK),
    Scenario("dynamodb-network", f"one DynamoDB (emulated), stopped, and {_LOSING}", _dynamodb, _NETWORK),
)
