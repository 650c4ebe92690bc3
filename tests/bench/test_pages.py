"""What is made of the records: the plot, the peers that are ahead, and the page that says where the time goes."""

import json
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench import ahead, profile_page
from bench.counting import steps
from bench.page import PLOT, RECORD
from bench.plot import floor_bars, plot, target_bars, target_of
from bench.profiling import SUBJECTS, bought, profile, shares
from tests.servers.fixtures import started

MEASURED: dict[str, Any] = json.loads(RECORD.read_text())


def table(title: str, **ratios: float) -> dict[str, Any]:
    """A table as it is kept: leased, a floor, and peers by name, with what they take times the floor."""
    lines: list[dict[str, Any]] = [{"name": "leased", "role": "leased", "to_floor": ratios.pop("leased")}]
    lines[0]["to_peers"] = {name: lines[0]["to_floor"] / ratio for name, ratio in ratios.items()}
    lines += [{"name": name, "role": "peer", "to_floor": ratio, "to_peers": {}} for name, ratio in ratios.items()]
    lines.append({"name": "raw", "role": "floor", "to_floor": None, "to_peers": {}})
    return {"title": title, "lines": lines}


def verdict(target: str, measured: str = "1x") -> dict[str, Any]:
    """A verdict as it is kept."""
    return {"target": target, "measured": measured, "met": True}


def test_the_plot_is_what_the_record_says() -> None:
    """Nobody has drawn on the plot: it is what the bench would draw of the record, and it is XML that loads nothing."""
    picture = PLOT.read_text()
    assert picture == plot(MEASURED)
    root = ET.fromstring(picture)
    assert not [one for one in root.iter() if "href" in "".join(one.attrib)]
    assert "prefers-color-scheme: dark" in picture


def test_each_table_with_a_floor_has_its_line_and_its_target() -> None:
    """A line for each table that has a floor, with the target that names it; shares of throughput count upside down."""
    kept = {
        "tables": [
            table("Blocking", leased=2.0, peer=4.0),
            table("Journal mode WAL, SQLite 3 (apsw), 50 tasks", leased=1.5),
        ],
        "verdicts": [verdict("blocking: ≤ 1.7x the floor"), verdict("wal, tasks: ≥ 0.5x the floor")],
    }
    first, second = floor_bars({"row": kept})
    assert (first.ours, first.peers, first.target) == ((2.0,), (("peer", 4.0),), 1.7)
    assert (second.name, second.target) == ("row: WAL, 50 tasks", 2.0)
    assert target_of(kept, "Async") is None


def test_every_target_of_a_floor_is_drawn() -> None:
    """No verdict about the floor of a pair is lost for want of a table that fits its words. Other rows have several
    targets in a table, of which a bar cannot show all."""
    rows = {row: kept for row, kept in MEASURED.items() if row.endswith(("-pair", "-many"))}
    drawn = [bar.name for bar in floor_bars(rows) if bar.target is not None]
    named = [one["target"] for kept in rows.values() for one in kept["verdicts"] if "x the floor" in one["target"]]
    assert len(drawn) == len([target for target in named if "CPU" not in target])


@pytest.mark.parametrize(
    ("target", "measured", "ratio"),
    [("≤ 45 µs CPU a pair", "90 µs", 2.0), ("tasks: ≥ 20,000 operations a second", "40,000", 0.5)],
)
def test_other_targets_are_drawn_as_a_multiple_of_what_is_allowed(target: str, measured: str, ratio: float) -> None:
    """Whether less or more is wanted: 1 is just met, and left of it is better."""
    (bar,) = target_bars({"row": {"verdicts": [verdict(target, measured)]}})
    assert bar.ours == (ratio,)


def test_what_is_no_number_is_not_drawn() -> None:
    """An order that was kept, or nothing at all, has no place on an axis."""
    kept = {"verdicts": [verdict("served in order", "in order"), verdict("none lost", "0"), verdict("≤ 3 calls", "0")]}
    assert list(target_bars({"row": kept})) == []


def test_peers_that_are_ahead_are_named_with_the_reason() -> None:
    """A peer is ahead if the best way of leased takes longer; each of the record has its reason on the page."""
    kept = {"row": {"tables": [table("Blocking", leased=3.0, fast=2.0, slow=6.0)]}}
    assert ahead.ahead(kept) == [("row", "Blocking", "fast", 1.5)]
    assert "Nowhere" in "".join(ahead.lines({}))
    assert {peer for _, _, peer, _ in ahead.ahead(MEASURED)} <= set(ahead.REASONS)


def test_the_page_of_costs_is_what_the_records_say() -> None:
    """Nobody has edited the page, every row was profiled, and every row with a missed target is explained there."""
    counted: dict[str, Any] = json.loads(profile_page.RECORD.read_text())
    assert set(counted) == set(profile_page.ROWS)
    text = profile_page.PAGE.read_text()
    assert text == profile_page.page(counted, MEASURED)
    missed = {row for row, kept in MEASURED.items() for one in kept["verdicts"] if not one["met"]}
    assert missed <= set(counted) | set(profile_page.ELSEWHERE)


def test_all_that_is_executed_is_bought_for_something() -> None:
    """Functions are told apart by where they are, and what they take in all is what the parts take."""
    assert (
        bought("leased.stores._redis_link.Link.one") == bought("leased.stores._pool.Pool.give") != bought("leased.x.y")
    )
    assert bought("leased.stores.memory.MemoryStore.acquire") == "the store: the rules of a lease"
    assert bought("psycopg.connection.Connection.execute") == "the driver"
    assert bought("base_events.BaseEventLoop._run_once") == "the event loop"
    codes = {"leased.engine.acquire": 70.0, "leased.queue.Place.leave": 5.0, "json.dumps": 25.0}
    assert list(shares(codes).values()) == [75.0, 25.0]


def test_steps_are_the_same_each_time() -> None:
    """What is counted does not depend on the time that it takes: twice the work is twice the count."""

    def work(times: int) -> int:
        return sum(number * number for number in range(times))

    once, again, more = (steps(partial(work, times)).total for times in (100, 100, 200))
    assert once == again
    assert more == pytest.approx(2 * once, rel=0.05)


def test_a_row_is_profiled(tmp_path: Path) -> None:
    """Counts of leased are those of an operation, those of the floor are less, and shares make up the whole."""
    (blocking, _) = started(profile, "memory-pair", tmp_path)
    assert 500 < blocking["codes"] < 5_000
    assert blocking["floor"]["codes"] < blocking["codes"] / 5
    assert sum(blocking["shares"].values()) == pytest.approx(blocking["codes"], abs=10)
    assert set(SUBJECTS) | {"cli-start"} == set(profile_page.ROWS)
