"""Runs one contender in a process of its own and times it from inside; it compares nothing.

`python -m bench.worker MODULE:NAME DIRECTORY CPU OPTIONS` enters that context manager and then answers requests: each
line of standard input is a JSON object of arguments for what the context manager gave. A contender that fails says why
and ends. It needs nothing but Python.
"""

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

Run = Callable[..., Any]
"""Does what a request asks for. What it returns is told as it is, and must be JSON."""


def main() -> None:
    """Serve requests until standard input ends."""
    spec, directory, cpu, options = sys.argv[1:5]
    if cpu != "-":
        os.sched_setaffinity(0, {int(cpu)})
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a contender prints is no answer
    module, _, name = spec.partition(":")
    try:
        contender: Callable[..., AbstractContextManager[Run]] = getattr(import_module(module), name)
        with contender(Path(directory), **json.loads(options)) as run:
            print(json.dumps("ready"), file=answers, flush=True)
            for line in sys.stdin:
                request = json.loads(line)
                gc.collect()
                wall, cpu_time = time.perf_counter(), time.process_time()
                told = run(**request)
                cpu_time, wall = time.process_time() - cpu_time, time.perf_counter() - wall
                print(json.dumps({"wall": wall, "cpu": cpu_time, "told": told}), file=answers, flush=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        traceback.print_exc()
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
