"""The heap of virtual time: order, clocks, signals, cancellation, pauses and death."""

from collections.abc import Callable
from random import Random

import pytest

from leased.timeline import Cancelled, Process, Stuck, Task, Timeline


def a_process(timeline: Timeline, *, rate: float = 1.0) -> Process:
    return timeline.process("p", rate=rate, zero=100.0)


def test_sleepers_wake_in_the_order_of_time() -> None:
    """Whoever is due earlier runs earlier, and no real time passes."""
    timeline, woken = Timeline(Random(1)), []
    process = a_process(timeline)

    async def sleeper(seconds: float) -> None:
        await process.clock.sleep(seconds)
        woken.append((seconds, round(timeline.now, 3)))

    for seconds in (3600.0, 0.5, 86400.0):
        process.start(sleeper(seconds))
    timeline.run()
    assert woken == [(0.5, 0.5), (3600.0, 3600.0), (86400.0, 86400.0)]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_due_at_one_instant_goes_in_an_order_drawn_from_the_seed(seed: int) -> None:
    """One seed gives one order; among a few seeds there are several."""

    def order(of: int) -> list[int]:
        timeline, ran = Timeline(Random(of)), list[int]()
        process = a_process(timeline)

        async def note(number: int) -> None:
            ran.append(number)

        for number in range(6):
            process.start(note(number))
        timeline.run()
        return ran

    assert order(seed) == order(seed)
    assert sorted(order(seed)) == list(range(6))
    assert len({tuple(order(other)) for other in range(20)}) > 10


def test_sleeping_for_nothing_lets_the_ready_go_first() -> None:
    """`sleep(0)` returns after everything that was ready at that instant."""
    for seed in range(10):
        timeline, ran = Timeline(Random(seed)), list[str]()
        process = a_process(timeline)

        async def polite(process: Process = process, ran: list[str] = ran) -> None:
            for name in "abc":
                process.start(note(name, ran))
            await process.clock.sleep(0)
            ran.append("polite")

        async def note(name: str, ran: list[str]) -> None:
            ran.append(name)

        process.start(polite())
        timeline.run()
        assert ran[-1] == "polite"


@pytest.mark.parametrize("rate", [0.5, 1.0, 1.01])
def test_a_sleep_is_never_shorter_than_asked_by_its_own_clock(rate: float) -> None:
    """A clock that runs fast or slow measures its own seconds."""
    timeline = Timeline(Random(1))
    process = a_process(timeline, rate=rate)

    async def sleeper() -> float:
        started = process.clock.now()
        await process.clock.sleep(10.0)
        return process.clock.now() - started

    task = process.start(sleeper())
    timeline.run()
    assert 10.0 <= task.result() < 10.001
    assert timeline.now == pytest.approx(10.0 / rate, abs=0.001)
    assert process.clock.real(process.clock.now()) == pytest.approx(timeline.now)


def test_a_clock_that_is_set_shows_the_new_time() -> None:
    """A step moves what a clock shows, not when sleepers wake."""
    timeline = Timeline(Random(1))
    process = a_process(timeline)

    async def sleeper() -> None:
        await process.clock.sleep(1.0)

    process.start(sleeper())
    process.clock.step(-40.0)
    timeline.run()
    assert process.clock.now() == pytest.approx(61.0)
    assert process.clock.wall() == pytest.approx(1.7e9 - 39.0)
    assert timeline.now == pytest.approx(1.0)


def test_a_signal_stays_set_until_a_wait_has_seen_it() -> None:
    """Set before, during, or never: true, true, and false after the time given."""
    timeline = Timeline(Random(1))
    process = a_process(timeline)
    signal = process.clock.signal()

    async def waiter() -> list[tuple[bool, float]]:
        seen = []
        for _ in range(3):
            seen.append((await signal.wait(5.0), round(timeline.now, 3)))
        return seen

    signal.set()
    task = process.start(waiter())
    timeline.at(2.0, signal.set)
    timeline.run()
    assert task.result() == [(True, 0.0), (True, 2.0), (False, 7.0)]


def test_a_signal_set_under_a_cancelled_wait_is_not_lost() -> None:
    """The next wait sees it."""
    timeline = Timeline(Random(1))
    process = a_process(timeline)
    signal = process.clock.signal()

    async def waiter() -> tuple[bool, float] | None:
        try:
            await signal.wait(5.0)
        except Cancelled:
            return await signal.wait(5.0), timeline.now
        return None

    task = process.start(waiter())

    def strike() -> None:
        signal.set()
        task.cancel()

    timeline.at(1.0, strike)
    timeline.run()
    assert task.result() == (True, 1.0)


@pytest.mark.parametrize("when", [0.0, 0.5, 9.0])
def test_cancelling_raises_where_the_task_waits(when: float) -> None:
    """Also before its first step, and not at all after its end; what came meanwhile is dropped."""
    timeline, steps = Timeline(Random(1)), list[str]()
    process = a_process(timeline)

    async def work() -> None:
        steps.append("began")
        try:
            await process.clock.sleep(1.0)
            steps.append("slept")
            await process.clock.sleep(1.0)
        finally:
            steps.append("cleaned up")

    task = process.start(work())
    if when:
        timeline.at(when, task.cancel)
    else:
        task.cancel()
    timeline.run()
    assert (
        steps
        == {
            0.0: [],
            0.5: ["began", "cleaned up"],
            9.0: ["began", "slept", "cleaned up"],
        }[when]
    )
    assert isinstance(task.error, Cancelled) is (when < 9.0)
    assert task.done
    assert not timeline.failures


def test_cancelling_wins_over_an_answer_that_has_just_come() -> None:
    """As on an event loop: who is cancelled between the answer and his turn does not see the answer."""
    for seed in range(10):
        timeline = Timeline(Random(seed))
        process = a_process(timeline)
        task = process.start(process.clock.wait(5.0))

        def strike(task: Task = task) -> None:
            task.wake("an answer")
            task.cancel()

        timeline.at(1.0, strike)
        timeline.run()
        assert isinstance(task.error, Cancelled)


def test_a_paused_process_stands_still_while_its_clock_goes_on() -> None:
    """What falls due in the pause runs at its end; other processes go on."""
    timeline = Timeline(Random(1))
    still, lively = timeline.process("still"), timeline.process("lively")
    woken: dict[str, float] = {}

    async def sleeper(process: Process) -> None:
        await process.clock.sleep(1.0)
        woken[process.name] = process.clock.now()

    still.start(sleeper(still))
    lively.start(sleeper(lively))
    timeline.at(0.5, lambda: still.pause(10.0))
    rang: list[float] = []
    timeline.at(2.0, lambda: rang.append(timeline.now), process=still)
    timeline.run()
    assert woken == {"lively": pytest.approx(1.0, abs=1e-3), "still": pytest.approx(10.5)}
    assert rang == [pytest.approx(10.5)]


def killed_at(moment: str) -> tuple[list[str], Timeline]:
    """Kill a process at some moment of a piece of work; what it still did."""
    timeline, steps = Timeline(Random(1)), list[str]()
    process = a_process(timeline)

    async def clean_up() -> None:
        steps.append("cleaned up")

    async def work() -> None:
        try:
            await process.clock.sleep(1.0)
            steps.append("slept")
        finally:
            process.clock.start(clean_up())
            await process.clock.sleep(0.0)
            steps.append("finished")

    process.start(work())
    actions: dict[str, Callable[[], None]] = {"waiting": lambda: timeline.at(0.5, process.kill)}
    actions.get(moment, lambda: None)()
    if moment == "at its step":
        process.before = lambda: process.kill() if timeline.now > 0.9 else None
    timeline.run()
    timeline.close()
    return steps, timeline


@pytest.mark.parametrize("moment", ["waiting", "at its step"])
def test_a_killed_process_does_nothing_more(moment: str) -> None:
    """Neither its `finally` blocks, as far as they wait, nor what they start; and nothing is left to be collected."""
    steps, timeline = killed_at(moment)
    assert steps == []
    assert not timeline.failures


def test_a_process_that_lives_does_all_of_it() -> None:
    """The same work comes to its end when nobody kills it."""
    assert killed_at("never")[0] == ["slept", "cleaned up", "finished"]


def test_an_error_ends_its_task_only() -> None:
    """It is listed, and raised again by whoever asks for the result."""
    timeline = Timeline(Random(1))
    process = a_process(timeline)

    async def fail() -> None:
        raise ValueError("mine")

    async def succeed() -> int:
        await process.clock.sleep(1.0)
        return 42

    failing, succeeding = process.start(fail()), process.start(succeed())
    timeline.run()
    assert timeline.failures == [failing]
    with pytest.raises(ValueError, match="mine"):
        failing.result()
    assert succeeding.result() == 42
    assert not process.tasks


def test_spinning_without_letting_time_pass_is_noticed() -> None:
    """A run has a bound on its steps."""
    timeline = Timeline(Random(1))
    process = a_process(timeline)

    async def spin() -> None:
        while True:
            await process.clock.sleep(0)

    process.start(spin())
    with pytest.raises(Stuck, match="1000 steps"):
        timeline.run(steps=1000)
    timeline.close()


def test_time_passes_up_to_the_given_instant() -> None:
    """A run up to an instant leaves what is due later for the next run."""
    timeline, ran = Timeline(Random(1)), list[float]()
    timeline.at(1.0, lambda: ran.append(timeline.now))
    timeline.at(3.0, lambda: ran.append(timeline.now))
    timeline.run(2.0)
    assert (ran, timeline.now) == ([1.0], 2.0)
    timeline.run()
    assert ran == [1.0, 3.0]


def test_a_stopped_timeline_goes_no_further() -> None:
    """The step that stops it is the last."""
    timeline, ran = Timeline(Random(1)), list[float]()
    process = a_process(timeline)

    def stop() -> None:
        timeline.stopped = True

    timeline.at(1.0, stop)
    timeline.at(2.0, lambda: ran.append(timeline.now))
    timeline.run(9.0)
    assert (ran, timeline.now) == ([], 1.0)
    assert not process.tasks


def test_a_woken_task_gets_the_first_value_only() -> None:
    """A second answer, or the end of the time, comes too late for that wait and does not disturb the next."""
    timeline = Timeline(Random(1))
    process = a_process(timeline)

    async def ask() -> list[object]:
        return [await process.clock.wait(5.0), await process.clock.wait(0.5), round(timeline.now, 3)]

    task: Task = process.start(ask())

    def answer() -> None:
        task.wake("first")
        task.wake("second")

    timeline.at(1.0, answer)
    timeline.run()
    assert task.result() == ["first", None, 1.5]
