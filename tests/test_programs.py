"""The programs that prove and measure, called as `make` calls them: each says what it takes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("program", ["bench", "fuzz", "mutation", "nemesis", "nemesis.soak"])
def test_a_program_says_what_it_takes(program: str) -> None:
    """`--help` prints the usage, and fails at nothing that a help text contains."""
    done = subprocess.run(
        [sys.executable, "-m", program, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
