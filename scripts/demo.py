"""Starts the lock service on this machine, shows it at work once, and leaves it running for whoever wants to try it.

Ends with status 0 after ctrl-c, or with `--once` after the showing, only if one of two runs did its work and the other
was refused as busy. Everything is kept in a private directory, and gone afterwards.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def service(directory: Path, *, port: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The service in a process of its own, over an SQLite file in that directory; its URL, once it answers."""
    store = f"sqlite:{directory / 'locks.db'}"
    process = subprocess.Popen(
        [sys.executable, "-m", "leased", "serve", "--store", store, "--port", port, "--ui", "act"],
        stderr=subprocess.PIPE,
        text=True,
    )
    telling = threading.Thread(target=_pass_on, args=(process,), daemon=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"serves (\S+)", said)
        if found is None:
            said += process.stderr.read()
            if "nothing can listen" in said and port.isdecimal():
                said += f"try: make run PORT={int(port) + 1}"
            raise SystemExit(said.rstrip())
        telling.start()
        yield found[1], process
    finally:
        process.terminate()
        process.wait(PATIENCE)
        if telling.is_alive():
            telling.join(PATIENCE)
        if process.stderr is not None:
            process.stderr.close()


def _pass_on(process: subprocess.Popen[str]) -> None:
    for line in process.stderr or ():
        sys.stderr.write(line)


def two_runs(url: str, directory: Path) -> tuple[int | None, int | None]:
    """Exit statuses of the first run and of the one that came while the first was at work (None: it never came)."""
    begun, enough = directory / "begun", directory / "enough"
    print(f"$ leased run {KEY} --url {url} -- make-the-report", flush=True)
    first = subprocess.Popen(leased_run(url, sys.executable, "-c", JOB, str(begun), str(enough)))
    try:
        second = None
        if wait_for(begun, first):
            print(f"$ curl '{url}/v1/locks/status?key={KEY}'", flush=True)
            print(f"  {holder(url)}", flush=True)
            print(
                f"$ leased run {KEY} --url {url} -- make-the-report     (again, while the first is at work)", flush=True
            )
            second = subprocess.run(leased_run(url, "true"), timeout=PATIENCE, check=False).returncode
            print(f"  exit status {second}", flush=True)
        enough.touch()
        return first.wait(PATIENCE), second
    finally:
        if first.poll() is None:
            first.terminate()
            first.wait(PATIENCE)


def holder(url: str) -> str:
    """What the service says of the key, in short."""
    with urllib.request.urlopen(f"{url}/v1/locks/status?key={KEY}", timeout=PATIENCE) as answer:
        status = json.load(answer)
    return json.dumps({name: status[name] for name in ("key", "state", "heldBy", "fencingToken")})


def show(url: str, directory: Path) -> bool:
    """Run the demonstration; true if it went as it should."""
    statuses = two_runs(url, directory)
    if statuses != (0, BUSY):
        print(f"this did not go as it should: exit statuses {statuses} instead of {(0, BUSY)}", file=sys.stderr)
    return statuses == (0, BUSY)


def invite(url: str) -> None:
    """What to try next."""
    leased = os.path.relpath(Path(sys.executable).with_name("leased"))
    python = os.path.relpath(sys.executable)
    acquire = '{"key": "hello", "ttlMs": 30000, "waitMs": 5000}'
    code = f'import leased; print(leased.connect("{url}").lock("hello", wait=40).run(print, "at work"))'
    print(
        "\nOne ran, one was refused. The service goes on until ctrl-c; try it yourself, in another terminal:\n"
        f"  curl -H 'Content-Type: application/json' -d '{acquire}' {url}/v1/locks/acquire\n"
        f"  {leased} status hello --url {url}\n"
        f"  {leased} run hello --url {url} --wait 40 -- date     (when that lease ends, after 30 s)\n"
        f"  {python} -c '{code}'\n"
        f"  curl -N {url}/v1/events\n"
        f"  curl {url}/openapi.json\n"
        f"and see it: {url}/ui/",
        flush=True,
    )


def main(arguments: list[str]) -> int:
    """Show it, say what happened and what to try next, and stay until ctrl-c."""
    once = "--once" in arguments
    with tempfile.TemporaryDirectory(prefix="leased-demo-") as name:
        directory = Path(name)
        with service(directory, port="0" if once else os.environ.get("PORT", "8370")) as (url, process):
            if not show(url, directory):
                return 1
            invite(url)
            if not once:
                try:
                    process.wait()
                except KeyboardInterrupt:
                    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
