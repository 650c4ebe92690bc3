"""The asyncio face on an event loop of virtual time, whose tasks are cancelled at any await."""

import asyncio
from random import Random

import pytest

from leased.testing.simulation.bugs import CLIENT_BUGS
from leased.testing.simulation.hunting import silent
from leased.testing.simulation.loop import SeededLoop, simulate_loop
from leased.testing.simulation.planting import Bug, planted

RUNS, PORTION = 400, 50


@pytest.mark.parametrize("first", range(0, RUNS, PORTION))
def test_cancelling_at_any_await_leaves_nothing(first: int) -> None:
    """L12: after cancelled blocks, acquires, releases and runs no key is held, no caller lined up, no task alive."""
    with silent():
        broken = {seed: found for seed in range(first, first + PORTION) if (found := simulate_loop(seed))}
    assert not broken, f"replay with leased.testing.simulation.loop.simulate_loop(seed): {broken}"


FOUND_HERE = ("a cancelled acquire hands nothing back", "clean-up not shielded", "whoever leaves stays in the line")


@pytest.mark.parametrize("bug", [bug for bug in CLIENT_BUGS if bug.name in FOUND_HERE], ids=lambda bug: bug.name)
def test_bugs_of_cancelling_are_found(bug: Bug) -> None:
    """What the runs above look for, they find when it is there."""
    with silent(), planted(bug):
        assert any(simulate_loop(seed) for seed in range(300))


def test_the_loop_lets_no_real_time_pass() -> None:
    """Sleeping jumps; waiting for nothing at all is an error, not a hang."""
    loop = SeededLoop(Random(1))
    try:
        loop.run_until_complete(asyncio.sleep(86_400.0))
        assert 86_400.0 <= loop.time() < 86_401.0
        with pytest.raises(RuntimeError, match="nothing will ever happen"):
            loop.run_until_complete(loop.create_future())
    finally:
        loop.close()


def test_what_is_ready_runs_in_an_order_of_the_seed() -> None:
    """One seed, one order; several seeds, several orders."""

    def order(seed: int) -> tuple[int, ...]:
        loop, ran = SeededLoop(Random(seed)), list[int]()
        try:
            for number in range(5):
                loop.call_soon(ran.append, number)
            loop.run_until_complete(asyncio.sleep(1.0))
        finally:
            loop.close()
        return tuple(ran)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(20)}) > 5
