"""Exclusive, expiring, fenced claims on named keys: across threads, processes and machines.

This is the blocking face; `leased.aio` has the same names for asyncio.
"""

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
