"""`python -m nemesis [SCENARIO …]`, called by `make nemesis`: breaks servers under workers, and judges what they saw.

The status is 0 if every run was valid and saw enough, 1 if a promise was broken, 2 if a run saw too little to count or
could not be played, 64 for arguments that make no sense.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from nemesis import results
from nemesis.comparing import compare
from nemesis.planted import BUGS, ON
from nemesis.play import Outcome, play
from nemesis.scenarios import SCENARIOS, chosen
from nemesis.stage import Scenario, StageFailed
from tests.servers.found import ServerMissing
from tests.servers.process import ServerFailed

SHOWN = 20
"""Violations of one run that are printed."""


USAGE = 64
"""The status for arguments that make no sense."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m nemesis", description=__doc__, exit_on_error=False)
    about = "; ".join(f"{one.name}: {one.about}" for one in SCENARIOS.values()).replace("%", "%%")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"or a store; default: all. {about}")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each is played")
    parser.add_argument("--seed", help="what is drawn follows from it; default: a new one")
    parser.add_argument("--runs", type=int, default=1, help="how often each is played, with seeds of their own")
    parser.add_argument("--record", action="store_true", help="keep what comes of it for the page in the docs")
    parser.add_argument(
        "--bug", default="", choices=BUGS, help="a planted bug, which must be convicted: then 1 is good"
    )
    parser.add_argument("--peers", action="store_true", help="what is convicted in other libraries for Redis")
    parser.add_argument(
        "--planted", action="store_true", help="every planted bug: the status is 0 if all are convicted"
    )
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="where the lines go; else kept if not valid")
    try:
        given = parser.parse_args(arguments)
        scenarios = chosen(given.scenarios)
    except argparse.ArgumentError as error:
        print(error, file=sys.stderr)
        return USAGE
    except KeyError as name:
        print(f"no scenario is called {name}; there are {', '.join(SCENARIOS)}", file=sys.stderr)
        return USAGE
    seed = given.seed or secrets.token_hex(4)
    if given.peers:
        return compare(given.scenarios, seconds=given.seconds, seed=seed)
    if given.planted:
        return _convict(given.keep, seconds=given.seconds, seed=seed)
    found = []
    for number in range(given.runs):
        for one in scenarios:
            own = f"{seed}-{number}" if number else seed
            found.append(_run(one, given.keep, seconds=given.seconds, seed=own, bug=given.bug, record=given.record))
    return next((status for status in (1, 2) if status in found), 0)


def _convict(keep: Path | None, *, seconds: float, seed: str) -> int:
    """Play every planted bug; one that is not convicted is a fault of the judge."""
    keep = keep or Path(tempfile.mkdtemp(prefix="leased-nemesis-planted-"))
    missed = []
    for bug in BUGS:
        scenario = SCENARIOS[ON.get(bug, "redis-workers")]
        if _run(scenario, keep / bug, seconds=seconds, seed=seed, bug=bug) != 1:
            missed.append(bug)
    print(f"convicted: {len(BUGS) - len(missed)} of {len(BUGS)}{': not ' + ', '.join(missed) if missed else ''}")
    return 1 if missed else 0


def _run(scenario: Scenario, keep: Path | None, *, seconds: float, seed: str, bug: str, record: bool = False) -> int:
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="leased-nemesis-")) if keep is None else keep / scenario.name
    directory.mkdir(parents=True, exist_ok=True)
    print(f"{scenario.name}: {scenario.about}; seed {seed}{f', with the bug {bug}' if bug else ''}", flush=True)
    try:
        outcome = play(scenario, seconds=seconds, seed=seed, directory=directory, bug=bug)
    except (StageFailed, ServerFailed, ServerMissing) as error:
        print(f"  could not be played: {error}", flush=True)
        if keep is None:
            shutil.rmtree(directory)
        return 2
    _report(outcome)
    print(f"  {results.WORDS[outcome.status]}, {time.monotonic() - began:.0f} s", flush=True)
    if record:
        results.keep(outcome, scenario.name, seed=seed, seconds=seconds)
    if outcome.status == 1 or keep is not None:
        print(f"  its lines are in {directory}", flush=True)
    else:
        shutil.rmtree(directory)
    return outcome.status


def _report(outcome: Outcome) -> None:
    print("  " + ", ".join(f"{count} {name}" for name, count in outcome.counts.items()))
    for kind, count in sorted(outcome.verdict.excused.items()):
        print(f"  excused {count} times: {kind}")
    for violation in outcome.verdict.violations[:SHOWN]:
        print(f"  BROKEN {violation}")
    if len(outcome.verdict.violations) > SHOWN:
        print(f"  … and {len(outcome.verdict.violations) - SHOWN} more")
    for failed in outcome.failed:
        print(f"  BROKEN {failed}")
    for short in outcome.missing:
        print(f"  too little: {short}")


if __name__ == "__main__":
    sys.exit(main())
