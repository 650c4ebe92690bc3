"""The arithmetic of the bench: turns, ratios, verdicts, and the page."""

import json
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.contender import ContenderFailed, Worker
from bench.measure import (
    Block,
    Role,
    Series,
    ahead,
    at_least,
    at_most,
    fitting,
    interleave,
    less_cpu,
    per_operation,
    tabulate,
)
from bench.page import PAGE, RECORD, page
from bench.rows import ROWS
from bench.rows.starting import able, started


class Recorded:
    """A contender that takes a fixed time an operation, and writes down when it was asked."""

    def __init__(self, name: str, role: Role, seconds: float, asked: list[str]) -> None:
        self.name = name
        self.role: Role = role
        self._seconds = seconds
        self._asked = asked

    def ask(self, *, count: int) -> Block:
        self._asked.append(self.name)
        return Block(count * self._seconds, count * self._seconds / 2)


def test_contenders_take_turns_in_random_order() -> None:
    """Every round asks everybody once; the order differs from round to round; the first round does not count."""
    asked: list[str] = []
    contenders = [(Recorded(name, "leased", 1.0, asked), {"count": 1}) for name in "abcd"]
    blocks = interleave(contenders, rounds=9, chance=Random(1))
    rounds = [tuple(asked[at : at + 4]) for at in range(0, len(asked), 4)]
    assert len(rounds) == 10
    assert all(set(one) == set("abcd") for one in rounds)
    assert len(set(rounds)) > 3
    assert {name: len(told) for name, told in blocks.items()} == dict.fromkeys("abcd", 9)


def test_times_are_those_of_one_operation() -> None:
    """A block's time is divided by its operations; CPU is in µs whatever the unit of the clock."""
    asked: list[str] = []
    series = per_operation(
        [(Recorded("a", "leased", 0.002, asked), {"count": 10})], rounds=2, chance=Random(1), unit=1000.0
    )
    assert series[0].values == pytest.approx([2.0, 2.0])
    assert series[0].cpu == pytest.approx([1000.0, 1000.0])


def test_ratios_are_those_of_neighbouring_blocks() -> None:
    """Where everything becomes slower in the middle of a run, the ratio stays what it is."""
    ours = Series("leased", "leased", [2.0, 4.0, 20.0], [1.0, 1.0, 1.0])
    floor = Series("raw", "floor", [1.0, 2.0, 10.0], [0.5, 0.5, 0.25])
    peer = Series("other", "peer", [4.0, 8.0, 40.0])
    table = tabulate("title", "µs", [ours, floor, peer])
    line = table.line("leased")
    assert (line.median, line.least, line.most) == (4.0, 2.0, 20.0)
    assert line.to_floor == 2.0
    assert line.cpu_to_floor == 2.0
    assert line.to_peers == {"other": 0.5}
    assert table.line("raw").to_floor is None
    assert table.line("other").to_floor == 4.0


def test_a_block_fits_its_time() -> None:
    """The number of operations makes a block of the time wanted, and is never less than the least."""
    contender = Recorded("a", "floor", 0.01, [])
    assert fitting(contender, seconds=0.5) == 50
    assert fitting(contender, seconds=0.001) == 4


def test_nothing_is_compared_with_nothing() -> None:
    """A peer that did nothing at all, such as asking while it waits, has no ratio."""
    series = [Series("leased", "leased", [1.0]), Series("busy", "peer", [10.0]), Series("idle", "peer", [0.0])]
    assert tabulate("title", "commands", series).line("leased").to_peers == {"busy": 0.1}


def test_a_peer_is_judged_only_where_it_was_measured() -> None:
    """Being ahead of a peer is read off its ratio and its CPU; without the peer there is no verdict."""
    ours, theirs = Series("leased", "leased", [2.0], [10.0]), Series("other", "peer", [3.0], [30.0])
    table = tabulate("Pairs", "µs", [ours, theirs])
    assert [one.met for one in ahead(table, "leased", "other", least=1.5)] == [True]
    assert [one.met for one in ahead(table, "leased", "other", least=1.6)] == [False]
    assert [one.met for one in less_cpu(table, "leased", "other", least=3.0)] == [True]
    assert [one.met for one in less_cpu(table, "leased", "other", least=3.1)] == [False]
    alone = tabulate("Pairs", "µs", [ours])
    assert ahead(alone, "leased", "other", least=1.0) == less_cpu(alone, "leased", "other", least=1.0) == []


@pytest.mark.parametrize(("value", "met"), [(1.0, True), (1.01, False)])
def test_a_limit_belongs_to_what_it_allows(value: float, met: bool) -> None:
    """A value at its limit is good, one above it is not."""
    assert at_most("target", value, 1.0).met is met
    assert at_least("target", -value, -1.0).met is met


def test_a_contender_that_dies_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A worker that cannot go on ends the measurement, and its own words reach the terminal."""
    spec = "bench.contenders.memory:blocking"
    with (
        pytest.raises(ContenderFailed, match="'the one' failed: ValueError"),
        started(lambda: Worker("the one", spec, directory=tmp_path)) as (worker,),
    ):
        worker.ask(count="many")
    assert "ValueError" in capfd.readouterr().err


def test_a_peer_that_cannot_run_is_named_with_the_reason(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What does not work is left out of the measurement and said, what works stays."""
    good = partial(Worker, "good", "bench.contenders.memory:dictionary", directory=tmp_path)
    bad = partial(Worker, "bad", "bench.contenders.memory:nowhere", directory=tmp_path)
    working, absent = able([bad, good], count=1)
    assert working == [good]
    assert "bad (AttributeError: " in absent
    assert "good" not in absent
    assert "AttributeError" in capfd.readouterr().err


def test_the_page_is_what_the_record_says() -> None:
    """Nobody has edited the page of results: it is what the bench would write from the record beside it."""
    record: dict[str, Any] = json.loads(RECORD.read_text())
    assert set(record) <= set(ROWS)
    assert PAGE.read_text() == page(record)


def test_the_page_names_rows_that_were_not_measured() -> None:
    """A row that nobody has measured does not vanish from the page."""
    record: dict[str, Any] = json.loads(RECORD.read_text())
    without = {row: kept for row, kept in record.items() if row != "memory-pair"}
    line = next(line for line in page(without).splitlines() if line.startswith("Not measured yet: "))
    assert "memory-pair" in line
    assert "sqlite-pair" not in line
