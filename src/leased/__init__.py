"""Exclusive, expiring, fenced claims on named keys: across threads, processes and machines.

This is the blocking face; `leased.aio` has the same names for asyncio. Re-exports only, each fetched when it is first
asked for: a program pays at its start for what it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leased import aio as aio
    from leased.context import current, current_fencing_token, owner_scope
    from leased.default import get_default, lock, set_default, using_default
    from leased.errors import (
        AccessDenied,
        InvalidRequest,
        LeaseDeadlineExceeded,
        LeasedError,
        LockDeadlock,
        LockLost,
        LockNotAcquired,
        LockNotHeld,
        LockTimeout,
        RateLimited,
        RequestConflict,
        StaleFencingToken,
        StoreNotUsable,
        StoreUnavailable,
        Unauthenticated,
    )
    from leased.model import Assurance, Released, Renewed, Status
    from leased.observe import Event, Observer
    from leased.policy import FOREVER
    from leased.scope import RunResult
    from leased.sync import Locks, connect
    from leased.sync_handle import Handle, Scope
    from leased.sync_lock import Lock

__version__ = "0.1.0"

__all__ = [
    "FOREVER",
    "AccessDenied",
    "Assurance",
    "Event",
    "Handle",
    "InvalidRequest",
    "LeaseDeadlineExceeded",
    "LeasedError",
    "Lock",
    "LockDeadlock",
    "LockLost",
    "LockNotAcquired",
    "LockNotHeld",
    "LockTimeout",
    "Locks",
    "Observer",
    "RateLimited",
    "Released",
    "Renewed",
    "RequestConflict",
    "RunResult",
    "Scope",
    "StaleFencingToken",
    "Status",
    "StoreNotUsable",
    "StoreUnavailable",
    "Unauthenticated",
    "connect",
    "current",
    "current_fencing_token",
    "get_default",
    "lock",
    "owner_scope",
    "set_default",
    "using_default",
]

_HOMES = {
    "context": (
        "current",
        "current_fencing_token",
        "owner_scope",
    ),
    "default": (
        "get_default",
        "lock",
        "set_default",
        "using_default",
    ),
    "errors": (
        "AccessDenied",
        "InvalidRequest",
        "LeaseDeadlineExceeded",
        "LeasedError",
        "LockDeadlock",
        "LockLost",
        "LockNotAcquired",
        "LockNotHeld",
        "LockTimeout",
        "RateLimited",
        "RequestConflict",
        "StaleFencingToken",
        "StoreNotUsable",
        "StoreUnavailable",
        "Unauthenticated",
    ),
    "model": (
        "Assurance",
        "Released",
        "Renewed",
        "Status",
    ),
    "observe": (
        "Event",
        "Observer",
    ),
    "policy": ("FOREVER",),
    "scope": ("RunResult",),
    "sync": (
        "Locks",
        "connect",
    ),
    "sync_handle": (
        "Handle",
        "Scope",
    ),
    "sync_lock": ("Lock",),
}


def __getattr__(name: str) -> object:
    """One of the names in `__all__`, or the asyncio face."""
    if name == "aio":
        return import_module("leased.aio")
    for home, names in _HOMES.items():
        if name in names:
            found: object = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is, fetched or not."""
    return sorted({*globals(), *__all__})
