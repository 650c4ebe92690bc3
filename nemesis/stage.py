"""What a scenario is made of: servers, what can be broken of them, and how a break is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from random import Random

import redis

from nemesis.history import Recorder


class StageFailed(Exception):
    """Servers did not do what a scenario needs; that says nothing about the library."""


Fault = Callable[[Recorder, Random], None]
"""Breaks something, for a while that it draws, records that with `broken`, and returns when all is well again."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Running servers: the URL for workers, and what may be broken meanwhile.

    Servers that replace each other may do so although nobody broke them, on a machine that is busy: `undisturbed` says
    whether they are as the last fault left them, and `settle` waits until they are well and takes that as it is.
    """

    url: str
    faults: Sequence[Fault] = ()
    undisturbed: Callable[[], bool] = lambda: True
    settle: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A stage to set up, and what a minute on it must have seen at the least beyond what every scenario must."""

    name: str
    about: str
    open: Callable[[], AbstractContextManager[Stage]]
    gates: Mapping[str, int] = field(default_factory=dict)


class Break:
    """A fault while it lasts. Whether it `loses` or `hurts` can turn out late: servers may do more than was ordered."""

    def __init__(self, recorder: Recorder, op: str, *, loses: bool, hurts: bool) -> None:
        """A fault that this recorder calls `op`."""
        self._recorder = recorder
        self._op = op
        self.loses = loses
        self.hurts = hurts

    def gone(self) -> None:
        """From now on nobody can reach the data any more that this fault may have lost."""
        self._recorder.record("gone", op=self._op)

    def got_out_of_hand(self) -> None:
        """A server was replaced by another one that nobody had ordered, until now."""
        self.loses = self.hurts = True
        self.gone()


@contextmanager
def broken(
    recorder: Recorder,
    name: str,
    *,
    loses: bool = False,
    hurts: bool = True,
    at: float | None = None,
    step: float = 0.0,
    rate: float = 1.0,
) -> Iterator[Break]:
    """Record a fault around the block. With `loses` grants may be forgotten; say when the old data is `gone`.

    `step` (seconds) and `rate` say what is done to the store's clock meanwhile.

    One that does not hurt is a thing of every day, which no caller may notice by an error. It began now, unless it is
    said when.
    """
    op = recorder.new_op()
    fault = Break(recorder, op, loses=loses, hurts=hurts)
    recorder.record("fault", at=at, op=op, name=name, loses=loses, hurts=hurts, step=step, rate=rate)
    yield fault
    recorder.record("healed", op=op, loses=fault.loses, hurts=fault.hurts)


def wait_until(what: str, met: Callable[[], bool], *, within: float = 30.0) -> None:
    """Return once this is met; `StageFailed` says what was not. Servers that do not answer have not met it."""
    give_up_at = time.monotonic() + within
    while True:
        try:
            if met():
                return
        except (OSError, redis.RedisError):
            pass
        if time.monotonic() > give_up_at:
            raise StageFailed(f"{what} was waited for in vain for {within} s")
        time.sleep(0.01)
