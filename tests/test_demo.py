"""`make run` shows the main job through the service, and says so only if it happened."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import demo

SCRIPTS = Path(__file__).parents[1] / "scripts"


def test_the_demonstration_works(capfd: pytest.CaptureFixture[str]) -> None:
    """Two runs side by side: one does its work, one is refused as busy, and the status is 0."""
    assert demo.main(["--once"]) == 0
    shown = capfd.readouterr().out
    assert "the job runs, with fencing token" in shown
    assert f"exit status {demo.BUSY}" in shown
    assert '"state": "held"' in shown
    assert re.search(r"curl .*'Content-Type: application/json' .* http://127.0.0.1:\d+/v1/locks/acquire", shown)


def unguarded(url: str, *command: str) -> list[str]:
    """A run that excludes nobody."""
    return list(command)


def refused(url: str, *command: str) -> list[str]:
    """A run that never starts its command."""
    return [sys.executable, "-c", f"raise SystemExit({demo.BUSY})"]


@pytest.mark.parametrize("run", [unguarded, refused])
def test_the_demonstration_does_not_pretend(run: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """If both runs start, or none does, the status is not 0."""
    monkeypatch.setattr(demo, "leased_run", run)
    monkeypatch.setitem(os.environ, "LEASED_FENCING_TOKEN", "1")
    assert demo.main(["--once"]) == 1


def test_a_port_that_is_taken_is_told_with_what_make_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says once what is wrong, and how to choose another port by `make`."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setitem(os.environ, "PORT", str(port))
        with pytest.raises(SystemExit) as raised:
            demo.main([])
    said = str(raised.value)
    assert f"nothing can listen on 127.0.0.1 port {port}: Address already in use\n" in said
    assert f"make run PORT={port + 1}" in said


@pytest.mark.parametrize(
    ("made", "used"), [((".venv", ".run"), ".venv"), ((".run",), ".run"), ((), ".run")], ids=["tools", "again", "first"]
)
def test_make_run_needs_no_tools(made: tuple[str, ...], used: str, tmp_path: Path) -> None:
    """It takes the environment that is there, and else makes a small one with the service and says so in a line."""
    place = tmp_path / "checkout"
    (place / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPTS / "run.sh", place / "scripts")
    (place / "pyproject.toml").touch()
    os.utime(place / "pyproject.toml", (1, 1))
    environment = 'mkdir -p "$1/bin"; printf \'echo "$0 $*"\' > "$1/bin/python"; chmod +x "$1/bin/python"\n'
    (place / "scripts" / "environment.sh").write_text(environment)
    for name in made:
        subprocess.run(["sh", "scripts/environment.sh", name], cwd=place, check=True)
        (place / name / "installed").touch()
    done = subprocess.run(["sh", "scripts/run.sh"], cwd=place, capture_output=True, text=True, check=True)
    *before, last = done.stdout.splitlines()
    assert last == f"{used}/bin/python scripts/demo.py"
    if made:
        assert not before
    else:
        told, pip = before
        assert told == "installing leased with its service into .run, about a minute"
        assert pip.endswith("--editable .[server,http,cli,sqlite]")
