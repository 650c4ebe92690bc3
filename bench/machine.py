"""What the numbers were measured on: versions and the machine, as plain text. Nothing here is measured."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import leased
from bench.contender import ROOT
from bench.rows.sqlite_modes import in_words, modes
from bench.servers import versions


def conditions(peers: Sequence[str]) -> dict[str, str]:
    """Names and values, in the order in which they are shown."""
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "leased": f"{leased.__version__}, {_commit()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "SQLite": "; ".join(in_words(journal).removeprefix("Journal mode ") for journal in modes()),
        "servers": ", ".join(versions()),
        "peers": ", ".join(requirement.replace("==", " ") for requirement in peers) or "none",
        "machine": f"{os.cpu_count()} CPUs, {_processor()}, {platform.system()} {platform.release()}",
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    try:
        changed = " and changes" if git("status", "--porcelain", "src") else ""
        return f"commit {git('rev-parse', '--short', 'HEAD')}{changed}"
    except (OSError, subprocess.CalledProcessError):
        return "no commit known"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor()
    return platform.machine()
