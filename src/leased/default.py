"""The locks that `leased.lock(...)` uses: from `LEASED_URL`, else in memory. Nothing is made at import."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from leased.checks import Duration, check_key
from leased.observe import log
from leased.policy import CLOCK_MARGIN, DEFAULT_MAX_HOLD, DEFAULT_TTL
from leased.recipe import make_recipe
from leased.sync import Locks, connect
from leased.sync_lock import Lock

_mutex = threading.Lock()
_default: Locks | None = None
_said = False


def _forget_parents() -> None:
    global _mutex
    _mutex = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)


def default_url() -> str:
    """`LEASED_URL`, or the memory store, which says once in the log that it excludes this process only."""
    global _said
    url = os.environ.get("LEASED_URL", "")
    if url:
        return url
    if not _said:
        _said = True
        log.warning("LEASED_URL is not set: leased.lock() uses the memory store, which excludes this process only")
    return "memory:"


def get_default() -> Locks:
    """The locks that `leased.lock(...)` uses, made on first use from `LEASED_URL`, else in memory."""
    global _default
    with _mutex:
        if _default is None:
            _default = connect(default_url())
        return _default


def set_default(locks: Locks | None) -> None:
    """Let `leased.lock(...)` use these locks from now on, also through earlier recipes; `None`: as at the start."""
    global _default
    with _mutex:
        _default = locks


@contextmanager
def using_default(locks: Locks) -> Iterator[Locks]:
    """Let `leased.lock(...)` use these locks inside the block, for instance for one test."""
    before = _default
    set_default(locks)
    try:
        yield locks
    finally:
        set_default(before)


def lock(
    key: str,
    *,
    ttl: Duration = DEFAULT_TTL,
    wait: Duration = 0,
    owner: str | None = None,
    renew: bool | None = None,
    enforce: bool = False,
    if_lost: Literal["raise", "return"] = "raise",
    max_hold: Duration = DEFAULT_MAX_HOLD,
    hold_at_least: Duration = 0,
    lock_delay: Duration = 0,
    metadata: Mapping[str, Any] | None = None,
    retry_delay: Duration | None = None,
    name: str | None = None,
) -> Lock:
    """A recipe as `Locks.lock` makes it, on the process default: `LEASED_URL`, else the memory store."""
    check_key(key)
    recipe = make_recipe(
        margin=CLOCK_MARGIN,
        ttl=ttl,
        wait=wait,
        owner=owner,
        renew=renew,
        enforce=enforce,
        if_lost=if_lost,
        max_hold=max_hold,
        hold_at_least=hold_at_least,
        lock_delay=lock_delay,
        metadata=metadata,
        retry_delay=retry_delay,
        name=name,
    )
    return Lock(get_default, recipe, key=key)
