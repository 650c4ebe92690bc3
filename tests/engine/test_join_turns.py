"""What concurrent callers of a joined store ask in one turn leaves as one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock, step
from leased.join import Joined
from leased.model import Claim, Contended, Held, Operation, Released
from leased.store import Outcome
from leased.stores.memory import MemoryStore


class Recorder(MemoryStore):
    """A memory store that writes down the sizes of what reaches it. A single acquire waits for the gate, if any."""

    def __init__(self) -> None:
        super().__init__(BlockingClock())
        self.sizes: list[int] = []
        self.reached = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.suspends = True

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        self.sizes.append(1)
        self.reached.set()
        if self.gate is not None:
            await self.gate.wait()
        elif self.suspends:
            await asyncio.sleep(0)
        return await super().acquire(claim, timeout=timeout)

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        sizes = [*self.sizes, len(operations)]
        outcomes = await super().many(operations, timeout=timeout)
        self.sizes = sizes
        return outcomes


def claim(number: int) -> Claim:
    """One of many claims that have nothing to do with each other."""
    return Claim(f"key-{number}", f"a-token-of-its-own-{number:03}", 30.0)


def test_what_is_asked_in_one_turn_leaves_as_one_batch() -> None:
    """The first of 50 callers goes at once; from then on those who ask in the same turn share one call."""
    store = Recorder()
    joined = Joined(store, LoopClock())

    async def client(number: int) -> None:
        assert isinstance(await joined.acquire(claim(number), timeout=5.0), Held)
        assert await joined.release(f"key-{number}", claim(number).token, timeout=1.0) == Released()

    async def clients() -> None:
        await asyncio.gather(*(client(number) for number in range(50)))

    asyncio.run(clients())
    assert store.sizes == [1, 50, 49]


def test_a_caller_that_is_alone_again_goes_straight_to_the_store() -> None:
    """After a crowd one batch of one shows that nobody is there any more, and then nothing waits for others."""
    store = Recorder()
    joined = Joined(store, LoopClock())

    async def callers() -> None:
        await asyncio.gather(*(joined.acquire(claim(number), timeout=5.0) for number in range(4)))
        for number in range(4, 7):
            assert isinstance(await joined.acquire(claim(number), timeout=5.0), Held)
            assert joined._crowded is False

    asyncio.run(callers())
    assert store.sizes == [1, 3, 1, 1, 1]


async def _cancel_as_the_lead_is_passed_on(store: Recorder, leaders: Sequence[int]) -> list[Any]:
    """Callers 1 to 3 wait for the call of caller 0 to end; in that very turn some of them are cancelled."""
    joined = Joined(store, LoopClock())
    store.gate = asyncio.Event()
    patience = {0: 5.0, 1: 1.0, 2: 5.0, 3: 1.0}
    asked = [asyncio.create_task(joined.acquire(claim(0), timeout=patience[0]))]
    await asyncio.wait_for(store.reached.wait(), 5.0)
    asked += [asyncio.create_task(joined.acquire(claim(n), timeout=patience[n])) for n in (1, 2, 3)]
    await asyncio.sleep(0)
    store.gate.set()
    await asyncio.sleep(0)
    for number in leaders:
        asked[number].cancel()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    return [*outcomes, await joined.acquire(claim(9), timeout=5.0)]


def test_a_leader_that_is_cancelled_before_sending_takes_nobody_down() -> None:
    """The caller that was to lead goes: its claim never reaches the store, and the others leave as one batch."""
    store = Recorder()
    outcomes = asyncio.run(_cancel_as_the_lead_is_passed_on(store, [2]))
    assert isinstance(outcomes.pop(2), asyncio.CancelledError)
    assert all(isinstance(outcome, Held) for outcome in outcomes)
    assert store.sizes == [1, 2, 1]
    assert not step(store.status("key-2", timeout=1.0)).held


def test_when_all_who_wait_are_cancelled_the_next_caller_is_served() -> None:
    """Nothing is asked for callers that have gone, and the store is free for whoever comes then."""
    store = Recorder()
    outcomes = asyncio.run(_cancel_as_the_lead_is_passed_on(store, [1, 2, 3]))
    assert [isinstance(outcome, Held) for outcome in outcomes] == [True, False, False, False, True]
    assert store.sizes == [1, 1]


def test_a_single_caller_goes_alone() -> None:
    """Blocking callers with nobody beside them use the store's own methods."""
    store = Recorder()
    store.suspends = False
    joined = Joined(store, BlockingClock())
    for number in range(3):
        assert isinstance(step(joined.acquire(claim(number), timeout=5.0)), Held)
    assert store.sizes == [1, 1, 1]
