"""A resource that checks fencing tokens: a file per key that accepts a write unless it has seen a higher token."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Write:
    """What became of a write. `serial` counts the writes of the key, refused ones too; `seen` is the highest before."""

    serial: int
    seen: int
    accepted: bool


def write(directory: Path, key: str, *, fencing_token: int) -> Write:
    """Write under a fencing token: the check and the write are one step, whoever else writes."""
    file = os.open(directory / f"guard-{key}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        serial, seen = (int(word) for word in (os.pread(file, 100, 0) or b"0 0").split())
        accepted = fencing_token >= seen
        os.pwrite(file, b"%-30d %-30d" % (serial + 1, max(seen, fencing_token)), 0)
        return Write(serial + 1, seen, accepted)
    finally:
        os.close(file)
