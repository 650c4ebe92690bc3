"""Shows what leased is for: two runs of one job side by side, of which exactly one may start. Uses only a private file.

Ends with status 0 only if one run did its work and the other was refused as busy.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUSY = 75
KEY = "nightly-report"
PATIENCE = 20.0

# The job says that it has begun, then works until it is told that the second run has been refused.
JOB = """
import os, pathlib, sys, time
begun, enough = map(pathlib.Path, sys.argv[1:])
begun.touch()
print("  the job runs, with fencing token", os.environ["LEASED_FENCING_TOKEN"], flush=True)
give_up_at = time.monotonic() + 20
while not enough.exists():
    if time.monotonic() > give_up_at:
        sys.exit(1)
    time.sleep(0.02)
print("  the job is done", flush=True)
"""


def leased_run(url: str, *command: str) -> list[str]:
    """The command line of one guarded run."""
    return [sys.executable, "-m", "leased", "run", KEY, "--url", url, "--", *command]


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> bool:
    """True once the path exists; false if the process ended or patience ran out first."""
    give_up_at = time.monotonic() + PATIENCE
    while not path.exists():
        if process.poll() is not None or time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)
    return True


def two_runs(directory: Path) -> tuple[int | None, int | None]:
    """Exit statuses of the first run and of the one that came while the first was at work (None: it never came)."""
    url = f"sqlite:{directory / 'locks.db'}"
    begun, enough = directory / "begun", directory / "enough"
    print(f"$ leased run {KEY} -- make-the-report", flush=True)
    first = subprocess.Popen(leased_run(url, sys.executable, "-c", JOB, str(begun), str(enough)))
    try:
        second = None
        if wait_for(begun, first):
            print(f"$ leased run {KEY} -- make-the-report     (again, while the first is at work)", flush=True)
            second = subprocess.run(leased_run(url, "true"), timeout=PATIENCE, check=False).returncode
            print(f"  exit status {second}", flush=True)
        enough.touch()
        return first.wait(PATIENCE), second
    finally:
        if first.poll() is None:
            first.terminate()
            first.wait(PATIENCE)


def main() -> int:
    """Run the demonstration, say what happened and what to try next."""
    with tempfile.TemporaryDirectory(prefix="leased-demo-") as directory:
        first, second = two_runs(Path(directory))
    if (first, second) != (0, BUSY):
        print(
            f"this did not go as it should: exit statuses {first} and {second} instead of 0 and {BUSY}", file=sys.stderr
        )
        return 1
    leased = os.path.relpath(Path(sys.executable).with_name("leased"))
    print(
        "\nOne ran, one was refused. Try it yourself, in two terminals:\n"
        f"  {leased} run hello -- sleep 20\n"
        f"  {leased} status hello\n"
        f"  {leased} run hello --wait 30 -- echo my turn"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
