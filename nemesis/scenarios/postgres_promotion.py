"""A PostgreSQL and its standby, which lags, behind a proxy by which clients are sent to the promoted one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random

import psycopg

from nemesis.checks.liveness import LONGEST_TTL
from nemesis.hand import LONGEST_HOLD
from nemesis.history import Recorder
from nemesis.scenarios.redis_server import pause
from nemesis.stage import Scenario, Stage, broken, wait_until
from tests.servers import postgres
from tests.servers.process import Server
from tests.servers.proxy import Proxy


class _Pair:
    """What the proxy stands in front of: a primary, and the standby that follows it through a connection of its own."""

    def __init__(self, stack: ExitStack) -> None:
        """Start both; the stack closes them."""
        self._stack = stack
        self.primary = stack.enter_context(postgres.start(settings=postgres.DURABLE))
        self.attach()

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

    def attach(self) -> None:
        """A new standby of the primary."""
        self.link = self._stack.enter_context(Proxy(self.primary))
        self.standby = self._stack.enter_context(
            postgres.start(settings=postgres.DURABLE, replica_of=self.link, slot="standby")
        )
        with psycopg.connect(self.primary.url, autocommit=True) as primary:
            wait_until("replication", lambda: _followers(primary) == 1)

    def promote(self) -> Server:
        """The standby becomes the primary, with what it has; gives the old one."""
        self.link.refuse()
        self.link.cut()
        with psycopg.connect(self.standby.url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")
        old, self.primary = self.primary, self.standby
        return old


@contextmanager
def _pair() -> Iterator[Stage]:
    with ExitStack() as stack:
        pair = _Pair(stack)
        with Proxy(pair) as proxy:
            yield Stage(proxy.url, [partial(fault, pair, proxy) for fault in (_lose, _lose, _split, _stall)])


def _lose(pair: _Pair, proxy: Proxy, recorder: Recorder, chance: Random) -> None:
    """The primary dies, with grants that its standby never saw; that is promoted."""
    unreplicated = chance.uniform(0.1, 1.0)
    with broken(recorder, f"primary killed, {unreplicated:.1f} s of it lost", loses=True) as fault:
        pair.link.hold()  # it stays connected: the primary still counts it
        time.sleep(unreplicated)
        pair.primary.kill()
        fault.gone()
        pair.promote().close()
        proxy.cut()
    _follow_again(pair, proxy, recorder)


def _split(pair: _Pair, proxy: Proxy, recorder: Recorder, chance: Random) -> None:
    """The standby is promoted while the primary lives: for a while clients of both are answered."""
    with broken(recorder, "two primaries", loses=True) as fault:
        pair.link.hold()
        time.sleep(chance.uniform(0.0, 0.5))
        old = pair.promote()
        time.sleep(chance.uniform(0.0, 1.0))
        proxy.cut()
        fault.gone()
    old.close()
    _follow_again(pair, proxy, recorder)


def _follow_again(pair: _Pair, proxy: Proxy, recorder: Recorder) -> None:
    """A new standby; clients connect again, and so learn that a fail-over can lose grants. Older ones end meanwhile."""
    with broken(recorder, "a standby copied, which takes the disk, and connections cut"):
        pair.attach()
        proxy.cut()
    time.sleep(LONGEST_HOLD + LONGEST_TTL)


def _stall(pair: _Pair, proxy: Proxy, recorder: Recorder, chance: Random) -> None:
    pause(pair.primary, recorder, seconds=chance.uniform(0.1, 2.0))


def _followers(primary: psycopg.Connection[tuple[object, ...]]) -> int:
    row = primary.execute("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").fetchone()
    assert row is not None
    return int(str(row[0]))


SCENARIOS = (
    Scenario(
        "postgres-promotion",
        "a PostgreSQL with a standby that lags and is promoted, and a proxy that sends everybody there",
        _pair,
        {"fail-overs": 2, "grants lost to fail-over": 1, "faults": 4},
    ),
)
