"""Work of a library that blocks for as long as it likes, done aside, so that no caller waits beyond his time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from leased.errors import StoreUnavailable
from leased.store import Clock, Signal, again
from leased.stores._forks import ForkMutex, follow_forks

_T = TypeVar("_T")


class _Job(Generic[_T]):
    """One call of the work: what came of it, and who is to be told."""

    def __init__(self) -> None:
        self.results: list[_T] = []
        self.problem: BaseException | None = None
        self.waiting: list[Signal] = []
        self.over = False


class Aside(Generic[_T]):
    """Does one piece of work in a thread that keeps no program running; who asks meanwhile gets the same answer."""

    def __init__(self, clock: Clock, *, what: str) -> None:
        """`clock` is that of the callers, `what` says what they are without while it lasts."""
        self._clock = clock
        self._what = what
        self._mutex = ForkMutex()
        self._job: _Job[_T] | None = None
        follow_forks(self)

    async def do(self, work: Callable[[], _T], *, seconds: float) -> _T:
        """What `work` returns or raises. After so many seconds it is `StoreUnavailable`: nothing was asked by then."""
        signal = self._clock.signal()
        with self._mutex.lock:
            job = self._job
            if job is None:
                job = self._job = _Job()
                threading.Thread(target=self._run, args=(job, work), name="leased-aside", daemon=True).start()
            job.waiting.append(signal)
        give_up_at = self._clock.now() + seconds
        while not job.over and (left := give_up_at - self._clock.now()) > 0:
            await signal.wait(left)
        if job.problem is not None:
            raise again(job.problem) if isinstance(job.problem, StoreUnavailable) else job.problem
        if not job.over:
            raise StoreUnavailable(f"there were no {self._what} within {seconds:.3g} s", applied=False)
        return job.results[0]

    def before_fork(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.before_fork()

    def after_fork_in_parent(self) -> None:
        """See `leased.stores._forks`."""
        self._mutex.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """See `leased.stores._forks`: the thread does not exist there."""
        self._mutex.after_fork_in_child()
        self._job = None

    def _run(self, job: _Job[_T], work: Callable[[], _T]) -> None:
        try:
            job.results.append(work())
        except BaseException as error:  # noqa: BLE001 (raised where it is awaited)
            job.problem = error
        with self._mutex.lock:
            job.over = True
            self._job = None
            waiting = tuple(job.waiting)
        for signal in waiting:
            signal.set()
