"""The soak: what grows is noticed, a small run over a file stays flat, and one that leaks on purpose does not."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from nemesis.soak.__main__ import USAGE, main
from nemesis.soak.flat import Sample, grown
from nemesis.soak.stores import STORES
from nemesis.soak.work import Amounts, Soak

ROOT = Path(__file__).parents[2]
SMALL = Amounts(cycles=2_000, keys=50, cancellations=100, reconnects=20, waiters=30, rounds=10)


def samples(name: str = "", *, by: float = 0.0) -> list[Sample]:
    """Ten flat samples over ten minutes, but for one that grows by so much with each."""
    flat = {
        "blocks": 200_000,
        "memory": 60_000_000,
        "server_memory": 9_000_000,
        "descriptors": 17,
        "threads": 3,
        "tasks": 2,
        "records": 50,
    }
    return [
        Sample(60.0 * n, n / 10, **{**flat, **({name: int(flat[name] + by * n)} if name else {})}) for n in range(1, 11)
    ]


def small(leak: str = "") -> list[str]:
    """What grew in a small run over a file, in a process of its own: what others hold here would hide a leak."""
    program = f"from tests.nemesis import test_soak; test_soak.print_small({leak!r})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def print_small(leak: str) -> None:
    """What grew in a small run in this process, a line each."""
    with STORES["sqlite"]() as store:
        for text in grown(asyncio.run(Soak(store, SMALL, leak=leak).run(lambda sample: None))):
            print(text)


@pytest.mark.parametrize(
    ("name", "by"),
    [("blocks", 500), ("memory", 1_000_000), ("server_memory", 200_000)]
    + [(name, 1) for name in ("descriptors", "threads", "tasks", "records")],
)
def test_what_grows_is_named(name: str, by: float) -> None:
    """LIVE7, LIVE10: whatever is sampled is convicted when it grows with the work, and only that."""
    assert grown(samples()) == []
    assert [text.partition(" grew")[0] for text in grown(samples(name, by=by))] == [name.replace("_", " ")]


def test_what_grows_only_at_the_beginning_is_no_leak() -> None:
    """Caches fill in the first fifth."""
    first = [Sample(sample.at, sample.share, 1, 1, 1, 1, 1, 1, 1) for sample in samples()[:2]]
    assert grown([*first, *samples()[2:]]) == []


@pytest.mark.real_clock
def test_a_small_soak_stays_flat() -> None:
    """The same work as `make soak` does, a five-hundredth of it: memory, descriptors, threads, tasks and records."""
    assert small() == []


@pytest.mark.real_clock
@pytest.mark.parametrize(("leak", "name"), [("handles", "blocks"), ("descriptors", "descriptors"), ("tasks", "tasks")])
def test_a_planted_leak_is_noticed(leak: str, name: str) -> None:
    """A soak that cannot fail would prove nothing."""
    assert any(text.startswith(name) for text in small(leak))


def test_a_store_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong argument names what there is."""
    assert main(["nothing"]) == USAGE
    assert "there are sqlite, redis" in capsys.readouterr().err
