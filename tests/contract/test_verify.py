"""`verify` runs the contract on a running store, in real time, and leaves it as it was."""

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

import leased
from leased.testing import runner
from leased.testing.clocks import MovableClock
from leased.testing.contract import CHECKS
from leased.testing.runner import Result, verify
from leased.testing.worlds import Async, Blocking, Face
from tests.contract.model_store import ModelStore


@pytest.mark.real_clock
@pytest.mark.parametrize("face", [Blocking(), Async()], ids=lambda face: face.name)
def test_a_running_store_is_verified(face: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks run by URL on either face; nothing is held afterwards, neither theirs nor less of what was held before."""
    monkeypatch.setattr(secrets, "token_hex", lambda size: "ab" * size if size < 16 else _fresh(size))
    url = f"sqlite:{tmp_path}/locks.db"
    told: list[Result] = []
    with leased.connect(url) as locks, locks.lock("mine").acquire() as held:
        report = verify(url, face=face, on_result=told.append)
        held.ensure_held()
        assert [status.key for status in locks.list()] == ["mine"]
    assert report.ok, [result for result in report.results if not result.ok]
    assert report.results == tuple(told)
    assert {result.name for result in report.results} == {check.__name__ for check in CHECKS}
    assert sum(result.outcome == "passed" for result in report.results) > 50
    for inner in ("", ":east", ":east:", ":East"):
        with leased.connect(url, namespace="leased-verify-abababababab" + inner) as theirs:
            assert theirs.list() == []


def _fresh(size: int) -> str:
    return secrets.token_bytes(size).hex()


@pytest.mark.real_clock
def test_locks_of_this_process_are_verified() -> None:
    """`Locks` stand for the URL they were connected to; what such a store cannot show is not run, and says why."""
    with leased.connect("memory:verify") as locks:
        report = verify(locks)
    assert report.ok, [result for result in report.results if not result.ok]
    closing = next(result for result in report.results if result.name == "check_a_closed_store_refuses")
    assert (closing.outcome, bool(closing.message)) == ("not run", True)


def test_what_cannot_be_verified_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown scheme, a store that cannot be used and a store object raise, instead of failing check after check."""
    monkeypatch.setattr(runner, "run_checks", None)
    with pytest.raises(leased.InvalidRequest):
        verify("nonsense:somewhere")
    (tmp_path / "not-a-directory").touch()
    with pytest.raises(leased.StoreNotUsable):
        verify(f"sqlite:{tmp_path}/not-a-directory/locks.db")
    with leased.connect(ModelStore(MovableClock(flowing=False))) as locks, pytest.raises(leased.InvalidRequest):
        verify(locks)


def test_the_suite_needs_nothing_installed_and_no_assertions() -> None:
    """Without pytest and Hypothesis, and with `assert` switched off, checks run, pass and still find what is broken."""
    code = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None
from leased.stores.memory import MemoryStore
from leased.testing import Blocking, run_checks
from leased.testing.worlds import memory
print(run_checks(memory(Blocking())).ok)
MemoryStore._mark = lambda self, token, reason, now: None
report = run_checks(memory(Blocking()))
failed = [result.name for result in report.results if not result.ok]
print(report.ok, "check_an_abandoned_claim_is_never_granted" in failed)
"""
    run = subprocess.run([sys.executable, "-O", "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["True", "False", "True"]
