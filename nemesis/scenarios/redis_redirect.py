"""A Valkey and its replica behind a proxy, by which clients are sent to the promoted one as an operator would."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from nemesis.history import Recorder
from nemesis.scenarios.redis_server import pause
from nemesis.scenarios.replication import cut_off, follow, join, promote
from nemesis.stage import Scenario, Stage, broken
from tests.servers import valkey
from tests.servers.process import Server
from tests.servers.proxy import Proxy


class Front:
    """What the proxy stands in front of: one of two servers, the other of which follows it."""

    def __init__(self, primary: Server, replica: Server) -> None:
        """The first of them, at first."""
        self.primary = primary
        self.replica = replica

    @property
    def host(self) -> str:
        """See `Listening`."""
        return self.primary.host

    @property
    def port(self) -> int:
        """See `Listening`."""
        return self.primary.port

    @property
    def url(self) -> str:
        """See `Listening`."""
        return self.primary.url

    def swap(self) -> None:
        """New connections go to the other one."""
        self.primary, self.replica = self.replica, self.primary


@contextmanager
def _pair() -> Iterator[Stage]:
    with (
        valkey.start() as primary,
        valkey.start(replica_of=primary) as replica,
    ):
        front = Front(primary, replica)
        with Proxy(front) as proxy:

            def lose(recorder: Recorder, chance: Random) -> None:
                _lose(front, proxy, recorder=recorder, unreplicated=chance.uniform(0.1, 1.0))

            def split(recorder: Recorder, chance: Random) -> None:
                _split(front, proxy, recorder=recorder, chance=chance)

            def stall(recorder: Recorder, chance: Random) -> None:
                pause(front.primary, recorder, seconds=chance.uniform(0.1, 2.0))

            def cut(recorder: Recorder, chance: Random) -> None:
                with broken(recorder, "connections cut"):
                    proxy.cut()

            yield Stage(proxy.url, (lose, lose, split, stall, cut))


def _lose(front: Front, proxy: Proxy, *, recorder: Recorder, unreplicated: float) -> None:
    """The primary dies, with grants that its replica never saw; the replica is promoted."""
    old, new = front.primary, front.replica
    with broken(recorder, f"primary killed, {unreplicated:.1f} s of it lost", loses=True) as fault:
        cut_off(new, primary=old)
        time.sleep(unreplicated)
        old.kill()
        fault.gone()
        promote(new)
        front.swap()
        proxy.cut()
    old.start()
    follow(old, new)
    join(old)


def _split(front: Front, proxy: Proxy, *, recorder: Recorder, chance: Random) -> None:
    """The replica is promoted while the primary lives: for a while clients of both are answered."""
    old, new = front.primary, front.replica
    with broken(recorder, "two primaries", loses=True) as fault:
        cut_off(new, primary=old)
        time.sleep(chance.uniform(0.0, 0.5))
        promote(new)
        front.swap()
        time.sleep(chance.uniform(0.0, 1.0))
        proxy.cut()
        fault.gone()
    follow(old, new)
    join(old)


SCENARIOS = (
    Scenario(
        "redis-redirect",
        "a Valkey with a replica that is promoted, and a proxy that sends everybody there",
        _pair,
        {"fail-overs": 5, "grants lost to fail-over": 3, "faults": 8, "unknown outcomes": 3},
    ),
)
