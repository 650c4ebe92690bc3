"""What can go wrong in one run, drawn from its seed before it begins: pure numbers, no behaviour.

Swarm style: each fault is off in half of the runs, so that rare faults are also seen alone. A quarter of the runs are
storms, in which everything is on; a sixth are fair, with nothing wrong on the network: there the bounds of waiting are
sharp. In a tenth many callers crowd in one process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal

Bounds = Literal["calm", "edge", "outside"]
"""Clock rates: far inside the declared bound, at the bound of 1 %, or beyond it (then only fencing must hold)."""

RATES: dict[Bounds, float] = {"calm": 0.0015, "edge": 0.0099, "outside": 0.05}
"""How far a clock's rate is from 1 at the most."""

SMALL_STEP = 0.04
"""Seconds the store's clock may step in all inside the declared bound."""

KEYS = ("a", "b", "c")
"""The keys of a run; most runs use the first one or two."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The store goes down at `at` for `down` seconds and forgets everything since the last `lost` grants."""

    at: float
    down: float
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The store's clock is set forward or back at that instant."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of one run. Probabilities are per message, per step of a process or per wait; times are seconds."""

    length: float = 20.0
    processes: int = 3
    workers: tuple[int, ...] = (1, 2, 3)
    owned: float = 0.3
    keys: int = 1
    bounds: Bounds = "calm"
    slow: float = 0.0
    slowest: float = 4.0
    lost_request: float = 0.0
    lost_answer: float = 0.0
    duplicate: float = 0.0
    reset: float = 0.0
    cut: float = 0.0
    pause: float = 0.0
    crash: float = 0.0
    lost_notice: float = 0.0
    slow_watch: float = 0.0
    cancel: float = 0.0
    failed_member: float = 0.0
    refused: float = 0.0
    restarts: tuple[Restart, ...] = ()
    steps: tuple[Step, ...] = ()
    switched_on: tuple[str, ...] = field(default=(), compare=False)

    @property
    def inside(self) -> bool:
        """Whether clock rates keep to the declared bound."""
        return self.bounds != "outside"

    @property
    def loses_answers(self) -> bool:
        """Whether a client may never hear of something that the store keeps for it, such as a watch."""
        lossy = self.lost_answer or self.reset or self.cut or self.crash or self.slow or self.pause or self.duplicate
        return bool(lossy or self.restarts)


def draw_faults(chance: Random) -> Faults:
    """The faults of the run that this source of chance stands for."""
    weather = chance.random()
    storm, fair = weather < 0.25, weather > 0.83
    on = _HARMLESS if fair else tuple(name for name in _DRAWN if storm or chance.random() < 0.5)
    drawn = {name: chance.uniform(low, high) for name, (low, high) in _DRAWN.items() if name in on}
    length = chance.uniform(8.0, 25.0)
    crowd = chance.random() < (0.4 if fair else 0.1)
    restarts = _restarts(chance, length) if storm or (not fair and chance.random() < 0.25) else ()
    forgets = any(restart.lost for restart in restarts)  # then fencing rests on the clock, which must not be set back
    return Faults(
        length=length,
        processes=1 if crowd else chance.choice((1, 2, 2, 3, 3, 4)),
        workers=(4, 5, 6) if crowd else (1, 1, 2, 3),
        owned=chance.choice((0.0, 0.3, 0.6)),
        keys=chance.choice((1, 1, 1, 2, 3)),
        bounds=_bounds(chance.random()),
        slowest=chance.choice((0.3, 1.0, 4.0)),
        restarts=restarts,
        steps=_steps(chance, length) if not forgets and not fair and chance.random() < 0.4 else (),
        switched_on=on,
        **drawn,
    )


_DRAWN = {
    "slow": (0.0, 0.4),
    "lost_request": (0.0, 0.3),
    "lost_answer": (0.0, 0.3),
    "duplicate": (0.0, 0.5),
    "reset": (0.0, 0.1),
    "cut": (0.0, 0.1),
    "pause": (0.0, 0.012),
    "crash": (0.0, 0.002),
    "lost_notice": (0.0, 0.8),
    "slow_watch": (0.0, 1.0),
    "cancel": (0.25, 0.25),
    "failed_member": (0.0, 0.1),
    "refused": (0.0, 0.1),
}


_HARMLESS = ("slow_watch", "cancel")


def _bounds(draw: float) -> Bounds:
    if draw < 0.75:
        return "calm"
    return "edge" if draw < 0.9 else "outside"


def _restarts(chance: Random, length: float) -> tuple[Restart, ...]:
    times = sorted(chance.uniform(1.0, length) for _ in range(chance.randint(1, 3)))
    return tuple(Restart(at, chance.uniform(0.02, 1.5), chance.choice((0, 0, 0, 1, 2, 3))) for at in times)


def _steps(chance: Random, length: float) -> tuple[Step, ...]:
    if chance.random() < 0.7:
        return (Step(chance.uniform(1.0, length), chance.uniform(-SMALL_STEP, SMALL_STEP)),)
    return tuple(Step(chance.uniform(1.0, length), chance.uniform(-5.0, 5.0)) for _ in range(2))
