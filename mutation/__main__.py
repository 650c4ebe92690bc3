"""`python -m mutation [MODULE…]`: tries all mutants of the core; status 1 if one survives that is not in the list.

`survivors.toml` has those that may survive, each with the reason. Also less than 90 % killed is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from mutation.table import CORE, Row

BAR = 0.9
_LIST = Path(__file__).parent / "survivors.toml"


def main(arguments: list[str]) -> int:
    """Try each module in a process of its own, and compare the survivors with the list."""
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="all of the core by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants to try at the same time")
    given = parser.parse_args(arguments)
    rows = [row for row in CORE if not given.modules or row.module in given.modules]
    if len(rows) < len(given.modules):
        parser.error(f"the modules are {', '.join(row.module for row in CORE)}")
    listed = tomllib.loads(_LIST.read_text(encoding="utf-8"))
    failed = [row.module for row in rows if not _passes(row, jobs=given.jobs, listed=listed.get(row.module, {}))]
    print(f"{len(rows) - len(failed)} of {len(rows)} modules pass{': not ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


def _passes(row: Row, *, jobs: int, listed: dict[str, str]) -> bool:
    found = _try(row, jobs=jobs)
    if found is None or found["failed"]:
        print(f"{row.module}: its tests fail without any change: {found and found['failed']}")
        return False
    alive = {*found["survived"], *found["unreached"]}
    share = found["killed"] / max(1, found["mutants"])
    print(f"{row.module}: {found['killed']} of {found['mutants']} killed ({share:.0%})", flush=True)
    for name in sorted(alive - listed.keys()):
        print(f"  survives, and is not in the list: {name}")
    for name in sorted(listed.keys() - alive):
        print(f"  is killed now, take it from the list: {name}")
    return share >= BAR and alive <= listed.keys()


def _try(row: Row, *, jobs: int) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "found.json"
        child = [sys.executable, "-m", "mutation.trial", row.module, str(target), *row.tests]
        environment = {**os.environ, "MUTATION_JOBS": str(jobs)}
        subprocess.run(child, check=False, env=environment, stdout=subprocess.DEVNULL)
        found: dict[str, Any] | None = json.loads(target.read_text()) if target.exists() else None
    return found if found is not None and "mutants" in found else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
