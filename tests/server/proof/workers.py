"""Programs that use a lock service from processes of their own, and tell by their end whether it kept its word."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60.0

# Counts in a file under the lock, which nothing but the lock protects; ends with an error if somebody else is inside.
# A lease that a killed replica granted with nobody told runs to its ttl: half of what tests wait for further counting.
_COUNTING = """
import os, pathlib, sys, leased
url, folder, forgives = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3] == "forgives"
done = 0
with leased.connect(url) as locks:
    while not (folder / "stop").exists():
        try:
            with locks.lock("counter", wait=60, ttl=10) as hold:
                os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
                count, last = map(int, (folder / "count").read_text().split())
                assert hold.fencing_token > last, (hold.fencing_token, last)
                (folder / "count").write_text(f"{count + 1} {hold.fencing_token}")
                os.unlink(folder / "inside")
                done += 1
        except leased.LockLost:
            if not forgives:
                raise
print(done)
"""
# Holds a key until its input ends, and ends with an error if the lease was lost meanwhile. It waits longer than a test
# takes, however many rounds it plays and however busy the machine is.
_KEEPING = """
import sys, leased
with leased.connect(sys.argv[1]) as locks, locks.lock("kept", wait=3600, ttl=6) as hold:
    print("holds", flush=True)
    sys.stdin.read()
"""


class Worker:
    """One such process."""

    def __init__(self, program: str, *arguments: str) -> None:
        """Start it."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"]},
            text=True,
        )

    def line(self) -> str:
        """The next line it writes; empty if it ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        """End its input, and give what it had to say; it must have ended well."""
        said, complained = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, complained
        return said.strip()

    def close(self) -> None:
        """End it, if it runs."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def counting(url: str, folder: Path, *, number: int, forgives: bool = False) -> Iterator[list[Worker]]:
    """Workers that count while the block runs; at its end none may have failed, and every count must be there.

    One that `forgives` goes on when it is told, at its end, that its lease was lost: somebody repeated its release.
    """
    (folder / "count").write_text("0 0")
    workers = [Worker(_COUNTING, url, str(folder), "forgives" if forgives else "") for _ in range(number)]
    try:
        yield workers
        (folder / "stop").touch()
        done = sum(int(worker.end()) for worker in workers)
        assert done == count_in(folder) > 0
    finally:
        for worker in workers:
            worker.close()


def count_in(folder: Path) -> int:
    """How often they have counted so far; while one writes it may be none."""
    return int(((folder / "count").read_text() or "0").split()[0])


@contextmanager
def keeping(url: str) -> Iterator[Worker]:
    """A worker that has to hold the key `kept`, from when it says so until its input ends."""
    worker = Worker(_KEEPING, url)
    try:
        yield worker
    finally:
        worker.close()
