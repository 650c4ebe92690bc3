"""What a scenario is made of: servers, what can be broken of them, and how a break is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from random import Random

from nemesis.history import Recorder

Fault = Callable[[Recorder, Random], None]
"""Breaks something, for a while that it draws, records that with `broken`, and returns when all is well again."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Running servers: the URL for workers, and what may be broken meanwhile."""

    url: str
    faults: Sequence[Fault] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A stage to set up, and what a minute on it must have seen at the least beyond what every scenario must."""

    name: str
    about: str
    open: Callable[[], AbstractContextManager[Stage]]
    gates: Mapping[str, int] = field(default_factory=dict)


@contextmanager
def broken(recorder: Recorder, name: str, *, loses: bool = False) -> Iterator[Callable[[], object]]:
    """Record a fault around the block. With `loses` grants may be forgotten: call what this gives at the moment from
    which on nobody can reach the old data any more."""
    op = recorder.new_op()
    recorder.record("fault", op=op, name=name, loses=loses)
    yield lambda: recorder.record("gone", op=op)
    recorder.record("healed", op=op)
