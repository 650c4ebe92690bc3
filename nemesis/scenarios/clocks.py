"""Servers whose clock is set by five seconds there and back, or runs too fast, a little or by far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from random import Random

from nemesis.checks.liveness import LONGEST_TTL
from nemesis.history import Recorder
from nemesis.stage import Scenario, Stage, broken
from tests.servers import mariadb, postgres, valkey
from tests.servers.moving_clock import MovingClock
from tests.servers.process import Server

STEP = 5.0
LATE = 0.5
"""Seconds until a server shows a clock that was set to every question."""


def _on(start: Callable[[MovingClock], Server]) -> Callable[[], AbstractContextManager[Stage]]:
    @contextmanager
    def open_stage() -> Iterator[Stage]:
        clock = MovingClock()
        with start(clock) as server:
            faults = (_step, _step, partial(_run, rate=1.005), partial(_run, rate=1.3))
            yield Stage(server.url, [partial(fault, clock) for fault in faults])

    return open_stage


def _step(clock: MovingClock, recorder: Recorder, chance: Random) -> None:
    """The clock is set, and later set right; leases that were granted by the later time last so much longer then."""
    step = chance.choice((STEP, -STEP))
    with broken(recorder, f"clock set by {step:+.0f} s", hurts=False, step=step):
        clock.step(step)
        time.sleep(chance.uniform(0.5, 2.0) + (STEP + LONGEST_TTL if step < 0 else 0.0))
        clock.step(-step)
        time.sleep(LATE + LONGEST_TTL + (STEP if step > 0 else 0.0))


def _run(clock: MovingClock, recorder: Recorder, chance: Random, *, rate: float) -> None:
    """The clock runs too fast for a while, and keeps what it gained."""
    with broken(recorder, f"clock at {rate} times its rate", hurts=False, rate=rate):
        clock.run_at(rate)
        time.sleep(chance.uniform(2.0, 5.0))
        clock.run_at(1.0)
        time.sleep(LATE)


_GATES = {"faults": 4}
_ABOUT = "whose clock is set by 5 s and back, or runs 0.5 % or 30 % too fast"

SCENARIOS = (
    Scenario(
        "redis-clock",
        f"one Valkey {_ABOUT}",
        _on(lambda clock: valkey.start(settings=valkey.append_only("always"), clock=clock)),
        _GATES,
    ),
    Scenario(
        "postgres-clock",
        f"one PostgreSQL {_ABOUT}",
        _on(lambda clock: postgres.start(settings=postgres.DURABLE, clock=clock)),
        _GATES,
    ),
    Scenario(
        "mysql-clock",
        f"one MariaDB {_ABOUT}",
        _on(lambda clock: mariadb.start(settings=mariadb.DURABLE, clock=clock)),
        _GATES,
    ),
)
