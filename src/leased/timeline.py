"""The heap of virtual time: runs many sleeping coroutines on one axis, and never looks at a real clock or a thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from types import coroutine
from typing import Any, Protocol


class Chance(Protocol):
    """Where the order of what is due at one instant comes from, such as `random.Random`."""

    def random(self) -> float:
        """A number from 0 up to, but not including, 1."""
        ...


class Cancelled(BaseException):
    """Raised in a cancelled task where it waits, and again at every later `cancel`."""


class Stuck(RuntimeError):
    """More steps than allowed were taken: something spins without letting time pass, or a run is far too long."""


@coroutine
def _suspend() -> Generator[None, Any, Any]:
    return (yield)


class Task:
    """One coroutine of one process. `done` says that it ended, then `error` holds what it raised, if anything."""

    __slots__ = ("cancelling", "done", "error", "process", "ticket", "value", "work")

    def __init__(self, process: Process, work: Coroutine[Any, Any, Any]) -> None:
        self.process = process
        self.work = work
        self.ticket = 0
        self.cancelling = False
        self.done = False
        self.error: BaseException | None = None
        self.value: Any = None

    def cancel(self) -> None:
        """Raise `Cancelled` where the task waits, or waits next; an answer that arrived meanwhile is dropped."""
        if not self.done:
            self.cancelling = True
            self.wake(None)

    def wake(self, value: object) -> None:
        """End the current wait with this value, unless something else ended it before."""
        self.process.timeline.push(self, value, delay=0.0)

    def result(self) -> Any:
        """What the coroutine returned, or what it raised, raised again."""
        if self.error is not None:
            raise self.error
        return self.value


class Timeline:
    """Runs tasks in the order of virtual real time; what is due at one instant goes in an order drawn from `chance`.

    `failures` lists the tasks that ended with an exception other than `Cancelled`; `stopped` ends a run early.
    """

    def __init__(self, chance: Chance) -> None:
        self.now = 0.0
        self.steps = 0
        self.stopped = False
        self.failures: list[Task] = []
        self.current: Task | None = None
        self._chance = chance
        self._pushed = 0
        self._heap: list[tuple[float, float, int, Task | Process | None, int, Any]] = []
        self._processes: list[Process] = []

    def process(self, name: str, *, rate: float = 1.0, zero: float = 0.0, epoch: float = 1.7e9) -> Process:
        """A new process with a clock of its own: `rate` clock seconds a second, `zero` and `epoch` at the start."""
        process = Process(self, name, clock=VirtualClock(self, rate=rate, zero=zero, epoch=epoch))
        process.clock.process = process
        self._processes.append(process)
        return process

    def at(self, when: float, action: Callable[[], None], *, process: Process | None = None) -> None:
        """Call `action` at that instant; in a process: after its pauses, and not at all once it was killed."""
        self._pushed += 1
        heappush(self._heap, (max(when, self.now), self._chance.random(), self._pushed, process, -1, action))

    def push(self, task: Task, value: object, *, delay: float) -> None:
        """Resume a task with this value after `delay` seconds; a delay below 0 means now, after whoever is ready."""
        self._pushed += 1
        last = delay < 0.0
        when = self.now if last else self.now + delay
        turn = 1.0 if last else self._chance.random()
        heappush(self._heap, (when, turn, self._pushed, task, task.ticket, value))

    def run(self, until: float = math.inf, *, steps: int = 1_000_000) -> None:
        """Let time pass until nothing is due up to that instant; raises `Stuck` after that many steps."""
        heap = self._heap
        limit = self.steps + steps
        while heap and heap[0][0] <= until and not self.stopped:
            self.now, _, _, target, ticket, value = heappop(heap)
            self.steps += 1
            if self.steps > limit:
                raise Stuck(f"{steps} steps were not enough: something spins, or the run is too long")
            if type(target) is Task:
                if not target.done and ticket == target.ticket and self._ready(target.process, target, ticket, value):
                    self._step(target, value)
            elif type(target) is not Process or self._ready(target, target, ticket, value):
                value()
        if not self.stopped and not math.isinf(until):
            self.now = max(self.now, until)

    def close(self) -> None:
        """End of time: unwind whatever waits; every further wait ends with `GeneratorExit`, so no work is done."""
        self._heap.clear()
        for process in self._processes:
            process.killed = True
        for process in self._processes:
            for task in process.tasks:
                task.done = True
                task.work.close()
            process.tasks.clear()

    def _ready(self, process: Process, target: Task | Process, ticket: int, value: Any) -> bool:
        """Whether the process can run now; what is due during a pause is put off to its end."""
        if process.killed:
            return False
        if process.before is not None and ticket >= 0:
            process.before()
        if process.paused_until > self.now:
            self._pushed += 1
            heappush(self._heap, (process.paused_until, self._chance.random(), self._pushed, target, ticket, value))
            return False
        return not process.killed

    def _step(self, task: Task, value: object) -> None:
        """Run a task up to its next wait or its end."""
        task.ticket += 1
        self.current = task
        try:
            if task.cancelling:
                task.cancelling = False
                task.work.throw(Cancelled())
            else:
                task.work.send(value)
        except StopIteration as end:
            task.value = end.value
            self._ended(task)
        except Cancelled as error:
            task.error = error
            self._ended(task)
        except Exception as error:  # noqa: BLE001 - whoever made the task asks for its result
            task.error = error
            self.failures.append(task)
            self._ended(task)
        self.current = None
        if task.process.after is not None:
            task.process.after()

    def _ended(self, task: Task) -> None:
        task.done = True
        task.process.tasks.pop(task, None)


class Process:
    """What runs, pauses and dies together, and shares a clock.

    `before` is called ahead of each step (it may pause or kill), `after` behind it.
    """

    __slots__ = ("after", "before", "clock", "killed", "name", "paused_until", "tasks", "timeline")

    def __init__(self, timeline: Timeline, name: str, *, clock: VirtualClock) -> None:
        self.timeline = timeline
        self.name = name
        self.clock = clock
        self.paused_until = 0.0
        self.killed = False
        self.tasks: dict[Task, None] = {}
        self.before: Callable[[], None] | None = None
        self.after: Callable[[], None] | None = None

    def start(self, work: Coroutine[Any, Any, Any]) -> Task:
        """Run a coroutine in this process, from the next step on."""
        task = Task(self, work)
        if self.killed:
            work.close()
            task.done = True
        else:
            self.tasks[task] = None
            self.timeline.push(task, None, delay=0.0)
        return task

    def pause(self, seconds: float) -> None:
        """Stand still for so many seconds while the clock goes on; what falls due meanwhile runs afterwards."""
        self.paused_until = max(self.paused_until, self.timeline.now + seconds)

    def kill(self) -> None:
        """End at once and for ever: nothing of it runs any more, neither `finally` nor what it had started."""
        self.killed = True

    async def wait(self, seconds: float) -> Any:
        """Wait for `Task.wake` of the running task, at most so many real seconds; the value, or `None`."""
        timeline = self.timeline
        task = timeline.current
        if self.killed or task is None:
            raise GeneratorExit
        if not math.isinf(seconds):
            timeline.push(task, None, delay=seconds)
        return await _suspend()


class VirtualClock:
    """A clock of its own rate, zero and epoch; the time of a process or of a store."""

    __slots__ = ("epoch", "process", "rate", "timeline", "zero")

    def __init__(self, timeline: Timeline, *, rate: float = 1.0, zero: float = 0.0, epoch: float = 1.7e9) -> None:
        self.timeline = timeline
        self.rate = rate
        self.zero = zero
        self.epoch = epoch
        self.process: Process | None = None

    def now(self) -> float:
        """Seconds of this clock from its zero."""
        return self.zero + self.timeline.now * self.rate

    def wall(self) -> float:
        """Seconds of this clock from its epoch."""
        return self.epoch + self.timeline.now * self.rate

    def step(self, seconds: float) -> None:
        """Set the clock forward, or back, by so much."""
        self.zero += seconds
        self.epoch += seconds

    def real(self, instant: float) -> float:
        """The virtual real time at which this clock shows `instant`."""
        return (instant - self.zero) / self.rate

    async def sleep(self, seconds: float) -> None:
        """Let so many seconds of this clock pass, never fewer; 0 lets whoever is ready go first."""
        await self._home().wait(self._stretch(seconds))

    def signal(self) -> VirtualSignal:
        """A new signal."""
        return VirtualSignal(self)

    def start(self, work: Coroutine[Any, Any, None]) -> Task:
        """Run work in this process beside its caller, to its end."""
        return self._home().start(work)

    async def wait(self, seconds: float) -> Any:
        """Wait for a wake of the running task, at most so many seconds of this clock; the value, or `None`."""
        return await self._home().wait(self._stretch(seconds))

    def _home(self) -> Process:
        if self.process is None:
            raise RuntimeError("this clock belongs to no process: nothing can wait on it")
        return self.process

    def _stretch(self, seconds: float) -> float:
        """Real seconds for seconds of this clock, with a hair more so that rounding never ends a sleep early."""
        return seconds / self.rate + 1e-7 if seconds > 0.0 else -1.0


class VirtualSignal:
    """Wakes one waiter of its process; it stays set until a wait has seen it."""

    __slots__ = ("_clock", "_set", "_waiter")

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._set = False
        self._waiter: Task | None = None

    def set(self) -> None:
        """Wake the waiter, now or when it waits next."""
        self._set = True
        if self._waiter is not None:
            self._waiter.wake(None)

    async def wait(self, seconds: float) -> bool:
        """Wait for `set` at most so long; true if it was set, and then it no longer is."""
        if not self._set:
            self._waiter = self._clock.timeline.current
            try:
                await self._clock.wait(seconds)
            finally:
                self._waiter = None
        seen, self._set = self._set, False
        return seen
