"""For tests: the contract of stores as checks, places to run them in, and time that can be moved. Re-exports only."""

from leased.testing.contract import CHECKS, Check, ContractBroken
from leased.testing.runner import Report, Result, run_check, run_checks
from leased.testing.worlds import Async, Blocking, Face, MovableClock, NotRunHere, Place, World

__all__ = [
    "CHECKS",
    "Async",
    "Blocking",
    "Check",
    "ContractBroken",
    "Face",
    "MovableClock",
    "NotRunHere",
    "Place",
    "Report",
    "Result",
    "World",
    "run_check",
    "run_checks",
]
