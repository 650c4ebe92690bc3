"""The real engine, line, joining, keeper and memory store in thousands of faulty worlds: every promise holds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leased.testing.simulation import Faults, simulate
from leased.testing.simulation.hunting import check

SEEDS = json.loads(Path(__file__).with_name("seeds.json").read_text())
RUNS, PORTION = 2000, 50


@pytest.mark.parametrize("first", range(0, RUNS, PORTION))
def test_every_promise_holds(first: int) -> None:
    """Fresh worlds; one in fifty is run twice, with equal histories."""
    failures = check(range(first, first + PORTION))
    assert not failures, "\n".join(
        f"{failure.violation}\nreplay: python -m leased.testing.simulation --seed {failure.seed}"
        for failure in failures
    )


@pytest.mark.parametrize("seed", SEEDS["kept"])
def test_no_seed_that_ever_failed_fails_again(seed: int) -> None:
    """Seeds at which the real code once broke a promise."""
    assert check([seed]) == []


def test_a_run_without_faults_does_what_it_should() -> None:
    """Nothing in the checks rests on faults: locks are taken, renewed, handed over and released."""
    run = simulate(1, faults=Faults(length=20.0, processes=3, keys=2))
    assert run.violation is None
    seen = {(who.rstrip("0123456789"), what) for _, who, what, _ in run.history.events}
    assert {("p", "believes"), ("p", "belief"), ("p", "released"), ("p", "told of loss")} <= seen


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_means_the_same_in_every_process(hash_seed: str) -> None:
    """A history depends on the seed alone, not on how this process happens to hash text."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    program = "from leased.testing.simulation import simulate; print(simulate(11).history.digest())"
    elsewhere = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()
    assert elsewhere == simulate(11).history.digest()


def test_histories_of_different_seeds_differ() -> None:
    """The digest tells runs apart."""
    assert len({simulate(seed).history.digest() for seed in range(20)}) == 20
