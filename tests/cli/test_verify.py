"""`leased verify`: shows what came of each check, and its status says whether the store can be trusted."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import leased.testing
from leased.cli import main
from leased.testing import Report, Result

PASSED = Result("check_one", "One holds.", "passed")
NOT_RUN = Result("check_two", "Two holds.", "not run", "it needs a clock that can be moved")
FAILED = Result("check_three", "Three holds.", "failed", "it gave \x1b[31mtwo\x1b[0m leases")

Verify = Callable[..., tuple[int, str, str]]


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Verify:
    """Runs `leased verify` on a store of which the checks found this; gives status, output and talk."""

    def run(*results: Result) -> tuple[int, str, str]:
        def found(where: str, *, on_result: Callable[[Result], None]) -> Report:
            assert where == f"sqlite:{tmp_path}/locks.db"
            for result in results:
                on_result(result)
            return Report(where, results)

        monkeypatch.setattr(leased.testing, "verify", found)
        status = main(["verify", f"sqlite:{tmp_path}/locks.db"], {})
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_a_store_that_passes(verify: Verify) -> None:
    """C2: one line of JSON for each check, a count at the end, status 0; what could not run is no failure."""
    status, data, talk = verify(PASSED, NOT_RUN)
    assert status == 0
    assert [json.loads(line) for line in data.splitlines()] == [
        {"check": "one", "outcome": "passed", "promise": "One holds.", "message": None},
        {"check": "two", "outcome": "not run", "promise": "Two holds.", "message": NOT_RUN.message},
    ]
    assert talk.startswith("leased: sqlite:/")
    assert talk.endswith(": 1 passed, 0 failed, 1 not run\n")


def test_a_store_that_fails(verify: Verify) -> None:
    """C2: status 1, the broken promise by name, and a warning not to use it."""
    status, data, talk = verify(PASSED, FAILED)
    assert status == 1
    assert json.loads(data.splitlines()[1])["promise"] == "Three holds."
    assert "1 passed, 1 failed, 0 not run" in talk
    assert "hint: do not trust this store" in talk


def test_a_store_on_which_nothing_could_run_has_not_passed(verify: Verify) -> None:
    """C2: no finding is no good finding."""
    assert verify(NOT_RUN)[0] == 1


def test_on_a_terminal_failures_are_told_with_their_promise(verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    """8, C174: people get a line for each check; what a store said reaches the terminal as plain text."""
    monkeypatch.setattr("leased.cli.output.is_terminal", lambda stream: True)
    status, lines, _ = verify(PASSED, FAILED)
    assert status == 1
    assert lines.splitlines() == [
        "passed    one",
        "failed    three: it gave \\x1b[31mtwo\\x1b[0m leases",
        "          the promise: Three holds.",
    ]


def test_a_store_that_cannot_be_reached_is_no_failed_check(capsys: pytest.CaptureFixture[str]) -> None:
    """11: without an answer there is nothing to judge: 69, as for every other command."""
    assert main(["verify", "sqlite:/proc/locks.db"], {}) == 69
    assert "/proc/locks.db cannot be used" in capsys.readouterr().err
