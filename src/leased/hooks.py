"""Calling hooks of a lease where they can harm nothing. It knows nothing of leases."""

from __future__ import annotations

import threading

from leased.hold import Hook
from leased.observe import log


def run_hook(hook: Hook) -> None:
    """Call a hook in a thread of its own, where it may dawdle or raise without harm."""

    def call() -> None:
        try:
            hook()
        except Exception:  # noqa: BLE001 (somebody else's code: its failure is logged and harms no lease)
            log.exception("a hook of a lease failed")

    threading.Thread(target=call, name="leased-hook", daemon=True).start()
