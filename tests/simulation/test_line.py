"""Regressions of the local line that long runs of the simulation found, each as the smallest world that shows it."""

from collections.abc import Coroutine
from random import Random
from typing import Any

from leased.engine import acquire, release
from leased.env import Env
from leased.hold import Hold
from leased.model import Claim, Contended, Held
from leased.queue import Lines
from leased.stores.memory import MemoryStore
from leased.timeline import Process, Timeline


class Asked(MemoryStore):
    """Notes when each token asked."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.clock)
        self.asked: dict[str, list[float]] = {}
        self._timeline = process.timeline

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """As the store itself."""
        self.asked.setdefault(claim.token, []).append(self._timeline.now)
        return await super().acquire(claim, timeout=timeout)


def test_the_next_is_woken_when_the_front_begins_a_block_under_its_owner() -> None:
    """W4: whoever wins leaves the line to the next at once, also when his own block bars his owner (seed 218603)."""
    timeline = Timeline(Random(1))
    process = timeline.process("p")
    store = Asked(process)
    env = Env(process.clock, Random(1), lambda: "unused", Lines())

    async def wait(token: str, owner: str | None) -> Hold | Contended:
        claim = Claim("k", token, 60.0, owner=owner)
        return await acquire(store, env, claim, wait=50.0, scoped=True, retry_delay=1.0)

    async def hold_for_a_while() -> None:
        hold = await acquire(store, env, Claim("k", "first", 60.0), wait=0.0)
        assert isinstance(hold, Hold)
        await process.clock.sleep(5.25)
        await release(store, env, hold)

    def start(work: Coroutine[Any, Any, object]) -> None:
        process.start(work)

    start(hold_for_a_while())
    timeline.at(1.0, lambda: start(wait("front", "red")))
    timeline.at(2.0, lambda: start(wait("next", None)))
    timeline.run(10.0)
    timeline.close()
    won_at = max(store.asked["front"])
    assert 5.25 <= won_at < 5.26
    assert won_at <= store.asked["next"][0] < won_at + 0.01
