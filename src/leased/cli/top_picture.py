"""The picture of the live view: from what it knows to lines of styled text that fill a screen. It writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Literal, TypeAlias

from leased.cli.by_key import none_of, rows_of
from leased.cli.output import span
from leased.cli.top_columns import cells_of, chopped, fitted, head_of, layout, line_of
from leased.cli.top_rows import Condition, Row
from leased.cli.top_view import View, resized
from leased.model import Status

Style: TypeAlias = Literal["plain", "strong", "faint", "good", "warning", "bad", "head"]
Line: TypeAlias = tuple[tuple[str, Style], ...]

FRAME_LINES = 5
"""Lines of the screen that are not for rows: two of title, one that tells or asks, the head, and the keys. A text
has no head, and so a line more."""

_STYLES: dict[Condition, Style] = {
    "renewing": "good",
    "held": "plain",
    "at risk": "bad",
    "ended": "warning",
    "closed": "warning",
}
_HINTS = "j k move   / filter   s sort   f force release   enter details   p pause   ? help   q quit"
_HELP = (
    ("arrows, j k", "move; page up, page down, home, end (g, G) go further"),
    ("/", "show only keys that begin with what you type; the store is asked for no others"),
    ("s", "sort by key, time left, owner, or age (the oldest first)"),
    ("enter", "all that anyone may see of one key"),
    ("f", "force release: it asks, and ends only the lease that it shows, never its successor"),
    ("p", "pause and go on; while it is paused the store is not asked"),
    ("q, ctrl-c", "quit; ctrl-z stops, fg goes on"),
    ("", ""),
    ("+ renewing", "its lease was renewed while you watched"),
    ("= held", "no renewal was seen yet, or nobody renews it"),
    ("! at risk", "it was renewed before, and renewals have not come for a third of the lease"),
    ("- ended", "its time has run out since the last look"),
    ("x closed", "nobody has it and nobody can get it: for the time left it is kept closed"),
    ("LEFT, bar", "time until it ends unless renewed; the bar is full at the most that was seen of this lease"),
    ("RENEWED", "renewals that were seen while you watched, at least"),
    ("WAITING", "how many wait for it; only the lock service knows, each replica its own"),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where and when the picture is shown: the size of the screen in cells, the moment on our clock, the name of the
    store, the time between looks; `fine` where characters beyond ASCII can be shown."""

    width: int
    height: int
    now: float
    place: str
    interval: float
    fine: bool = True


def fit(view: View, frame: Frame) -> View:
    """The view on this screen: as many rows as it has room for, a text scrolled no further than to its last line."""
    text = len(_body(view, frame)) if view.mode in {"details", "help"} else 0
    room = frame.height - FRAME_LINES
    return resized(view, room, furthest=max(text - max(room + 1, 1), 0))


def picture(view: View, frame: Frame) -> tuple[Line, ...]:
    """The lines of the whole screen, each exactly as wide, and as many as it has."""
    body = _body(view, frame)
    if view.mode in {"details", "help"}:
        body = body[view.scrolled :]
    top = [_title(frame), _counts(view, frame, now=view.now(frame.now)), _telling(view, frame)]
    blank: Line = ((" " * frame.width, "plain"),)
    body = [*body, *[blank] * frame.height][: max(frame.height - len(top) - 1, 0)]
    lines = [*top, *body, _whole(_HINTS if view.mode == "table" else _closing(view), "faint", frame)]
    return tuple(lines[: frame.height])


def _body(view: View, frame: Frame) -> list[Line]:
    """The table, or all lines of a text."""
    match view.mode:
        case "help":
            return _pairs(_HELP, frame)
        case "details" | "confirm":
            return _details(view, frame, now=view.now(frame.now))
        case _:
            return _table(view, frame, now=view.now(frame.now))


def _whole(text: str, style: Style, frame: Frame) -> Line:
    return ((fitted(text, frame.width, fine=frame.fine), style),)


def _title(frame: Frame) -> Line:
    return _whole(f"leased top  {frame.place}", "strong", frame)


def _counts(view: View, frame: Frame, *, now: float) -> Line:
    rows = view.shown
    words = [row.condition(now) for row in rows]
    counted = ", ".join(f"{words.count(word)} {word}" for word in _STYLES if word in words)
    keys = f"{len(rows)} key{'' if len(rows) == 1 else 's'}"
    parts = [f"{keys}: {counted}" if counted else keys, f"by {view.sort}"]
    prefix = view.typed if view.mode == "filter" else view.prefix
    parts += [f"that begin with {prefix!r}"] if prefix else []
    parts += [f"paused for {span(frame.now - view.paused_at)}"] if view.paused_at is not None else []
    parts += [f"every {span(frame.interval)}"] if view.paused_at is None else []
    if view.more:
        parts.insert(1, f"only the first {len(view.rows or {})} of more, in the order of keys: filter with /")
    return _whole("   ".join(parts), "warning" if view.more else "plain", frame)


def _telling(view: View, frame: Frame) -> Line:
    """The line in which it asks, or tells of a failure or of what was done."""
    if view.mode == "filter":
        return _whole(f"keys that begin with: {view.typed}_", "strong", frame)
    if view.mode == "confirm" and view.subject is not None:
        number = view.subject.seen.fencing_token
        return _whole(f"Force release fencing token {number}? [y/N]", "bad", frame)
    if view.failure is not None:
        since = "" if view.rows is None else "; what is shown was seen before"
        return _whole(f"! {view.failure}{since}; asking again", "bad", frame)
    return _whole(view.told or "", "warning", frame)


def _closing(view: View) -> str:
    match view.mode:
        case "filter":
            return "enter: filter   escape: as before   ctrl-u: all"
        case "confirm":
            return "y: release it   any other key: leave it"
        case "details":
            return "escape back   f force release   j k scroll   p pause"
        case _:
            return "escape back   j k scroll"


def _table(view: View, frame: Frame, *, now: float) -> list[Line]:
    if not view.shown:
        prefix = view.typed if view.mode == "filter" else view.prefix
        words = "asking the store ..." if view.rows is None else f"{none_of(prefix)} is held or closed"
        return [_whole("", "plain", frame), _whole(words, "faint", frame)]
    visible = view.shown[view.first : view.first + view.room]
    columns = layout(visible, frame.width - 2, now=now, fine=frame.fine)
    lines = [_whole(f"  {head_of(columns, fine=frame.fine)}", "head", frame)]
    for place, row in enumerate(visible, view.first):
        cells: list[tuple[str, Style]] = [("> " if place == view.place else "  ", "strong")]
        for number, (column, text) in enumerate(line_of(columns, row, now=now, fine=frame.fine)):
            cells.append((f"{'' if not number else '  '}{text}", _style(view, column.head, row, now=now, place=place)))
        lines.append(_exactly(cells, frame))
    return lines


def _style(view: View, head: str, row: Row, *, now: float, place: int) -> Style:
    if view.failure is not None:
        return "faint"
    if head in {"STATE", ""}:
        return _STYLES[row.condition(now)]
    return "strong" if place == view.place else "plain"


def _exactly(cells: list[tuple[str, Style]], frame: Frame) -> Line:
    """The cells with the rest of the line; all of it cut alike where a screen is too narrow for any table."""
    spare = frame.width - sum(cells_of(text) for text, _ in cells)
    if spare < 0:
        return _whole("".join(text for text, _ in cells), "plain", frame)
    return (*cells, (" " * spare, "plain"))


def _details(view: View, frame: Frame, *, now: float) -> list[Line]:
    row = view.subject
    if row is None:
        return []
    pairs = [(name, value) for name, value in rows_of(_as_now(row, now=now)) if value is not None]
    if row.renewals:
        times = "once" if row.renewals == 1 else f"{row.renewals} times"
        pairs.append(("renewed", f"{times} or more while you watched"))
    if view.gone:
        pairs = [("", "it is free now; this is what was seen last"), *pairs]
    if view.mode == "confirm":
        pairs += [
            ("", ""),
            ("", "Its work goes on unless it notices: others may run beside it where nothing checks fencing tokens."),
            ("", "Only the lease with this fencing token is ended, never one that came after it."),
        ]
    return _pairs(pairs, frame)


def _as_now(row: Row, *, now: float) -> Status:
    """What was seen, with the time left as it is now."""
    left = row.left(now)
    return replace(row.seen, expires_in=left) if row.seen.state == "held" else replace(row.seen, free_in=left)


def _pairs(pairs: Sequence[tuple[str, str]], frame: Frame) -> list[Line]:
    """Names and values, values on as many lines as they need: our own words, which have no name, cut between words."""
    width = min(max((len(name) for name, _ in pairs), default=0), 24) + 2
    lines = []
    for name, value in pairs:
        room = max(frame.width - width, 2)
        pieces = wrap(value, room) or [""] if not name or pairs is _HELP else chopped(value, room, fine=frame.fine)
        for number, piece in enumerate(pieces):
            left = fitted("" if number else name, width, fine=frame.fine)
            lines.append(_exactly([(left, "strong"), (piece, "plain")], frame))
    return lines
