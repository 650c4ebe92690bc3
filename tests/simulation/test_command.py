"""`python -m leased.testing.simulation`: what it prints, and its exit status."""

import json
from pathlib import Path

import pytest

from leased.testing.simulation import __main__ as command
from leased.testing.simulation import hunting, simulate
from leased.testing.simulation.planting import Bug, Edit

FOUND = Bug(
    "no margin at all", "SAFE3", (Edit("leased.policy", "usable", "left * (1.0 - margin) - SLACK", "left + 9"),)
)
HARMLESS = Bug(
    "nothing at all", "SAFE3", (Edit("leased.policy", "usable", "left * (1.0 - margin)", "left * (1.0 - margin)"),)
)


def test_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 0 and the count when nothing was broken."""
    assert command.main(["--seeds", "4", "--first", "60", "--jobs", "1"]) == 0
    assert "4 runs from seed 60, 0 broken" in capsys.readouterr().out


def test_one_seed_prints_its_history(capsys: pytest.CaptureFixture[str]) -> None:
    """A replay shows every event, and the same digest as any run of that seed."""
    assert command.main(["--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert simulate(3).history.digest() in shown
    assert len(shown.splitlines()) == len(simulate(3).history.events) + 1


def test_a_failing_seed_names_itself_and_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure prints one seed and how to replay it."""
    failure = hunting.hunt(FOUND, seeds=range(20))
    assert failure is not None
    monkeypatch.setattr(command, "check_on_all_cores", lambda first, count, jobs: iter([[failure]]))
    assert command.main(["--seeds", "50"]) == 1
    shown = capsys.readouterr().out
    assert f"seed {failure.seed}: SAFE3 broken at" in shown
    assert f"replay: python -m leased.testing.simulation --seed {failure.seed}" in shown


def test_a_planted_bug_can_be_replayed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With its name: status 1 and the broken promise in the last lines; an unknown name is an error."""
    monkeypatch.setattr(command, "BUGS", (FOUND,))
    failure = hunting.hunt(FOUND, seeds=range(20))
    assert failure is not None
    assert command.main(["--seed", str(failure.seed), "--bug", FOUND.name]) == 1
    assert str(failure.violation) in capsys.readouterr().out
    assert command.main(["--seed", "1", "--bug", "no such bug"]) == 2


def test_the_hunt_shows_a_table_and_records_seeds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One line for each bug; a bug that is not found makes the status 1; kept seeds stay in the file."""
    record = tmp_path / "seeds.json"
    record.write_text(json.dumps({"kept": [7], "bugs": {}}))
    found = hunting.hunt(FOUND, seeds=range(20))
    monkeypatch.setattr(command, "BUGS", (FOUND, HARMLESS))
    monkeypatch.setattr(
        command, "hunt_on_all_cores", lambda first, count, jobs: iter([(FOUND, found), (HARMLESS, None)])
    )
    assert command.main(["--bugs", "--seeds", "20", "--record", str(record)]) == 1
    shown = capsys.readouterr().out
    assert "1 of 2 planted bugs found" in shown
    assert "not found in 20 runs" in shown
    recorded = json.loads(record.read_text())
    assert recorded["kept"] == [7]
    assert list(recorded["bugs"]) == [FOUND.name]
    assert len(recorded["bugs"][FOUND.name]) == 3
