"""For tests: the contract of stores as checks, places to run them in, and time that can be moved. Re-exports only.

Names are fetched when they are asked for, so that the pytest plugin, which lives in here, costs nothing at start.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leased.testing.contract import CHECKS, Check, ContractBroken
    from leased.testing.runner import Report, Result, run_check, run_checks, verify
    from leased.testing.worlds import Async, Blocking, Driver, Face, MovableClock, NotRunHere, Place, World

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

_CONTRACT = ("CHECKS", "Check", "ContractBroken")
_RUNNER = ("Report", "Result", "run_check", "run_checks", "verify")


def __getattr__(name: str) -> object:
    """One of the names in `__all__`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "contract" if name in _CONTRACT else "runner" if name in _RUNNER else "worlds"
    found: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found
