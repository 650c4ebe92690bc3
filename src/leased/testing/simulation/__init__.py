"""Deterministic simulation: the real engine over a faulty network in virtual time, and checkers of every promise.

`simulate(seed)` runs one seed; equal seeds give equal histories. `python -m leased.testing.simulation` runs many.
"""

from leased.testing.simulation.faults import Faults, draw_faults
from leased.testing.simulation.history import History, Violation
from leased.testing.simulation.world import Run, simulate

__all__ = ["Faults", "History", "Run", "Violation", "draw_faults", "simulate"]
