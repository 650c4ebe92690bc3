"""The harness itself: a short run on a whole server, a planted bug convicted, and what is around the judge."""

import threading
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

import pytest

from nemesis import guard
from nemesis.__main__ import USAGE, main
from nemesis.coverage import WORKERS, counts, missing
from nemesis.history import Recorder, now, read
from nemesis.planted import BUGS
from nemesis.play import Outcome, play
from nemesis.scenarios import SCENARIOS, chosen
from nemesis.stage import Scenario, Stage, StageFailed, broken
from nemesis.worker import HANDS
from tests.nemesis.histories import Story
from tests.servers.fixtures import started
from tests.servers.found import valkey_program


def played(directory: Path, *, bug: str = "") -> Outcome:
    started(valkey_program)
    return play(SCENARIOS["redis-workers"], seconds=4.0, seed="1", directory=directory, bug=bug)


@pytest.mark.real_clock
def test_a_short_run_on_a_whole_server(tmp_path: Path) -> None:
    """Workers of both faces work, are stopped and killed, and nothing is broken."""
    outcome = played(tmp_path)
    assert not outcome.failed
    assert outcome.verdict.valid, outcome.verdict.violations
    assert outcome.counts["grants"] > 5
    faces = {call.who.rstrip(".0123456789") for call in outcome.verdict.run.calls}
    assert faces == {"blocking", "async"}


@pytest.mark.real_clock
def test_a_planted_bug_is_convicted(tmp_path: Path) -> None:
    """A store that gives two grants one fencing token does not pass."""
    outcome = played(tmp_path, bug="reuses-fencing-tokens")
    assert outcome.status == 1
    assert "fencing" in {violation.promise for violation in outcome.verdict.violations}
    assert "reuses-fencing-tokens" in BUGS


def test_scenarios_are_chosen_by_name_or_store() -> None:
    """No name is all; the beginning of names is all of those; anything else is an error."""
    assert [one.name for one in chosen([])] == list(SCENARIOS)
    assert [one.name for one in chosen(["redis-cluster"])] == ["redis-cluster"]
    assert {one.name for one in chosen(["redis"])} == {name for name in SCENARIOS if name.startswith("redis-")}
    with pytest.raises(KeyError):
        chosen(["redi"])


def test_the_status_tells_what_came_of_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A scenario that cannot be played broke no promise, and proves nothing; a name of nothing is a wrong argument."""

    def fail() -> AbstractContextManager[Stage]:
        raise StageFailed("the servers do not do what they should")

    monkeypatch.setitem(SCENARIOS, "redis-cluster", Scenario("redis-cluster", "a cluster", fail))
    assert main(["redis-cluster"]) == 2
    assert "could not be played: the servers" in capsys.readouterr().out
    assert main(["nothing"]) == USAGE
    assert "there are sqlite-workers" in capsys.readouterr().err
    assert main(["--seconds", "many"]) == USAGE


def test_gates_grow_with_the_length_of_a_run() -> None:
    """What a minute must have seen a half one must have seen half of; too little is named."""
    found = dict.fromkeys(counts(Story().verdict()), 5)
    assert missing(found, {"grants": 10}, seconds=60.0) == ["grants: 5 of 10"]
    assert missing(found, {"grants": 10}, seconds=30.0) == []
    assert missing(found, {"grants": 5}, seconds=120.0) == []
    assert set(WORKERS) <= set(found)


def test_every_gate_counts_something() -> None:
    """A scenario asks only for what is counted."""
    found = counts(Story().verdict())
    assert all(set(scenario.gates) <= set(found) for scenario in SCENARIOS.values())


def test_what_a_run_saw_is_counted() -> None:
    """A take-over after expiry, a stale call that was refused, and a zombie that knew."""
    story = Story()
    hold = story.grant(1.0, 10)
    story.add("stopped", 1.5)
    story.add("continued", 3.0)
    story.grant(2.1, 11, who="b")
    story.sight(3.1, hold, until=None, reason="expired")
    story.renew(3.2, hold, lost="expired")
    story.release(3.3, hold, reason="expired")
    found = counts(story.verdict())
    assert (found["grants"], found["take-overs after expiry"]) == (2, 1)
    assert (found["stale calls refused"], found["losses known"], found["zombies that knew"]) == (2, 1, 1)


def test_lines_of_a_killed_process_can_be_read(tmp_path: Path) -> None:
    """A line that was cut off is left out; the others are all there, in the order of their times."""
    with Recorder(tmp_path / "a.jsonl", who="a") as first, Recorder(tmp_path / "b.jsonl", who="b") as second:
        second.record("invoke", op=second.new_op(), call="renew", key="k", ttl=1.0)
        with broken(first, "nothing") as fault:
            fault.gone()
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write('{"at": 1.0, "what": "ok", "wh')
    lines = read(tmp_path)
    assert [line.what for line in lines] == ["invoke", "fault", "gone", "healed"]
    assert lines[0].at <= now()
    assert lines[0].data == {"ttl": 1.0}


def test_the_guarded_resource_refuses_lower_tokens_only(tmp_path: Path) -> None:
    """F1: lower is refused, equal is accepted; writers at once are served one after the other."""
    assert guard.write(tmp_path, "k", fencing_token=10).accepted
    assert guard.write(tmp_path, "k", fencing_token=10).accepted
    assert not guard.write(tmp_path, "k", fencing_token=9).accepted
    chance = Random(1)
    numbers = [chance.randrange(11, 10_000) for _ in range(200)]
    writes: list[guard.Write] = []

    def work(part: list[int]) -> None:
        writes.extend(guard.write(tmp_path, "k", fencing_token=number) for number in part)

    threads = [threading.Thread(target=work, args=(numbers[start::HANDS],)) for start in range(HANDS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(write.serial for write in writes) == list(range(4, 204))
    assert guard.write(tmp_path, "k", fencing_token=1).seen == max(numbers)
