"""For tests: the contract of stores as checks, places to run them in, and time that can be moved. Re-exports only.

Names are fetched when they are asked for, so that the pytest plugin, which lives in here, costs nothing at start.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leased.testing.clocks import MovableClock
    from leased.testing.contract import CHECKS, Check, ContractBroken
    from leased.testing.runner import Report, Result, run_check, run_checks, verify
    from leased.testing.worlds import Async, Blocking, Driver, Face, NotRunHere, Place, World

__all__ = [
    "CHECKS",
    "Async",
    "Blocking",
    "Check",
    "ContractBroken",
    "Driver",
    "Face",
    "MovableClock",
    "NotRunHere",
    "Place",
    "Report",
    "Result",
    "World",
    "run_check",
    "run_checks",
    "verify",
]

_HOMES = {
    "clocks": ("MovableClock",),
    "contract": ("CHECKS", "Check", "ContractBroken"),
    "runner": ("Report", "Result", "run_check", "run_checks", "verify"),
    "worlds": ("Async", "Blocking", "Driver", "Face", "NotRunHere", "Place", "World"),
}


def __getattr__(name: str) -> object:
    """One of the names in `__all__`."""
    for home, names in _HOMES.items():
        if name in names:
            found: object = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
