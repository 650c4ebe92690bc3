"""How things are shown: as JSON or as tables, talk in lines, harmless to a terminal. It decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leased.cli.streams import is_terminal, murmur, write

_BOLD = "1"
_RED = "31"
_YELLOW = "33"
_COLUMN_GAP = "  "
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def printable(text: str) -> str:
    """Text as it may reach a terminal: on one line, with control characters and direction marks escaped, uncut."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def span(seconds: float) -> str:
    """A duration for people: `0.4 s`, `12 s`, `3 min 20 s` as `3m20s`, `2h05m`, `4d3h`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for (size, unit), (smaller, name) in zip(_UNITS, [*_UNITS[1:], (1, "s")], strict=True):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}{rest}{name}" if rest else f"{whole // size}{unit}"
    raise AssertionError(whole)


def moment(seconds: float | None) -> str | None:
    """An instant as JSON has it: RFC 3339 in UTC with milliseconds."""
    if seconds is None:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_time(seconds: float) -> str:
    """An instant as people read it: the time of day here, with the date unless it is today."""
    from datetime import UTC, datetime

    then = datetime.fromtimestamp(seconds, UTC).astimezone()
    return then.strftime("%H:%M:%S" if then.date() == datetime.now(UTC).astimezone().date() else "%Y-%m-%d %H:%M:%S")


def milliseconds(seconds: float | None) -> int | None:
    """Seconds as the integer milliseconds of JSON."""
    return None if seconds is None else round(seconds * 1000)


@dataclass(frozen=True, slots=True)
class Output:
    """Where data and talk go. `json` is for programs: one object a line; otherwise tables."""

    json: bool
    color: bool

    @classmethod
    def choose(cls, environment: Mapping[str, str], *, json: bool) -> Output:
        """JSON where asked for or where the output is no terminal; colour only on terminals, without `NO_COLOR`."""
        color = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        return cls(json=json or not is_terminal(sys.stdout), color=color)

    def record(self, data: Mapping[str, Any], rows: Iterable[tuple[str, str | None]]) -> None:
        """One thing: `data` as JSON, or `rows` of name and value, of which `None` values are left out."""
        if self.json:
            self.lines([data])
            return
        shown = [(printable(name), printable(value)) for name, value in rows if value is not None]
        width = max((len(name) for name, _ in shown), default=0)
        write("".join(f"{self._paint(name.ljust(width), _BOLD)}{_COLUMN_GAP}{value}\n" for name, value in shown))

    def lines(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Records as JSON, one a line, in ASCII."""
        import json

        for record in records:
            write(json.dumps(record, separators=(",", ":")) + "\n")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows under a head; nothing at all where there are none."""
        if not rows:
            return
        cells = [[_short(printable(cell)) for cell in row] for row in rows]
        widths = [max(len(name), *(len(row[at]) for row in cells)) for at, name in enumerate(head)]
        first, *rest = (
            _COLUMN_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [head, *cells]
        )
        write("\n".join([self._paint(first, _BOLD), *rest, ""]))

    def talk(self, message: str) -> None:
        """A line for people."""
        self._tell("leased:", message, _BOLD)

    def warn(self, message: str) -> None:
        """A line for people about what may go wrong."""
        self._tell("leased: warning:", message, _YELLOW)

    def complain(self, message: str) -> None:
        """A line for people about what went wrong."""
        self._tell("leased:", message, _RED)

    def hint(self, message: str | None) -> None:
        """A line for people about what to do next, where there is something."""
        if message:
            self._tell("hint:", message, _BOLD)

    def _tell(self, label: str, message: str, code: str) -> None:
        label = f"\x1b[{code}m{label}\x1b[0m" if self.color and is_terminal(sys.stderr) else label
        murmur(f"{label} {printable(message)}\n")

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and is_terminal(sys.stdout) else text


def _short(cell: str) -> str:
    return f"{cell[:47]}…" if len(cell) > 48 else cell
