"""The environment of the peers: made by the bench, beside the checkout's own, with pinned versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REQUIREMENTS = ("filelock==4.3.1",)


def python_with_peers(cache: Path) -> str:
    """The Python that has the peers installed; made on first use, and anew when the versions above change."""
    home = cache / "peers"
    python = home / "bin" / "python"
    stamp = home / "installed.txt"
    wanted = "\n".join((sys.version, *REQUIREMENTS))
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
        subprocess.run(install, check=True)
        stamp.write_text(wanted)
    return str(python)
