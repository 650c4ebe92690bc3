"""Ports of this machine that stay ours for as long as we hold them; it opens no connection."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

HOST = "127.0.0.1"
# Below the range that Linux and macOS take for outgoing connections, so that none of those can be in the way when a
# server comes back to its port.
FIRST, LAST = 15_000, 31_999
RESERVATIONS = Path(tempfile.gettempdir()) / f"leased-test-ports-{os.getuid()}"


class Port:
    """One free port, reserved among all that run these tests on this machine until it is released or we end."""

    def __init__(self) -> None:
        """Reserve a port on which nothing listens."""
        self.number, self._reservation = _reserve()

    def release(self) -> None:
        """Let others have it."""
        self._reservation.close()


def _reserve() -> tuple[int, IO[bytes]]:
    RESERVATIONS.mkdir(mode=0o700, exist_ok=True)
    for number in random.SystemRandom().sample(range(FIRST, LAST + 1), 1000):
        reservation = (RESERVATIONS / str(number)).open("ab")
        try:
            fcntl.flock(reservation, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((HOST, number))
        except OSError:
            reservation.close()
        else:
            return number, reservation
    raise OSError(f"no port of {HOST} between {FIRST} and {LAST} is free")
