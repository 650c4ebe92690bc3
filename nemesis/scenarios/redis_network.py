"""One Valkey that keeps every answer, behind a network that loses, delays and swallows: nothing is excused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from random import Random
from typing import Literal

from nemesis.history import Recorder
from nemesis.stage import Scenario, Stage, broken
from tests.servers import valkey
from tests.servers.process import Server
from tests.servers.proxy import Proxy


def _lose_replies(proxy: Proxy, recorder: Recorder, chance: Random) -> None:
    """What was asked is done, and nobody learns it."""
    _trip(proxy.lose_reply, proxy, recorder=recorder, chance=chance, what="replies lost")


def _lose_requests(proxy: Proxy, recorder: Recorder, chance: Random) -> None:
    """What was asked is not done, and nobody learns it."""
    _trip(proxy.lose_request, proxy, recorder=recorder, chance=chance, what="requests lost")


def _trip(lose: Callable[[int], None], proxy: Proxy, *, recorder: Recorder, chance: Random, what: str) -> None:
    with broken(recorder, what):
        for _ in range(chance.randrange(1, 8)):
            lose(chance.randrange(1, 4))
            time.sleep(chance.uniform(0.0, 0.3))
        proxy.heal()


def _swallow(proxy: Proxy, recorder: Recorder, chance: Random) -> None:
    """Nothing comes through, in one way or both; then those connections are reset."""
    way: Literal["up", "down", "both"] = chance.choice(("up", "down", "both"))
    with broken(recorder, f"black hole ({way})"):
        proxy.black_hole(way)
        time.sleep(chance.uniform(0.2, 3.0))
        proxy.heal()


def _hold(proxy: Proxy, recorder: Recorder, chance: Random) -> None:
    """Everything comes through, late: also what nobody waits for any more."""
    way: Literal["up", "down", "both"] = chance.choice(("up", "down", "both"))
    with broken(recorder, f"held back ({way})"):
        proxy.hold(way)
        time.sleep(chance.uniform(0.2, 3.0))
        proxy.heal()


def _delay(proxy: Proxy, recorder: Recorder, chance: Random) -> None:
    """Everything takes longer."""
    with broken(recorder, "delays"):
        for _ in range(chance.randrange(1, 5)):
            proxy.delay(chance.uniform(0.0, 0.6))
            time.sleep(chance.uniform(0.1, 1.0))
        proxy.heal()


def _drip(proxy: Proxy, recorder: Recorder, chance: Random) -> None:
    """What is said arrives in drops, so that an answer takes seconds although something always comes."""
    with broken(recorder, "drops"):
        proxy.drip(chance.uniform(0.005, 0.2))
        time.sleep(chance.uniform(0.5, 3.0))
        proxy.heal()


def _cut(proxy: Proxy, recorder: Recorder, chance: Random) -> None:
    """All connections end, and for a while there are no new ones."""
    with broken(recorder, "cut off"):
        proxy.refuse()
        proxy.cut(chance.choice(("reset", "close")))
        time.sleep(chance.uniform(0.0, 1.5))
        proxy.heal()


FAULTS: tuple[Callable[[Proxy, Recorder, Random], None], ...] = (
    _lose_replies,
    _lose_replies,
    _lose_requests,
    _swallow,
    _hold,
    _hold,
    _delay,
    _drip,
    _cut,
)


def behind(start: Callable[[], Server]) -> Callable[[], AbstractContextManager[Stage]]:
    """A stage of one server that is reached through such a network."""

    @contextmanager
    def open_stage() -> Iterator[Stage]:
        with start() as server, Proxy(server) as proxy:
            yield Stage(proxy.url, [partial(fault, proxy) for fault in FAULTS])

    return open_stage


SCENARIOS = (
    Scenario(
        "redis-network",
        "one Valkey that keeps every answer, while replies are lost, requests come late and connections are cut",
        behind(lambda: valkey.start(settings=valkey.append_only("always"))),
        {"faults": 10, "unknown outcomes": 10},
    ),
)
