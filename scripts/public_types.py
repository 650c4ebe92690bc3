"""Checks that every type in the public interface is written down, so that each type checker reads the same.

Asks pyright for the completeness of the package's types. Unknown types are an error anywhere; attributes whose type is
only inferred are one in what `leased` and `leased.aio` export, not in the modules behind them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import leased
import leased.aio

ROOT = Path(__file__).parent.parent
INFERRED = "missing type annotation"
UNTYPED = tuple(f"leased.contrib.django.{name}." for name in ("admin", "apps", "management", "models"))
"""Classes that a framework without types calls, and which have its classes for bases."""


def public_names() -> set[str]:
    """Full names of everything that the two faces export, where it is defined."""
    exported = [getattr(face, name) for face in (leased, leased.aio) for name in face.__all__]
    return {f"{one.__module__}.{one.__qualname__}" for one in exported if hasattr(one, "__qualname__")}


def faults() -> Iterator[str]:
    """One line for each type that is missing."""
    # Started directly: verifying does not find a package that is installed as editable, so its path is given.
    done = subprocess.run(
        ["pyright", "--pythonpath", sys.executable, "--verifytypes", "leased", "--ignoreexternal", "--outputjson"],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": str(ROOT / "src"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)["typeCompleteness"]
    if not report["pyTypedPath"] or not report["symbols"]:
        yield "nothing was checked: pyright did not find the package"
    public = public_names()
    for symbol in report["symbols"]:
        known = symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
        exported = any(symbol["name"] == name or symbol["name"].startswith(f"{name}.") for name in public)
        if symbol["name"].startswith(UNTYPED):
            continue
        for fault in symbol["diagnostics"]:
            if not known or (exported and INFERRED in fault["message"]):
                line = fault["range"]["start"]["line"] + 1
                message = " ".join(fault["message"].split())
                yield f"{Path(fault['file']).relative_to(ROOT)}:{line}: {symbol['name']}: {message}"


def main() -> int:
    """Print what is missing; 1 if anything is."""
    found = sorted(set(faults()))
    for line in found:
        print(line)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
