"""Connections and their event loops: which loop runs, and how to close what has outlived its own. It never waits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

_READ = 65_536


def loop_finder() -> Callable[[], Any]:
    """What tells the loop of the caller; asyncio is loaded no sooner than by this."""
    import asyncio

    return asyncio.get_running_loop


def running_loop() -> Any:
    """The loop of the caller; asyncio is loaded no sooner."""
    return loop_finder()()


def read_little(transport: Any) -> None:
    """Let a transport of asyncio ask for 64 KiB a read. For the 256 that it would ask for the C library goes to the
    system and back each time: three calls and a fault of a page, for an answer of some hundred bytes."""
    with contextlib.suppress(AttributeError):  # of another loop, which reads in its own way
        transport.max_size = _READ


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
