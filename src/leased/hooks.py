"""Calling hooks of a lease where they can harm nothing. It knows nothing of leases."""

from __future__ import annotations

import threading

from leased.hold import Hook
from leased.observe import log


def guarded(hook: Hook, *, key: str) -> Hook:
    """The hook, but what it raises is logged with the key and goes no further."""

    def call() -> None:
        try:
            hook()
        except Exception:  # noqa: BLE001 (somebody else's code: its failure is logged and harms no lease)
            log.exception("a hook of the lease on %r failed", key)

    return call


def run_hook(hook: Hook) -> None:
    """Call a guarded hook in a thread of its own, where it may dawdle."""
    try:
        threading.Thread(target=hook, name="leased-hook", daemon=True).start()
    except RuntimeError as error:  # whoever calls it has leases to keep, and nobody to tell
        log.error("a hook of a lease is not called: %s", error)
