"""`leased doctor`: what it says of a good store, of a bad one, and that it leaves nothing behind."""

import json
import time
from typing import Any, cast

import leased
from leased.cli.doctor import _promises, _trial
from leased.model import Assurance
from tests.cli.driving import Cli
from tests.cli.terminal import Terminal


def findings(text: str) -> dict[str, tuple[str, str]]:
    """Grade and words by what they are about; the last of several counts."""
    read = [json.loads(line) for line in text.splitlines()]
    return {one["about"]: (one["grade"], one["finding"]) for one in read}


def test_a_good_store_is_told_in_plain_words(cli: Cli) -> None:
    """S10: store, versions, latency, clock, exclusion, durability; status 0; the trial key is free again."""
    done = cli.run("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    found = findings(done.stdout)
    assert found["store"] == ("ok", f"{cli.url} (named by LEASED_URL)") or found["store"][1].startswith("sqlite:/")
    assert f"leased {leased.__version__}, Python 3." in found["versions"][1]
    assert " ms for taking and releasing" in found["latency"][1]
    assert found["clock"][0] == "ok"
    assert found["clock"][1].startswith("the store's clock goes as this one does (within ")
    assert found["exclusion"] == ("ok", "host: it excludes all processes of this host, and no other host")
    assert "journal mode" in done.stdout
    assert {grade for grade, _ in found.values()} == {"ok"}
    assert cli.locks.list() == []


def test_on_a_terminal_it_is_a_list(cli: Cli) -> None:
    """8: people get lines, not JSON."""
    terminal = Terminal(*cli.LEASED, "doctor", environment=cli.environment, directory=cli.directory)
    assert terminal.finish() == 0
    assert "exclusion   \x1b[0m  host: it excludes" in terminal.screen
    terminal.close()


def test_a_store_that_does_not_work_is_1_with_the_reason(cli: Cli) -> None:
    """C2: what is wrong is a finding like any other, and the status says that something is."""
    cli.file.write_text("this is no database, and it is long enough to be looked at as one, which it fails at")
    done = cli.run("doctor", cli.url)
    assert done.returncode == 1
    grade, words = findings(done.stdout)["answers"]
    assert grade == "bad"
    assert str(cli.file) in words


def test_fencing_tokens_ahead_of_the_clock_are_told(cli: Cli) -> None:
    """S10: a wall clock that was set back since the last grant is a finding."""
    with leased.connect(cast(Any, AheadOf(cli.locks._client().store))) as locks:
        ahead = [finding for finding in _trial(locks) if finding.about == "wall clock"]
    assert [finding.grade for finding in ahead] == ["warning"]
    assert "fencing tokens, which still rise, are 10" in ahead[0].words


class AheadOf:
    """A store whose fencing tokens are 1000 seconds ahead."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def acquire(self, claim: object, *, timeout: float) -> object:
        """As the store, with another number."""
        from dataclasses import replace

        outcome = await self._store.acquire(claim, timeout=timeout)  # type: ignore[attr-defined]
        later = max(outcome.lease.fencing_token, int((time.time() + 1000.5) * 1e6))
        return replace(outcome, lease=replace(outcome.lease, fencing_token=later))


def test_weak_promises_are_warnings() -> None:
    """S10: what a store does not promise is said, not hidden among what it does."""
    weak = Assurance(
        "volatile", early_loss=True, durable="nothing", takeover="its clock", fence="never", notes=("a note",)
    )
    graded = {finding.about: finding.grade for finding in _promises(weak)}
    assert graded["exclusion"] == "warning"
    assert graded["early loss"] == "warning"
    assert graded["note"] == "ok"
