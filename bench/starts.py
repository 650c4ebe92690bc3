"""Where the start of a command goes: the modules that it loads, and its system calls. No clock is read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from bench.contender import ROOT, clean_environment
from bench.profiling import traced

_CALLS = 8


def starts(directory: Path) -> list[dict[str, Any]]:
    """The profiles of the commands of the row `cli-start`, as they are kept."""
    store = f"sqlite:{directory}/locks.db"
    commands = {
        "`python -c pass`": ["-c", "pass"],
        "`leased --version`": ["-m", "leased", "--version"],
        "`leased status KEY`": ["-m", "leased", "status", "key", "--url", store],
        "`leased run KEY -- true`": ["-m", "leased", "run", "key", "--url", store, "--", "true"],
    }
    found = []
    for title, arguments in commands.items():
        modules = _modules(arguments)
        calls: Counter[str] = Counter()
        if shutil.which("strace") is not None:
            calls = traced([sys.executable, *arguments], directory / "calls")[1]
        found.append(
            {
                "title": title,
                "modules": len(modules),
                "of leased": sum(name.partition(".")[0] == "leased" for name in modules),
                "system calls": calls.total(),
                "most": dict(calls.most_common(_CALLS)),
            }
        )
    return found


def _modules(arguments: list[str]) -> set[str]:
    """What a program imports. The times beside the names are those of a busy machine, and are not looked at."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", done.stderr, re.MULTILINE))
