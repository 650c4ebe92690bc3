"""Connections and their event loops: which loop runs, and how to close what has outlived its own. It never waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def loop_finder() -> Callable[[], Any]:
    """What tells the loop of the caller; asyncio is loaded no sooner than by this."""
    import asyncio

    return asyncio.get_running_loop


def running_loop() -> Any:
    """The loop of the caller; asyncio is loaded no sooner."""
    return loop_finder()()


def close_without_loop(transport: Any) -> None:
    """Close a transport whose loop has ended: asyncio has no way to do that, and warns of what is open."""
    within_tls = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    for part in filter(None, (transport, within_tls)):
        if getattr(part, "_sock", None) is not None:
            part._sock.close()
            part._sock = None
        for flag in ("_closing", "_closed"):
            if hasattr(part, flag):
                setattr(part, flag, True)
