"""`python -m fuzz [TARGET…] --seconds 60`: so long for each target; the exit status is 1 if one was broken.

A new find is a file in a directory outside the checkout, and how to repeat it is printed: `python -m fuzz TARGET FILE`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz.targets import NAMES, seeds_of

_SLOW, _MEMORY, _LONGEST = 5, 1024, 4096


def main(arguments: list[str]) -> int:
    """Fuzz each target in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--finds", type=Path, default=Path(tempfile.gettempdir()) / "leased-fuzz", help="directory")
    given = parser.parse_args(arguments)
    if len(given.targets) == 2 and Path(given.targets[1]).is_file():
        from fuzz.targets import property_of

        property_of(given.targets[0])(Path(given.targets[1]).read_bytes())
        print("the property holds for this input")
        return 0
    unknown = [name for name in given.targets if name not in NAMES]
    if unknown:
        parser.error(f"{unknown[0]} is no target")
    if importlib.util.find_spec("atheris") is None:
        print("fuzzing needs atheris, which is for Linux and Python 3.11 to 3.13 only: the tests run the kept inputs")
        return 2
    broken = [name for name in given.targets or NAMES if not _fuzz(name, seconds=given.seconds, finds=given.finds)]
    print(f"{len(broken)} of {len(given.targets or NAMES)} targets broken{': ' if broken else ''}{', '.join(broken)}")
    return 1 if broken else 0


def _fuzz(name: str, *, seconds: int, finds: Path) -> bool:
    """Whether the target held. What is interesting is kept between runs, beside the seeds; what breaks it, too."""
    kept = finds / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="leased-seeds-") as seeds:
        for number, seed in enumerate(seeds_of(name)):
            (Path(seeds) / f"{number:04}").write_bytes(seed)
        limits = [f"-timeout={_SLOW}", f"-rss_limit_mb={_MEMORY}", f"-max_len={_LONGEST}", "-verbosity=0"]
        places = [f"-artifact_prefix={finds}/{name}-", str(kept), seeds]
        child = [sys.executable, "-m", "fuzz.child", name, f"-max_total_time={seconds}", *limits, *places]
        done = subprocess.run(child, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "PYTHONHASHSEED": "0"}, errors="replace")  # fmt: skip
    runs = next((line for line in done.stdout.splitlines() if line.startswith("Done ")), "")
    print(f"{name:16} {'held   ' if done.returncode == 0 else 'BROKEN '} {runs}", flush=True)
    if done.returncode != 0:
        print("\n".join(done.stdout.splitlines()[-40:]), flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
