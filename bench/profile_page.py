"""The page that says where the time goes, written from the record beside the benchmarks; neither is edited by hand."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.contender import ROOT
from bench.page import RECORD as MEASURED
from bench.profiling import SUBJECTS, profile
from bench.starts import starts

RECORD = ROOT / "docs" / "profiles.json"
PAGE = ROOT / "docs" / "explanation" / "costs.md"
ROWS = (*SUBJECTS, "cli-start")
ELSEWHERE = {
    "sqlite-pair": "it executes what one of the many of [sqlite-many](#sqlite-many) does, and the rest is the disk's",
    "hand-off": "it lies between two processes, and is a pair of the store with a message of the server in between",
    "herd": "it is that of the pair of the store, once for each who is served",
}
"""Rows that have no count of their own, and why."""

_INTRODUCTION = """\
# Where the time goes

Written by `python -m bench --profile`, never by hand; the numbers are also in [profiles.json](../profiles.json).
It explains the rows of [the benchmarks](../benchmarks.md) that miss their target, and those that once did.

Nothing here is a time. Counted is what one operation executes: byte codes of Python in the thread that asks, the Python
functions it enters, and the system calls of its whole process (by `strace`; none are given where that is missing).
They are the same on a busy machine as on an idle one, and the time follows them: a byte code took some 15 ns in the
row memory-pair, a system call that sends or waits takes microseconds. What the *floor* executes any lock on that store
needs. The rest is what a lease costs, by what it buys.
"""

_BUYS = """\
## What one could leave out

What is above the floor is not waste that nobody has looked at. Most of it is there for a day on which something
goes wrong:

- *Whose connection it is* and *whether it lives* (a `poll` before each use): a forked child that spoke on the
  connection of its parent would take its parent's answers, and one that the server closed would fail the first
  call after every idle hour.
- *Budgets of time*: each call ends in time, whatever the server does, and a wait ends when it should.
- *The line of a key*: who came first in this process is first, and a thousand waiters ask as often as one.
- *What a holder may believe*: the deadline is that of the moment before the request left, and counts suspend.
- *A token of its own for each attempt*, of the system's random source: an answer that got lost is asked for again, and
  no grant is forgotten or used twice.
- *Joining* costs a lone caller a look whether others wait, and saves fifty of them most of their round trips.

A lock without these is the floor; the [comparison](comparison.md) says which tool leaves out what.
"""


def keep(rows: list[str]) -> None:
    """Profile these rows anew (all, if none are given), and write the page."""
    record = _read()
    for row in rows or ROWS:
        with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
            lines = starts(Path(directory)) if row == "cli-start" else profile(row, Path(directory))
        record[row] = {"counted": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "load": _load(), "lines": lines}
        ordered = (f'"{name}": {json.dumps(record[name], ensure_ascii=False)}' for name in ROWS if name in record)
        RECORD.write_text("{\n" + ",\n".join(ordered) + "\n}\n")
        write()
        print(section(row, record[row]), flush=True)


def write() -> None:
    """Write the page anew, for the records as they are."""
    PAGE.write_text(page(_read(), json.loads(MEASURED.read_text())))


def page(record: Mapping[str, Any], measured: Mapping[str, Any]) -> str:
    """The whole page for a record of counts, and one of times."""
    parts = [_INTRODUCTION, _missed(measured, record), _BUYS]
    parts += [section(row, record[row]) for row in ROWS if row in record]
    return "\n".join(parts)


def _missed(measured: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """The targets that are missed, with where each is explained."""
    rows = ["## Targets that are missed\n", "| row | target | measured |", "| --- | --- | ---: |"]
    for row, kept in measured.items():
        name = f"[{row}](#{row})" if row in record else row
        rows += [f"| {name} | {one['target']} | {one['measured']} |" for one in kept["verdicts"] if not one["met"]]
    missed = {row for row, kept in measured.items() if not all(one["met"] for one in kept["verdicts"])}
    rows += ["", *(f"- {row} has no count of its own: {why}." for row, why in ELSEWHERE.items() if row in missed)]
    return "\n".join(rows) + "\n"


def section(row: str, kept: Mapping[str, Any]) -> str:
    """One row as Markdown."""
    lines = ("\n".join(_start(line) if "modules" in line else _line(line)) for line in kept["lines"])
    parts = [f"## {row}\n", *(f"{line}\n" for line in lines)]
    busy = f"a load of {kept['load']:.1f} on {os.cpu_count()} CPUs" if kept["load"] >= 1 else "an idle machine"
    parts.append(f"Counted {kept['counted']} on {busy}.\n")
    return "\n".join(parts)


def _line(line: Mapping[str, Any]) -> Iterator[str]:
    yield f"**{line['title']}**: {_executed(line)}."
    if line["floor"]:
        yield f"Its floor: {_executed(line['floor'])}."
    yield "\n| what it buys | byte codes | share |\n| --- | ---: | ---: |"
    for words, count in line["shares"].items():
        yield f"| {words} | {count:,} | {count / line['codes']:.0%} |"
    dearest = ", ".join(f"`{name.removeprefix('leased.')}` {count:,}" for name, count in line["top"].items())
    yield f"\nThe dearest functions: {dearest}."


def _executed(counts: Mapping[str, Any]) -> str:
    calls = ", ".join(f"{name} {count:g}" for name, count in counts["system calls"].items())
    return f"{counts['codes']:,} byte codes in {counts['calls']:,} functions; system calls: {calls or 'none'}"


def _start(line: Mapping[str, Any]) -> Iterator[str]:
    calls = ", ".join(f"{name} {count:,}" for name, count in line["most"].items())
    yield (
        f"**{line['title']}** loads {line['modules']} modules, {line['of leased']} of them of leased, with "
        f"{line['system calls']:,} system calls ({calls or 'not counted'})."
    )


def _load() -> float:
    return round(os.getloadavg()[0], 1)


def _read() -> dict[str, Any]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}
