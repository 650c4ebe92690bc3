"""Waiting in a test for what can be observed."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], *, what: str = "it", seconds: float = 20.0) -> None:
    """Return once the condition is true, which is asked again and again; fail after so many seconds."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, f"waited {seconds:g} s in vain for this: {what}"
        time.sleep(0.002)
