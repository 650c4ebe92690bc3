"""Runs many seeds, one after the other or on all cores, and hunts for planted bugs; it prints nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from leased.testing.simulation.bugs import CLIENT_BUGS
from leased.testing.simulation.history import Violation
from leased.testing.simulation.planting import Bug, planted
from leased.testing.simulation.store_bugs import STORE_BUGS
from leased.testing.simulation.world import simulate

BUGS: tuple[Bug, ...] = STORE_BUGS + CLIENT_BUGS
"""Every planted bug. Each breaks the promise it names, and must be found."""

TWICE = 50
"""Of so many seeds, one is run twice and the histories compared."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed whose run broke a promise."""

    seed: int
    violation: Violation


def check(seeds: Iterable[int]) -> list[Failure]:
    """Run these seeds against the code as it is; the failures among them."""
    failures = []
    with silent():
        for seed in seeds:
            run = simulate(seed)
            violation = run.violation
            if violation is None and seed % TWICE == 0 and simulate(seed).history.digest() != run.history.digest():
                violation = Violation("determinism", 0.0, "two runs of one seed went different ways")
            if violation is not None:
                failures.append(Failure(seed, violation))
    return failures


def hunt(bug: Bug, *, seeds: Iterable[int]) -> Failure | None:
    """The first of these seeds at which this bug is found: the promise it names is seen to be broken."""
    with silent():
        for seed in seeds:
            with planted(bug):
                violation = simulate(seed).violation
            if violation is not None and violation.promise == bug.promise:
                return Failure(seed, violation)
    return None


def check_on_all_cores(first: int, count: int, *, jobs: int) -> Iterator[list[Failure]]:
    """`check` in portions, as they are done in order."""
    portions = [range(start, min(start + TWICE, first + count)) for start in range(first, first + count, TWICE)]
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(check, portions)


def hunt_on_all_cores(first: int, count: int, *, jobs: int) -> Iterator[tuple[Bug, Failure | None]]:
    """Every planted bug, and where it was found among so many fresh runs."""
    with ProcessPoolExecutor(jobs) as pool:
        hunts = [pool.submit(hunt, bug, seeds=range(first, first + count)) for bug in BUGS]
        for bug, found in zip(BUGS, hunts, strict=True):
            yield bug, found.result()


@contextmanager
def silent() -> Iterator[None]:
    """Keep the package's log quiet: in these runs leases are lost all the time."""
    log = logging.getLogger("leased")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before
