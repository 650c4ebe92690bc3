"""The same runs over other libraries: what the judge finds there. It installs them where nothing else is."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.peers import python_with_peers
from nemesis.fleet import ROOT
from nemesis.peers import PEERS, REQUIREMENTS
from nemesis.play import play
from nemesis.scenarios import chosen

CACHE = ROOT / ".nemesis"
PLAYED = ("redis-workers", "redis-server", "redis-network")
"""Servers that lose nothing: whatever is broken here is the library's."""


def compare(names: Sequence[str], *, seconds: float, seed: str) -> int:
    """Play these scenarios with each library and print a table; 0 if all could be played, whatever came of it."""
    python = python_with_peers(CACHE, requirements=REQUIREMENTS)
    print("| library | scenario | grants | convicted of |\n| --- | --- | --- | --- |", flush=True)
    status = 0
    for peer in ("", *PEERS):
        for scenario in chosen(names or PLAYED):
            with tempfile.TemporaryDirectory() as directory:
                run = play(
                    scenario,
                    seconds=seconds,
                    seed=seed,
                    directory=Path(directory),
                    peer=peer,
                    **({"python": python} if peer else {}),
                )
            found = Counter(violation.promise for violation in run.verdict.violations)
            text = ", ".join(f"{promise} ({count})" for promise, count in found.most_common()) or "nothing"
            print(f"| {peer or 'leased'} | {scenario.name} | {run.counts['grants']} | {text} |", flush=True)
            for promise in found:
                first = next(one for one in run.verdict.violations if one.promise == promise)
                print(f"  such as {first}", flush=True)
            for failed in run.failed:
                print(f"  {failed}", flush=True)
            status = status or (0 if not run.failed and (peer or run.verdict.valid) else 1)
    return status
