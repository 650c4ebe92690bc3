"""The contract of stores as checks: plain coroutines with one parameter, a `World`; `CHECKS` has them all."""

from leased.testing.contract import batches, crowds, endings, grants, growth, keys, renewals, seeing, terms, watching
from leased.testing.contract.client import Check, ContractBroken

__all__ = ["CHECKS", "Check", "ContractBroken"]

CHECKS: tuple[Check, ...] = tuple(
    check
    for module in (grants, renewals, endings, terms, seeing, keys, batches, watching, growth, crowds)
    for name, check in vars(module).items()
    if name.startswith("check_")
)
