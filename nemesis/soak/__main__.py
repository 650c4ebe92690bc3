"""`python -m nemesis.soak [STORE …]`, called by `make soak`: does much of everything, and says what grew.

The status is 0 if all stayed flat, 1 if anything grew, 64 for arguments that make no sense.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import warnings
from collections.abc import Sequence

from nemesis.soak.flat import Sample, grown
from nemesis.soak.stores import STORES
from nemesis.soak.work import LEAKS, Amounts, Soak

USAGE = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak the stores that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m nemesis.soak", description=__doc__, exit_on_error=False)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=f"default: all of {', '.join(STORES)}")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the full amounts")
    parser.add_argument("--leak", default="", choices=LEAKS, help="leak this on purpose: then 1 is good")
    try:
        given = parser.parse_args(arguments)
        stores = {name: STORES[name] for name in given.stores or STORES}
    except argparse.ArgumentError as error:
        print(error, file=sys.stderr)
        return USAGE
    except KeyError as unknown:
        print(f"no store is called {unknown}; there are {', '.join(STORES)}", file=sys.stderr)
        return USAGE
    warnings.simplefilter("ignore", ResourceWarning)
    amounts = Amounts().scaled(given.scale)
    status = 0
    for name, open_store in stores.items():
        print(f"{name}: {amounts}", flush=True)
        began = time.monotonic()
        with open_store() as store:
            samples = asyncio.run(Soak(store, amounts, leak=given.leak).run(_show))
        found = grown(samples)
        for text in found:
            print(f"  GREW {text}")
        print(f"  {'NOT FLAT' if found else 'flat'}, {time.monotonic() - began:.0f} s", flush=True)
        status = 1 if found else status
    return status


def _show(sample: Sample) -> None:
    if round(sample.share * 100) % 20 == 0:
        print(
            f"  {sample.share:4.0%}: {sample.blocks} blocks, {sample.memory >> 10} KiB, server "
            f"{sample.server_memory >> 10} KiB, {sample.descriptors} descriptors, {sample.threads} threads, "
            f"{sample.tasks} tasks, {sample.records} records",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
