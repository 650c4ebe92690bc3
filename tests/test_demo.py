"""`make run` shows the main job through the service, and says so only if it happened."""

import os
import re
import sys
from collections.abc import Callable

import pytest

from scripts import demo


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
