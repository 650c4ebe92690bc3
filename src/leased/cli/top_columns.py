"""The columns of the live view: which fit, how wide they are, what stands in them. It knows no terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leased.cli.output import printable, span
from leased.cli.top_rows import Condition, Row

SIGNS: dict[Condition, str] = {"renewing": "+", "held": "=", "at risk": "!", "ended": "-", "closed": "x"}
"""What stands before each word, so that rows differ without colour and at a glance."""

_GAP = 2
_BAR = 10
_ASCII_BAR = str.maketrans("━·", "#.")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its head, what it shows of a row at a moment, and how wide it is at least and at most. Those that
    have the highest `drops` go first where there is no room; what has 0 stays. `ends`: of what is too long its end is
    shown."""

    head: str
    show: Callable[[Row, float], str]
    least: int
    most: int
    drops: int
    right: bool = False
    ends: bool = False


def _state(row: Row, now: float) -> str:
    word = row.condition(now)
    return f"{SIGNS[word]} {word}"


def _bar(row: Row, now: float) -> str:
    share = row.share(now)
    if share is None:
        return ""
    filled = max(round(share * _BAR), 1 if share > 0 else 0)
    return "━" * filled + "·" * (_BAR - filled)


def _left(row: Row, now: float) -> str:
    left = row.left(now)
    return "-" if left is None else span(left)


COLUMNS = (
    Column("KEY", lambda row, now: row.seen.key, 12, 255, 0),
    Column("STATE", _state, 10, 10, 0),
    Column("OWNER", lambda row, now: row.seen.owner or "-", 6, 40, 4),
    Column("HELD BY", lambda row, now: _holder(row), 8, 80, 5, ends=True),  # the machine and the process are there
    Column("FENCING TOKEN", lambda row, now: _number(row.seen.fencing_token), 16, 16, 3),
    Column("LEFT", _left, 6, 7, 0, right=True),
    Column("", _bar, _BAR, _BAR, 6),
    Column("RENEWED", lambda row, now: str(row.renewals or "-"), 7, 7, 8, right=True),
    Column("WAITING", lambda row, now: _number(row.seen.waiters), 7, 7, 7, right=True),
)


def _holder(row: Row) -> str:
    """Who holds it, and from which machine: a lock service names its principals, and what they say of themselves is in
    the metadata."""
    seen, machine = row.seen, machine_of(row.seen.metadata)
    known = seen.held_by or "-"
    return known if machine is None or known.endswith(machine.rpartition("@")[2]) else f"{known} {machine}"


def machine_of(metadata: Mapping[str, Any]) -> str | None:
    """`program@host:pid` of a holder, as the library writes it of itself; `None` where there is none."""
    host, pid, program = metadata.get("host"), metadata.get("pid"), metadata.get("program")
    if not isinstance(host, str) or not host:
        return None
    process = f":{pid}" if isinstance(pid, int) and not isinstance(pid, bool) else ""
    return f"{program if isinstance(program, str) else ''}@{host}{process}"


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def cells_of(text: str) -> int:
    """How many cells of a terminal this text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def harmless(text: str, *, fine: bool = True) -> str:
    """Text that steers no terminal; where none but ASCII can be shown, with all other characters written out, since the
    stream would do that later, and make it longer than it was measured."""
    text = printable(text)
    return text if fine or text.isascii() else text.encode("ascii", "backslashreplace").decode()


def fitted(text: str, width: int, *, right: bool = False, fine: bool = True, ends: bool = False) -> str:
    """Text made harmless, and of exactly this width: what is too long is cut and says so. `ends`: its end stays."""
    text = harmless(text, fine=fine)
    spare = width - cells_of(text)
    if spare >= 0:
        return " " * spare + text if right else text + " " * spare
    if width < 1:
        return ""
    mark = "…" if fine else "~"
    if ends:
        return mark + _tail(text, width - 1)
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + mark


def _tail(text: str, width: int) -> str:
    """The end of a text that is wider than that, in exactly so many cells."""
    place = max(len(text) - width, 0)
    while cells_of(text[place:]) > width:
        place += 1
    return " " * (width - cells_of(text[place:])) + text[place:]


def chopped(text: str, width: int, *, fine: bool = True) -> list[str]:
    """Text made harmless, in pieces of at most this width; one empty piece where there is nothing."""
    from rich.cells import chop_cells

    return chop_cells(harmless(text, fine=fine), max(width, 2)) or [""]


def layout(rows: Sequence[Row], width: int, *, now: float, fine: bool = True) -> list[tuple[Column, int]]:
    """The columns that fit for these rows, with their widths: first all get their least, then what they would use."""
    columns = [column for column in COLUMNS if column.head != "WAITING" or _any_waiters(rows)]
    while sum(column.least + _GAP for column in columns) - _GAP > width and any(one.drops for one in columns):
        columns.remove(max(columns, key=lambda column: column.drops))
    spare = width - sum(column.least + _GAP for column in columns) + _GAP
    widths = {column.head: column.least for column in columns}
    wanted = {
        column.head: min(
            column.most, max((cells_of(harmless(column.show(row, now), fine=fine)) for row in rows), default=0)
        )
        - column.least
        for column in columns
    }
    for head, more in sorted(wanted.items(), key=lambda item: item[1]):  # the modest first; the rest share what is left
        open_still = sum(1 for other in wanted.values() if other >= more) if more > 0 else 1
        given = max(min(more, spare // open_still), 0)
        widths[head] += given
        spare -= given
    return [(column, widths[column.head]) for column in columns]


def _any_waiters(rows: Sequence[Row]) -> bool:
    return any(row.seen.waiters is not None for row in rows)


def line_of(columns: Sequence[tuple[Column, int]], row: Row, *, now: float, fine: bool) -> list[tuple[Column, str]]:
    """What stands in each column for a row, of the width of the column."""
    shown = [(column, column.show(row, now), width) for column, width in columns]
    if not fine:
        shown = [(one, text if one.head else text.translate(_ASCII_BAR), width) for one, text, width in shown]
    return [(one, fitted(text, width, right=one.right, fine=fine, ends=one.ends)) for one, text, width in shown]


def head_of(columns: Sequence[tuple[Column, int]], *, fine: bool) -> str:
    """The line above the rows."""
    return (" " * _GAP).join(fitted(column.head, width, right=column.right, fine=fine) for column, width in columns)
