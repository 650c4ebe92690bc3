"""The command line of the simulation: many seeds, one seed with its history, or all planted bugs."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from leased.testing.ledger import PromiseBroken
from leased.testing.simulation.exhaustion import Exhaustion
from leased.testing.simulation.hunting import BUGS, check_on_all_cores, hunt, hunt_on_all_cores, silent
from leased.testing.simulation.planting import planted
from leased.testing.simulation.world import simulate

_REPLAY = "python -m leased.testing.simulation --seed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for; 0 if nothing was broken, and every bug found."""
    parser = argparse.ArgumentParser(prog="python -m leased.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run, or to hunt each bug with")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="replay this one and print its history")
    parser.add_argument("--bug", help="with --seed: with this planted bug")
    parser.add_argument("--bugs", action="store_true", help="hunt for every planted bug")
    parser.add_argument("--exhaust", type=int, metavar="CALLS", help="every order of so many calls, instead of seeds")
    parser.add_argument("--record", type=Path, metavar="FILE", help="with --bugs: write the seeds to this file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to use")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        return _replay(chosen.seed, chosen.bug)
    if chosen.exhaust is not None:
        return _exhaust(chosen.exhaust)
    if chosen.bugs:
        return _hunt(chosen.first, chosen.seeds, jobs=chosen.jobs, record=chosen.record)
    return _check(chosen.first, chosen.seeds, jobs=chosen.jobs)


def _replay(seed: int, name: str | None) -> int:
    bug = next((bug for bug in BUGS if bug.name == name), None)
    if name is not None and bug is None:
        print(f"there is no planted bug {name!r}", file=sys.stderr)
        return 2
    with silent(), planted(bug):
        run = simulate(seed)
    for line in run.history.lines():
        print(line)
    print(f"seed {seed}: {run.steps} steps, history {run.history.digest()}")
    return 1 if run.violation is not None else 0


def _exhaust(calls: int) -> int:
    started = time.monotonic()
    try:
        count = Exhaustion(operations=calls).step_through()
    except PromiseBroken as broken:
        print(f"an order of {calls} calls breaks a promise: {broken}")
        return 1
    print(f"every order of {calls} calls: {count} states, none broken, {time.monotonic() - started:.0f} s")
    return 0


def _check(first: int, count: int, *, jobs: int) -> int:
    started, failed = time.monotonic(), 0
    for failures in check_on_all_cores(first, count, jobs=jobs):
        for failure in failures:
            failed += 1
            print(f"seed {failure.seed}: {failure.violation}\n  replay: {_REPLAY} {failure.seed}", flush=True)
    speed = count / (time.monotonic() - started)
    print(f"{count} runs from seed {first}, {failed} broken, {speed:.0f} runs a second")
    return 1 if failed else 0


def _hunt(first: int, count: int, *, jobs: int, record: Path | None) -> int:
    """A table of all bugs; with a file, a few seeds for each of them in it."""
    found_at: dict[str, list[int]] = {}
    missed = 0
    print(f"{'planted bug':58} {'promise':7} {'runs':>5}  seed")
    for bug, found in hunt_on_all_cores(first, count, jobs=jobs):
        if found is None:
            missed += 1
            print(f"{bug.name:58} {bug.promise:7} {'none':>5}  not found in {count} runs", flush=True)
            continue
        print(f"{bug.name:58} {bug.promise:7} {found.seed - first + 1:5}  {found.seed}", flush=True)
        found_at[bug.name] = [found.seed]
    if record is not None:
        _record(record, found_at, count=count)
    print(f"{len(BUGS) - missed} of {len(BUGS)} planted bugs found within {count} runs each")
    return 1 if missed else 0


def _record(path: Path, found_at: dict[str, list[int]], *, count: int) -> None:
    """Write seeds that find each bug: the first, and two more where they come soon."""
    for bug in BUGS:
        seeds = found_at.get(bug.name, [])
        while seeds and len(seeds) < 3 and (more := hunt(bug, seeds=range(seeds[-1] + 1, seeds[-1] + count))):
            seeds.append(more.seed)
    kept = json.loads(path.read_text()) if path.exists() else {"kept": []}
    path.write_text(json.dumps({"kept": kept["kept"], "bugs": found_at}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
