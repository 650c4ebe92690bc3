"""A file, used by all workers; nothing but workers is broken."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nemesis.stage import Scenario, Stage


@contextmanager
def _file() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory() as directory:
        yield Stage(f"sqlite:{Path(directory) / 'locks.db'}")


SCENARIOS = (Scenario("sqlite-workers", "a file, while workers are stopped and killed", _file),)
