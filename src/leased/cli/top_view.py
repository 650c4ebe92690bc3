"""What the live view knows, and what looks and keys make of it. It asks and draws nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from leased.cli.top_rows import Row, follow
from leased.model import Status
from leased.policy import MAX_KEY_LENGTH

Mode: TypeAlias = Literal["table", "filter", "confirm", "details", "help"]
Sort: TypeAlias = Literal["key", "time left", "owner", "age"]

_ORDERS: dict[Sort, Callable[[Row], tuple[Any, ...]]] = {
    "key": lambda row: (row.seen.key.encode(errors="surrogatepass"),),
    "time left": lambda row: (row.left(row.at) is None, row.left(row.at) or 0.0, row.seen.key),
    "owner": lambda row: (row.seen.owner is None, row.seen.owner or "", row.seen.key),
    "age": lambda row: (row.seen.acquired_at is None, row.seen.acquired_at or 0.0, row.seen.key),
}
"""By what rows are sorted, in the order in which one key goes through them. All leases run down alike, so that the time
left at the look gives their order at any later moment."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the store listed for a prefix at the moment `at` of our clock. `more`: there are more keys than that.
    `detail` is what it says of the one key that is shown in full."""

    prefix: str
    found: tuple[Status, ...]
    at: float
    more: bool = False
    detail: Status | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The wish to end a lease by force: this one, and none that comes after it."""

    key: str
    fencing_token: int


Wish: TypeAlias = Literal["quit", "redraw"] | Release
"""What a key asks for beyond the view itself."""


@dataclass(frozen=True, slots=True)
class View:
    """All that the picture is made of, but the time and the size of the screen.

    `rows` are those of the last look by key, `shown` those that the filter leaves, sorted. `chosen` is the key that the
    cursor stays on once it was moved, `place` where the cursor is, `first` the place at the top, `room` how many fit.
    `subject` is the row whose details are shown or whose lease is about to be ended. Details and help are `scrolled` by
    so many lines, and by `furthest` at most.
    """

    prefix: str = ""
    sort: Sort = "key"
    mode: Mode = "table"
    rows: Mapping[str, Row] | None = None
    shown: tuple[Row, ...] = ()
    more: bool = False
    chosen: str | None = None
    place: int = 0
    first: int = 0
    room: int = 1
    typed: str = ""
    subject: Row | None = None
    gone: bool = False
    scrolled: int = 0
    furthest: int = 0
    failure: str | None = None
    told: str | None = None
    paused_at: float | None = None

    def now(self, clock: float) -> float:
        """The moment that is shown: the present one, unless the view is paused."""
        return clock if self.paused_at is None else self.paused_at


def looked(view: View, look: Look) -> View:
    """The view after a look. One that was asked for something else, or came while it was paused, changes nothing."""
    if look.prefix != view.prefix or view.paused_at is not None:
        return view
    rows = follow(view.rows or {}, look.found, at=look.at)
    view = replace(view, rows=rows, more=look.more, failure=None)
    if view.subject is not None:
        view = _subject_after(view, view.subject, look)
    return _settled(view)


def _subject_after(view: View, subject: Row, look: Look) -> View:
    """What became of the one key in question; a lease that came later is never ended in its place."""
    key = subject.seen.key
    row = (view.rows or {}).get(key)
    if view.mode == "confirm" and (row is None or row.seen.fencing_token != subject.seen.fencing_token):
        now_is = "is free now" if row is None else f"now has fencing token {row.seen.fencing_token}"
        return replace(view, mode="table", subject=None, told=f"{key!r} {now_is}: nothing was released")
    if row is None:
        return replace(view, gone=True)
    if look.detail is not None and look.detail.fencing_token == row.seen.fencing_token:
        row = replace(row, seen=replace(row.seen, waiters=look.detail.waiters))
    return replace(view, subject=row, gone=False)


def failed(view: View, message: str) -> View:
    """The view after a look that failed: the last picture stays, and says so."""
    return view if view.paused_at is not None else replace(view, failure=message)


def told(view: View, message: str) -> View:
    """The view with a line about what was done."""
    return replace(view, told=message)


def resized(view: View, room: int, *, furthest: int = 0) -> View:
    """The view on a screen with room for so many rows, whose details or help go on for `furthest` lines below it."""
    view = replace(view, furthest=furthest, scrolled=min(view.scrolled, furthest))
    room = max(room, 1)
    return view if room == view.room else _placed(replace(view, room=room))


def press(view: View, key: str, *, now: float) -> tuple[View, Wish | None]:
    """What a key makes of the view, and what it asks for. Keys are called by name (`up`, `enter`, `escape` …) or are
    the character they type."""
    if key == "redraw":
        return view, "redraw"
    if key == "p" and view.mode in {"table", "details"}:
        return replace(view, paused_at=now if view.paused_at is None else None), None
    return _KEYS[view.mode](view, key)


def _in_table(view: View, key: str) -> tuple[View, Wish | None]:
    view = replace(view, told=None)
    steps = _STEPS.get(key)
    if steps is not None:
        return _moved(view, steps(view, len(view.shown))), None
    row = view.shown[view.place] if view.shown else None
    match key:
        case "q":
            return view, "quit"
        case "?":
            return replace(view, mode="help", scrolled=0), None
        case "/":
            return replace(view, mode="filter", typed=view.prefix), None
        case "s":
            return _settled(replace(view, sort=_following(view.sort))), None
        case "enter" if row is not None:
            return replace(view, mode="details", subject=row, gone=False, scrolled=0), None
        case "f" if row is not None:
            return _asked(view, row), None
        case _:
            return view, None


def _in_filter(view: View, key: str) -> tuple[View, Wish | None]:
    match key:
        case "enter":
            return _settled(replace(view, mode="table", prefix=view.typed)), None
        case "escape":
            return _settled(replace(view, mode="table")), None
        case "backspace":
            typed = view.typed[:-1]
        case "clear":
            typed = ""
        case _ if len(key) == 1 and key.isprintable():
            typed = (view.typed + key)[:MAX_KEY_LENGTH]
        case _:
            return view, None
    return _settled(replace(view, typed=typed)), None


def _in_confirm(view: View, key: str) -> tuple[View, Wish | None]:
    subject, view = view.subject, replace(view, mode="table", subject=None)
    number = None if subject is None else subject.seen.fencing_token
    if key != "y" or subject is None or number is None:
        return replace(view, told="nothing was released"), None
    return replace(view, told=f"releasing {subject.seen.key!r} …"), Release(subject.seen.key, number)


def _in_details(view: View, key: str) -> tuple[View, Wish | None]:
    match key:
        case "q" | "escape" | "enter" | "left":
            return replace(view, mode="table", subject=None), None
        case "f" if view.subject is not None and not view.gone:
            return _asked(view, view.subject), None
        case _:
            return _scrolled(view, key), None


def _in_help(view: View, key: str) -> tuple[View, Wish | None]:
    if key in {"q", "escape", "enter", "?", "left"}:
        return replace(view, mode="table"), None
    return _scrolled(view, key), None


_KEYS: dict[Mode, Callable[[View, str], tuple[View, Wish | None]]] = {
    "table": _in_table,
    "filter": _in_filter,
    "confirm": _in_confirm,
    "details": _in_details,
    "help": _in_help,
}

_STEPS: dict[str, Callable[[View, int], int]] = {
    "up": lambda view, length: -1,
    "k": lambda view, length: -1,
    "down": lambda view, length: 1,
    "j": lambda view, length: 1,
    "page up": lambda view, length: -view.room,
    "page down": lambda view, length: view.room,
    "home": lambda view, length: -length,
    "g": lambda view, length: -length,
    "end": lambda view, length: length,
    "G": lambda view, length: length,
}
"""By how much a key moves in what is so long: by rows in the table, by lines in a text."""


def _asked(view: View, row: Row) -> View:
    """The view that asks whether the lease of this row is to be ended."""
    if row.seen.fencing_token is None:
        return replace(
            view, told=f"what is recorded of {row.seen.key!r} has no fencing token: see leased force-release"
        )
    return replace(view, mode="confirm", subject=row)


def _scrolled(view: View, key: str) -> View:
    steps = _STEPS.get(key)
    if steps is None:
        return view
    return replace(view, scrolled=min(max(view.scrolled + steps(view, view.furthest), 0), view.furthest))


def _following(sort: Sort) -> Sort:
    orders = list(_ORDERS)
    return orders[(orders.index(sort) + 1) % len(orders)]


def _moved(view: View, steps: int) -> View:
    if not view.shown:
        return view
    place = min(max(view.place + steps, 0), len(view.shown) - 1)
    return _placed(replace(view, place=place, chosen=view.shown[place].seen.key))


def _settled(view: View) -> View:
    """With rows filtered and sorted, and the cursor where it can be."""
    prefix = view.typed if view.mode == "filter" else view.prefix
    left = [row for row in (view.rows or {}).values() if row.seen.key.startswith(prefix)]
    shown = tuple(sorted(left, key=_ORDERS[view.sort]))
    here = min(view.place, max(len(shown) - 1, 0))
    place = next((at for at, row in enumerate(shown) if row.seen.key == view.chosen), here)
    return _placed(replace(view, shown=shown, place=place))


def _placed(view: View) -> View:
    """With the row under the cursor among those that fit, and the cursor on its key if it was moved."""
    most = max(len(view.shown) - view.room, 0)
    first = min(max(view.first, view.place - view.room + 1), view.place, most)
    chosen = view.shown[view.place].seen.key if view.shown and view.chosen is not None else None
    return replace(view, first=first, chosen=chosen)
