"""What runs came to: kept as lines, and added up on a page (`python -m nemesis.results`). It judges nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nemesis.play import Outcome

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "docs" / "nemesis.jsonl"
PAGE = ROOT / "docs" / "explanation" / "nemesis.md"
WORDS = {0: "valid", 1: "NOT VALID", 2: "too little happened"}
"""By the status of a run."""

_SUMMED = ("grants", "faults", "fail-overs", "unknown outcomes", "take-overs after expiry")
_INTRODUCTION = """\
# What the nemesis saw

<!-- Written by `python -m nemesis.results` from docs/nemesis.jsonl, which `make nemesis ARGS=--record` adds to. -->

`make nemesis RUNS=10 ARGS=--record` plays every scenario ten times and keeps what came of each run; this page adds
them up. [Break it yourself](../how-to/break-it.md) says what is done and what is judged. A run is *valid* if no
promise was broken and enough happened in it; one in which too little happened proves nothing. The sums are over all
runs."""


def keep(outcome: Outcome, scenario: str, *, seed: str, seconds: float, file: Path = KEPT) -> None:
    """Add a run to those that are kept."""
    line = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "scenario": scenario,
        "seed": seed,
        "seconds": seconds,
        "verdict": WORDS[outcome.status],
        "counts": outcome.counts,
        "excused": dict(sorted(outcome.verdict.excused.items())),
    }
    with file.open("a") as kept:
        kept.write(json.dumps(line) + "\n")


def page(runs: Sequence[Mapping[str, Any]]) -> str:
    """The page about these runs."""
    return "\n".join([_INTRODUCTION, "", *_table(runs), "", *_excuses(runs), "", *_origin(runs), ""])


def kept(file: Path = KEPT) -> list[dict[str, Any]]:
    """The runs that are kept, in their order."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def _table(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"| scenario | valid | too little | not valid | {' | '.join(_SUMMED)} |"
    yield f"| --- |{' ---: |' * (3 + len(_SUMMED))}"
    for name in dict.fromkeys(run["scenario"] for run in runs):
        those = [run for run in runs if run["scenario"] == name]
        verdicts = Counter(run["verdict"] for run in those)
        sums = [f"{sum(run['counts'][what] for run in those):,}" for what in _SUMMED]
        yield f"| `{name}` | {' | '.join([*(str(verdicts[word]) for word in (WORDS[0], WORDS[2], WORDS[1])), *sums])} |"


def _excuses(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    excused: Counter[str] = Counter()
    for run in runs:
        excused.update(run["excused"])
    yield "## What was excused"
    yield ""
    yield "What looks like a broken promise and is none: the check that met it, and why."
    yield ""
    yield "| check: reason | times |"
    yield "| --- | ---: |"
    for kind, times in sorted(excused.items()):
        yield f"| {kind} | {times:,} |"


def _origin(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    dates = sorted({run["date"] for run in runs})
    commits = ", ".join(f"`{commit}`" for commit in dict.fromkeys(run["commit"] for run in runs))
    seconds = sum(run["seconds"] for run in runs)
    yield f"{len(runs):,} runs, {seconds / 60:,.0f} minutes, {dates[0]} to {dates[-1]}, of these commits: {commits}."


def _commit() -> str:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


if __name__ == "__main__":
    PAGE.write_text(page(kept()))
    sys.exit(0)
