"""How much is loaded: the number of modules is what a start costs, and it does not depend on a clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.contender import ROOT, clean_environment

_LIST = "; print(*sorted(set(sys.modules) - before))"
_BEGIN = "import sys; before = set(sys.modules); "
LOADED = {
    "import leased": (29, {"leased"}),
    "from leased.cli import main; main(['--version'])": (32, {"leased", "leased.cli", "leased.cli.streams"}),
    "import leased; leased.connect('memory:').lock('key').acquire().release()": (112, None),
    "import leased.aio": (156, None),
}
"""Modules that are loaded at the most, those of the standard library included, and which are ours where that is few.
CPython 3.11; later ones load hardly more."""
ROOM = 1.1


@pytest.mark.parametrize("statement", LOADED)
def test_no_more_is_loaded_than_was(statement: str) -> None:
    """What a fresh interpreter loads for a statement stays within its bound, and nothing of it is of third parties."""
    code = [sys.executable, "-c", _BEGIN + statement + _LIST]
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(code, env=environment, capture_output=True, text=True, check=True, timeout=30)
    loaded = set(done.stdout.splitlines()[-1].split())
    most, ours = LOADED[statement]
    assert len(loaded) <= most * ROOM, f"{len(loaded)}: {sorted(loaded)}"
    assert {name.partition(".")[0] for name in loaded} - {"leased"} <= sys.stdlib_module_names
    if ours is not None:
        assert {name for name in loaded if name.partition(".")[0] == "leased"} == ours
