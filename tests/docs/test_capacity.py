"""The command that the page about capacity names measures what it says."""

import re
import subprocess
import sys

from tests.docs.pages import ROOT


def test_sizes_of_leases_can_be_measured() -> None:
    """`scripts/capacity.py` takes leases in a file and in a service, and tells what each of them takes up."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "capacity.py"), "--leases", "300", "--only", "sqlite,service"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    line = r"^(\w+): (-?[\d,]+) bytes a lease; all taken in [\d.]+ s; a page of list takes [\d.]+ ms;"
    told = re.findall(line, done.stdout, re.MULTILINE)
    assert [name for name, _ in told] == ["sqlite", "service"]
    assert 50 < int(told[0][1].replace(",", "")) < 5_000


def test_a_crowd_can_be_shown() -> None:
    """`scripts/crowd.py` lets processes of tasks wait for one key, and tells what came to the server."""
    command = [
        sys.executable,
        str(ROOT / "scripts" / "crowd.py"),
        "--processes",
        "2",
        "--waiters",
        "5",
        "--seconds",
        "1",
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^while the key is held: [\d.]+ calls a second, \d+ connections$", done.stdout, re.MULTILINE)
    assert re.search(r"^then: [\d,]+ were served, with [\d.]+ calls each$", done.stdout, re.MULTILINE)
