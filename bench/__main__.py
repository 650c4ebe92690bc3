"""`python -m bench [ROW …]`, called by `make bench`: measures rows, prints them, keeps them in `docs/benchmarks.md`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from bench import profile_page
from bench.contender import ROOT
from bench.machine import conditions
from bench.page import PAGE, keep, section
from bench.peers import REQUIREMENTS, python_with_peers
from bench.plan import Plan
from bench.rows import ROWS

CACHE = ROOT / ".bench"


def main() -> int:
    """Measure what was asked for; 0 when it could be measured, whether targets are met or not."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="less than 1 measures less, and keeps nothing")
    parser.add_argument("--profile", action="store_true", help="count what an operation executes, and measure nothing")
    given = parser.parse_args()
    known = profile_page.ROWS if given.profile else tuple(ROWS)
    unknown = [row for row in given.rows if row not in known]
    if unknown:
        parser.error(f"no row is called {', '.join(unknown)}; there are {', '.join(known)}")
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    if given.profile:
        profile_page.keep(given.rows)
        return 0
    peers = python_with_peers(CACHE)
    for row in given.rows or ROWS:
        began, about = time.monotonic(), conditions(REQUIREMENTS)
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:  # on the disk of the checkout, not in memory
            plan = Plan(Path(directory), scale=given.scale, peers=peers, chance=Random())
            result = ROWS[row](plan)
        print(f"## {row} ({time.monotonic() - began:.0f} s)\n\n{section(result)}", flush=True)
        if given.scale == 1.0:
            keep(result, command=f"make bench ROW={row}", conditions=about)
            profile_page.write()  # it names what is missed
    if given.scale == 1.0:
        print(f"kept in {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
