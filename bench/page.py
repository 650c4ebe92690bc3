"""The page of results, written from the record beside it; neither is edited by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from bench import ahead
from bench.contender import ROOT
from bench.measure import Line, Result, Table, Verdict, shown
from bench.plot import plot
from bench.rows import ROWS

RECORD = ROOT / "docs" / "benchmarks.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PLOT = ROOT / "docs" / "benchmarks.svg"

_INTRODUCTION = """\
# Benchmarks

Written by `make bench`, never by hand (`make bench ROW="sqlite-pair import"` measures only those rows anew). The
numbers are also in [benchmarks.json](benchmarks.json).

Every row compares leased with a *floor*, the same work with nothing around it, and with peers at their default
settings, in one run: contenders take turns, block by block, in random order. A ratio is the median of the ratios of
neighbouring blocks, so that what slows the machine down for a while slows down both sides. CPU is that of the client
process, in µs an operation; it moves less than the clock. A *pair* is one acquire and one release.

No test judges these times, which are those of one machine on one day. What must not creep up is counted instead, by
the tests in `tests/counts`, on real servers: round trips, commands and statements of a pair, of fifty callers at once
and of a key that passes from one waiter to the next; byte codes, calls and bytes of a pair; threads, connections and
wake-ups of 1,000 who wait; modules that a start loads. Such numbers are the same on a busy machine. Each bound is
exact or a tenth above what was counted, and stands there with its reason.

![How many times the floor leased and its peers take, row by row, with the targets](benchmarks.svg)
"""


def keep(result: Result, *, command: str, conditions: Mapping[str, str]) -> None:
    """Replace this row in the record, and write the page anew."""
    record = _read()
    record[result.row] = {"command": command, "conditions": dict(conditions), **asdict(result)}
    rows = (f'"{row}": {json.dumps(_rounded(record[row]), ensure_ascii=False)}' for row in ROWS if row in record)
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    write(_read())


def write(record: Mapping[str, Any]) -> None:
    """The page and its plot for a record."""
    PAGE.write_text(page(record))
    PLOT.write_text(plot(record))


def page(record: Mapping[str, Any]) -> str:
    """The whole page for a record."""
    missing = [row for row in ROWS if row not in record]
    parts = [_INTRODUCTION + (f"\nNot measured yet: {', '.join(missing)}.\n" if missing else "")]
    parts.append("\n".join(ahead.lines(record)) + "\n")
    for row in ROWS:
        if row in record:
            kept = record[row]
            where = ". ".join(f"{name}: {value}" for name, value in kept["conditions"].items())
            parts.append(f"## {row}\n\n{section(_result(kept))}\n`{kept['command']}`. {where}.\n")
    return "\n".join(parts)


def section(result: Result) -> str:
    """One row as Markdown, without its heading."""
    parts = [result.how + "\n"]
    parts += ["\n".join(_table(table)) + "\n" for table in result.tables]
    verdicts = [(one.target, one.measured, "met" if one.met else "**missed**") for one in result.verdicts]
    parts.append("\n".join(_rows(("target", "measured", ""), verdicts)) + "\n")
    return "\n".join(parts)


def _table(table: Table) -> Iterator[str]:
    peers = list(dict.fromkeys(name for line in table.lines for name in line.to_peers))
    with_floor = any(line.to_floor is not None for line in table.lines)
    with_cpu = any(line.cpu is not None for line in table.lines)
    titles = ["", table.unit, "from – to"]
    titles += ["CPU µs"] if with_cpu else []
    titles += ["x floor"] if with_floor else []
    titles += ["x floor, CPU"] if with_floor and with_cpu else []
    titles += [f"x {name}" for name in peers]
    rows = []
    for line in table.lines:
        row = [_called(line), shown(line.median), f"{shown(line.least)} – {shown(line.most)}"]
        row += [_optional(line.cpu)] if with_cpu else []
        row += [_optional(line.to_floor)] if with_floor else []
        row += [_optional(line.cpu_to_floor)] if with_floor and with_cpu else []
        row += [_optional(line.to_peers.get(name)) for name in peers]
        rows.append(row)
    yield f"**{table.title}**\n"
    yield from _rows(titles, rows)


def _called(line: Line) -> str:
    return line.name if line.role == "leased" else f"{line.name} ({line.role})"


def _optional(value: float | None) -> str:
    return "" if value is None else shown(value)


def _rows(titles: Any, rows: Any) -> Iterator[str]:
    yield "| " + " | ".join(titles) + " |"
    yield "| --- |" + " ---: |" * (len(titles) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _rounded(value: Any) -> Any:
    """The same with four digits that count in every number that was measured."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def _read() -> dict[str, Any]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def _result(kept: Mapping[str, Any]) -> Result:
    tables = [Table(one["title"], one["unit"], [Line(**line) for line in one["lines"]]) for one in kept["tables"]]
    return Result(kept["row"], kept["how"], tables, [Verdict(**one) for one in kept["verdicts"]])
