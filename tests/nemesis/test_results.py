"""What runs came to is kept, added up, and shown as it is."""

from __future__ import annotations

from pathlib import Path

from nemesis.play import Outcome
from nemesis.results import PAGE, WORDS, keep, kept, page
from tests.nemesis.histories import Story


def outcome(*, missing: list[str] | None = None, failed: list[str] | None = None) -> Outcome:
    """One of a run in which nothing happened."""
    names: list[str] = ["grants", "faults", "fail-overs", "unknown outcomes", "take-overs after expiry"]
    counts = dict.fromkeys(names, 1500)
    return Outcome(Story().verdict(), counts, failed or [], missing or [])


def test_runs_are_kept_and_added_up(tmp_path: Path) -> None:
    """Every run counts, also one that proves nothing and one that convicts."""
    file = tmp_path / "runs.jsonl"
    keep(outcome(), "redis-server", seed="a", seconds=60.0, file=file)
    keep(outcome(missing=["grants: 1 of 2"]), "redis-server", seed="b", seconds=60.0, file=file)
    keep(outcome(failed=["worker"]), "sqlite-workers", seed="c", seconds=30.0, file=file)
    runs = kept(file)
    assert [(run["scenario"], run["seed"], run["verdict"]) for run in runs] == [
        ("redis-server", "a", "valid"),
        ("redis-server", "b", "too little happened"),
        ("sqlite-workers", "c", "NOT VALID"),
    ]
    text = page(runs)
    assert "| `redis-server` | 1 | 1 | 0 | 3,000 | 3,000 | 3,000 | 3,000 | 3,000 |" in text
    assert "| `sqlite-workers` | 0 | 0 | 1 | 1,500 |" in text
    assert "3 runs, 2 minutes" in text


def test_excuses_are_added_up() -> None:
    """Each check with its reason."""
    base = {"date": "2026-11-30", "commit": "abc", "seconds": 60.0, "verdict": WORDS[0], "counts": outcome().counts}
    runs = [{**base, "scenario": "a", "excused": {"exclusion: fail-over": 2}}, {**base, "scenario": "a", "excused": {}}]
    assert "| exclusion: fail-over | 2 |" in page(runs)
    assert "| exclusion: fail-over | 4 |" in page([*runs, runs[0]])


def test_the_page_is_that_of_the_runs_that_are_kept() -> None:
    """`python -m nemesis.results` writes it."""
    assert PAGE.read_text() == page(kept())
