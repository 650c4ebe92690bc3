"""How tasks wait for a signal: exactly as long as told, and without a timer of the loop for every patient one."""

import asyncio
from typing import Any

import pytest

from leased.aio_clock import _TICK, LoopClock, _timers_of


class ManualLoop(asyncio.SelectorEventLoop):
    """A loop whose time the test moves; it jumps to the next timer whenever nothing else is to be done."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 1000.0
        self.timers = 0
        select = self._selector.select  # type: ignore[attr-defined]  # what BaseSelectorEventLoop waits with

        def jump(timeout: float | None) -> Any:
            if timeout:
                self.at += timeout
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.at

    def call_at(self, when: float, callback: Any, *args: Any, **context: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        self.timers += 1
        return super().call_at(when, callback, *args, **context)


def run(work: Any) -> Any:
    with asyncio.Runner(loop_factory=ManualLoop) as runner:
        return runner.run(work)


def loop() -> ManualLoop:
    found = asyncio.get_running_loop()
    assert isinstance(found, ManualLoop)
    return found


@pytest.mark.parametrize("seconds", [0.001, 0.3, 2 * _TICK, 0.51, 0.74, 1.0, 5.003, 3600.0])
def test_a_wait_ends_exactly_at_its_time(seconds: float) -> None:
    """W2: whether near or far, a waiter that nobody wakes is back at its time, not before and not a tick later."""

    async def scene() -> tuple[bool, float]:
        began = loop().time()
        return await LoopClock().signal().wait(seconds), loop().time() - began

    was_set, took = run(scene())
    assert not was_set
    assert took == pytest.approx(seconds, abs=1e-6)


def test_a_thousand_patient_waiters_need_no_thousand_timers() -> None:
    """Waits that are over long before their time cost the loop no timers of their own."""

    async def scene() -> None:
        signals = [LoopClock().signal() for _ in range(1000)]
        before = loop().timers
        waiting = [asyncio.ensure_future(signal.wait(5.0)) for signal in signals]
        await asyncio.sleep(0)
        for signal in signals:
            signal.set()
        assert all(await asyncio.gather(*waiting))
        assert loop().timers - before <= 2
        timers = _timers_of(loop())
        assert not timers._far
        assert not timers._exact

    run(scene())


def test_waits_of_all_lengths_end_in_their_order() -> None:
    """A crowd of waits from a millisecond to minutes: each ends at its own time."""

    async def one(seconds: float, ended: list[tuple[float, float]]) -> None:
        began = loop().time()
        await LoopClock().signal().wait(seconds)
        ended.append((seconds, loop().time() - began))

    async def scene() -> list[tuple[float, float]]:
        ended: list[tuple[float, float]] = []
        await asyncio.gather(*(one(0.001 * 1.37**number, ended) for number in range(40)))
        return ended

    ended = run(scene())
    assert ended == sorted(ended)
    assert all(took == pytest.approx(seconds, abs=1e-5) for seconds, took in ended)


def test_a_cancelled_wait_leaves_no_timer() -> None:
    """Neither a near nor a far wait that was cancelled keeps anything."""

    async def scene() -> None:
        for seconds in (0.1, 100.0):
            waiting = asyncio.ensure_future(LoopClock().signal().wait(seconds))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        timers = _timers_of(loop())
        assert not timers._far
        assert not timers._exact

    run(scene())
