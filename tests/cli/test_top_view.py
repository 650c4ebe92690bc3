"""`leased top` without a terminal: what looks and keys make of the view, and what the picture of it says."""

from dataclasses import replace
from typing import Any

import pytest

from leased import Status
from leased.cli.top_columns import cells_of, machine_of
from leased.cli.top_keys import Keys
from leased.cli.top_picture import FRAME_LINES, Frame, Line, fit, picture
from leased.cli.top_rows import Row, follow
from leased.cli.top_view import Look, Release, View, failed, looked, press, resized, told
from leased.policy import MAX_KEY_LENGTH

HOSTILE = "a\u202eb<script>\x1b[31m\u200f\u2028\U000e0041"
FRAME = Frame(width=120, height=20, now=100.0, place="sqlite:/locks.db", interval=2.0)


def held(key: str, *, left: float | None = 30.0, token: int | None = 7, **more: Any) -> Status:
    """A key under a lease."""
    return Status(key, state="held", expires_in=left, fencing_token=token, **more)


def closed(key: str, *, left: float, token: int = 7) -> Status:
    """A key that is closed."""
    return Status(key, state="closed", free_in=left, fencing_token=token)


def seeing(*found: Status, at: float = 100.0, view: View | None = None, **more: Any) -> View:
    """A view, on a screen with room for ten rows, after a look that found these."""
    before = resized(View(), 10) if view is None else view
    return looked(before, Look(before.prefix, found, at, **more))


def typed(view: View, *keys: str, now: float = 100.0) -> View:
    """The view after these keys, none of which asks for anything."""
    for key in keys:
        view, wish = press(view, key, now=now)
        assert wish is None
    return view


def text(line: Line) -> str:
    """A line without its styles."""
    return "".join(piece for piece, _ in line)


def screen(view: View, **frame: Any) -> str:
    """The picture as text."""
    return "\n".join(text(line) for line in picture(view, replace(FRAME, **frame)))


def shown(view: View) -> list[str]:
    """Keys in the order in which they are shown."""
    return [row.seen.key for row in view.shown]


def after(*looks: tuple[float, Status]) -> Row:
    """The row of one key after looks at these moments."""
    rows: dict[str, Row] = {}
    for at, seen in looks:
        rows = follow(rows, [seen], at=at)
    (row,) = rows.values()
    return row


@pytest.mark.parametrize(
    ("looks", "now", "condition"),
    [
        ([(0, held("k"))], 1, "held"),
        ([(0, held("k")), (2, held("k", left=28))], 3, "held"),
        ([(0, held("k", left=20)), (2, held("k", left=30))], 3, "renewing"),
        ([(0, held("k", left=20)), (2, held("k", left=30))], 2 + 20.1, "at risk"),
        ([(0, held("k", left=20)), (2, held("k", left=30)), (30, held("k", left=30))], 31, "renewing"),
        ([(0, held("k", left=20)), (2, held("k", left=30, token=8))], 3, "held"),
        ([(0, held("k", left=3))], 3.1, "ended"),
        ([(0, held("k", left=None))], 99, "held"),
        ([(0, closed("k", left=5))], 1, "closed"),
        ([(0, closed("k", left=5)), (1, closed("k", left=9))], 2, "closed"),
    ],
)
def test_a_row_says_whether_its_lease_is_renewed(looks: list[tuple[float, Status]], now: float, condition: str) -> None:
    """8: renewing once a renewal of this lease was seen, at risk when it has run down since, held before."""
    assert after(*looks).condition(now) == condition


def test_an_answer_that_comes_late_is_no_renewal() -> None:
    """M7, 8: where looks take now shorter and now longer, time seems to be gained; by the store's clock it is not."""
    slow = [(0.0, held("k", left=60, expires_at=1060.0)), (9.0, held("k", left=55, expires_at=1060.1))]
    assert after(*slow).condition(10.0) == "held"
    assert after(*slow, (12.0, held("k", left=60, expires_at=1065.0))).condition(13.0) == "renewing"


def test_time_runs_down_between_looks_and_the_bar_is_measured_by_the_fullest() -> None:
    """8: the time left is that of the last answer less what has passed since; it never goes below nothing."""
    row = after((0.0, held("k", left=20)), (2.0, held("k", left=40)))
    assert (row.left(2.0), row.left(12.0), row.left(99.0)) == (40, 30, 0)
    assert (row.share(2.0), row.share(12.0), row.share(99.0)) == (1, 0.75, 0)
    assert (row.renewals, after((0.0, held("k", left=None))).share(1.0)) == (1, None)


def test_a_lease_that_came_after_inherits_nothing() -> None:
    """8: renewals and fullness are those of one lease, told by its fencing token."""
    row = after((0.0, held("k", left=20)), (2.0, held("k", left=40)), (3.0, held("k", left=5, token=8)))
    assert (row.full, row.renewals) == (5, 0)


def test_sorting_goes_through_key_time_owner_and_age() -> None:
    """8: each press of s takes the next order; whoever has no owner or no age comes last."""
    view = seeing(
        held("a", left=30, owner="z", acquired_at=50.0),
        held("b", left=10, acquired_at=20.0),
        closed("c", left=20),
        held("é", left=None, owner="y", acquired_at=90.0),
    )
    orders = {}
    for _ in range(4):
        orders[view.sort] = shown(view)
        view = typed(view, "s")
    assert orders == {
        "key": ["a", "b", "c", "é"],
        "time left": ["b", "c", "a", "é"],
        "owner": ["é", "a", "b", "c"],
        "age": ["b", "a", "é", "c"],
    }
    assert view.sort == "key"


def test_the_cursor_stays_on_its_key_once_it_was_moved() -> None:
    """8: a row that was chosen stays chosen while others come, go and are sorted; before that the top is."""
    view = seeing(held("b"), held("c"))
    view = seeing(held("a"), held("b"), held("c"), view=view)
    assert view.place == 0
    view = typed(view, "j")
    view = seeing(held("0"), held("1"), held("a"), held("b"), held("c"), view=view)
    assert shown(view)[view.place] == "b"
    view = seeing(held("0"), held("1"), held("a"), held("c"), view=view)
    assert shown(view)[view.place] == "c"
    assert seeing(view=view).place == 0


def test_keys_move_within_what_there_is() -> None:
    """8: by rows, pages and to the ends; the row under the cursor is always among those that are drawn."""
    view = seeing(*(held(f"k{number:03}") for number in range(25)))
    places = []
    for key in ("up", "k", "down", "j", "page down", "page down", "page down", "home", "end", "page up", "g", "G"):
        view = typed(view, key)
        places.append(view.place)
        assert view.first <= view.place < view.first + view.room
    assert places == [0, 0, 1, 2, 12, 22, 24, 0, 24, 14, 0, 24]
    view = resized(view, 3)
    assert view.first <= view.place < view.first + 3
    assert f"> k{view.place:03}" in screen(view, height=3 + FRAME_LINES)


def test_a_filter_shows_at_once_and_asks_for_itself_when_it_is_done() -> None:
    """8: while it is typed it narrows what is there; enter makes it what the store is asked for, escape forgets it."""
    view = seeing(held("app:1"), held("apple"), held("job"))
    view = typed(view, "/", "a", "p", "p", ":")
    assert (shown(view), view.prefix) == (["app:1"], "")
    assert "keys that begin with: app:_" in screen(view)
    assert shown(typed(view, "backspace")) == ["app:1", "apple"]
    assert shown(typed(view, "clear")) == ["app:1", "apple", "job"]
    assert shown(typed(view, "escape")) == ["app:1", "apple", "job"]
    done = typed(view, "enter")
    assert (done.prefix, done.mode, shown(done)) == ("app:", "table", ["app:1"])
    assert looked(done, Look("", (held("job"),), 101.0)) == done, "an answer to what was asked before"
    assert "no key that begins with 'app:' is held or closed" in screen(seeing(view=done))
    long = typed(view, *"x" * 300)
    assert len(long.typed) == MAX_KEY_LENGTH
    assert typed(view, "up", "\x07", "page down") == view


def test_force_release_sends_the_fencing_token_that_it_showed() -> None:
    """C093, L7: f shows what is about to end and asks; only y ends it, by its number."""
    view = typed(seeing(held("job", token=41, owner="run-1", held_by="x@y:1")), "f")
    question = screen(view)
    for words in ("Force release fencing token 41? [y/N]", "owner          run-1", "x@y:1", "others may run beside it"):
        assert words in question
    done, wish = press(view, "y", now=100.0)
    assert (wish, done.mode) == (Release("job", 41), "table")
    for key in ("n", "enter", "escape", "Y", "q", "f"):
        left, wish = press(view, key, now=100.0)
        assert (wish, left.mode, left.told) == (None, "table", "nothing was released")


def test_a_lease_that_changed_meanwhile_is_told_and_not_forced() -> None:
    """C093: while the question stands a look may show another lease, or none: then the question is withdrawn."""
    asking = typed(seeing(held("job", token=41)), "f")
    assert seeing(held("job", token=41, left=29), view=asking).mode == "confirm"
    other = seeing(held("job", token=42), view=asking)
    assert (other.mode, other.told) == ("table", "'job' now has fencing token 42: nothing was released")
    gone = seeing(view=asking)
    assert (gone.mode, gone.told) == ("table", "'job' is free now: nothing was released")
    for view in (other, gone):
        assert press(view, "y", now=100.0)[1] is None


def test_without_a_fencing_token_nothing_is_aimed_at() -> None:
    """C093: a record that has no number is not ended from here."""
    view = typed(seeing(held("job", token=None)), "f")
    assert view.mode == "table"
    assert "has no fencing token" in (view.told or "")
    assert typed(seeing(), "f", "enter").mode == "table"


def test_details_show_all_of_one_key_and_follow_it() -> None:
    """M11: metadata and waiters too; when the key is free that is said, and nothing can be ended any more."""
    view = typed(seeing(held("job", token=41, metadata={"ticket": "A-1"}), held("k")), "enter")
    assert "  ticket       A-1" in screen(view)
    detail = held("job", token=41, waiters=3)
    view = seeing(held("job", token=41, left=50), held("k"), view=view, detail=detail)
    assert "waiting        3" in screen(view)
    assert "renewed        once or more while you watched" in screen(view)
    assert typed(view, "f").mode == "confirm"
    view = seeing(held("k"), view=view)
    assert "it is free now" in screen(view)
    assert typed(view, "f").mode == "details"
    assert typed(view, "escape").mode == "table"


@pytest.mark.parametrize("keys", [["page down"] * 40, ["G"], ["end"], ["down"] * 99])
@pytest.mark.parametrize("height", [6, 15])
def test_texts_scroll_to_their_last_line_and_back(keys: list[str], height: int) -> None:
    """8: details and help end at the bottom of the screen whatever is pressed; the next key up is seen, home is the
    first line, and so is all of it on a screen that has become large enough."""
    seen = seeing(*(held(f"k{number}", metadata={f"n{line:02}": "v" for line in range(30)}) for number in range(30)))
    frame, large = replace(FRAME, height=height), replace(FRAME, height=99)
    for opens, first, last in (("enter", "key  ", "n29"), ("?", "arrows, j k", "WAITING")):
        view = typed(seen, opens)
        for key in keys:
            view = typed(fit(view, frame), key)
        assert last in text(picture(view, frame)[-2])
        assert last in text(picture(typed(view, "k", "j"), frame)[-2])
        assert last not in screen(typed(view, "k"), height=height)
        for home in ("home", "g"):
            assert first in text(picture(typed(view, home), frame)[3])
        assert first in text(picture(fit(view, large), large)[3])


def test_paused_nothing_moves() -> None:
    """8: looks and failures change nothing, time stands still; p goes on."""
    view = typed(seeing(held("job", left=30)), "p", now=110.0)
    assert seeing(held("other"), view=view) == view
    assert failed(view, "no answer") == view
    assert "20 s" in screen(view, now=125.0)
    assert "paused for 15 s" in screen(view, now=125.0)
    assert shown(seeing(held("other"), view=typed(view, "p"))) == ["other"]


def test_a_store_that_fails_is_a_line_over_the_last_picture() -> None:
    """8: the rows stay, all of them faint, until the store answers again."""
    view = failed(seeing(held("job")), "the store gave no answer")
    lines = picture(view, FRAME)
    assert "! the store gave no answer; what is shown was seen before; asking again" in text(lines[2])
    assert "> job" in text(lines[4])
    assert {style for _, style in lines[4][1:-1]} == {"faint"}
    assert "gave no answer" not in screen(seeing(held("job"), view=view))
    assert "asking the store" in screen(failed(View(), "no answer"))


def test_more_keys_than_are_looked_at_are_told() -> None:
    """8: a picture of some of the keys says so, and how to see others."""
    assert "only the first 1 of more, in the order of keys: filter with /" in screen(seeing(held("job"), more=True))


def test_rows_differ_without_colour() -> None:
    """8: each condition has a word and a sign of its own, and counts in the second line."""
    first = [held("risk", left=10), held("renews", left=10), held("held", left=300), closed("shut", left=600)]
    then = [held("risk", left=40), held("renews", left=40), held("held", left=290), closed("shut", left=590)]
    last = [held("risk", left=10), held("renews", left=40), held("held", left=260), closed("shut", left=560)]
    view = seeing(*last, view=seeing(*then, view=seeing(*first, at=90.0), at=100.0), at=130.0)
    found = screen(view, now=131.0)
    for words in ("! at risk", "+ renewing", "= held", "x closed"):
        assert words in found
    assert "4 keys: 1 renewing, 1 held, 1 at risk, 1 closed" in found


def test_hostile_text_reaches_no_terminal() -> None:
    """C174: control characters, direction marks and other invisible ones of anything that is shown are escaped."""
    view = seeing(held(HOSTILE, owner=HOSTILE, held_by=HOSTILE, metadata={HOSTILE: HOSTILE}))
    modes = [view, typed(view, "enter"), typed(view, "f"), told(view, HOSTILE), failed(view, HOSTILE), typed(view, "?")]
    modes.append(typed(replace(view, prefix=HOSTILE), "/"))
    for mode in modes:
        for line in picture(mode, replace(FRAME, place=HOSTILE)):
            assert text(line).isprintable()
    assert "\\u202e" in screen(view)


@pytest.mark.parametrize("width", [1, 5, 20, 40, 60, 80, 100, 140, 250])
@pytest.mark.parametrize("height", [1, 3, 6, 24])
@pytest.mark.parametrize("fine", [True, False])
def test_the_picture_fills_any_screen_exactly(width: int, height: int, fine: bool) -> None:
    """8: as many lines as the screen has, each as wide as it is, whatever the keys are made of."""
    keys = ["k", "日本" * 100, "e\u0301" * 80, "👩‍👩‍👧" * 30, HOSTILE, "x" * MAX_KEY_LENGTH]
    view = seeing(*(held(key, owner=key, held_by=key, token=2**53 - 1, waiters=4) for key in keys))
    view = resized(view, height - FRAME_LINES)
    for mode in (view, typed(view, "enter"), typed(view, "f"), typed(view, "?"), typed(view, "/", *"日本")):
        lines = picture(mode, replace(FRAME, width=width, height=height, fine=fine))
        assert len(lines) == height
        assert {cells_of(text(line)) for line in lines} == {width}
        if not fine:
            assert all(text(line).isascii() for line in lines)


def test_the_fencing_token_is_never_cut() -> None:
    """8: a number with its last digits missing is of no use; columns go before that, the key stays."""
    view = seeing(held("key-of-interest", owner="o" * 40, held_by="h" * 40, token=2**53 - 1, waiters=1))
    for width in range(52, 200, 7):
        assert str(2**53 - 1) in screen(view, width=width)
        assert "> key-of-in" in screen(view, width=width)


def test_the_machine_of_a_holder_is_never_cut_off() -> None:
    """8, M12: on a screen of 80 columns one still sees which process on which machine it is, whatever the program is
    called; at a lock service beside the principal, from what the library says of itself."""
    library = {"host": "web-12.fra", "pid": 4711, "program": "nightly-report-of-all-invoices.py"}
    own = held("job", held_by="nightly-report-of-all-invoices.py@web-12.fra:4711", metadata=library)
    service = held("job", owner="run-7", held_by="function:shop", metadata=library)
    for width in (80, 100, 120, 200):
        for one in (own, service):
            assert "12.fra:4711 " in screen(seeing(one), width=width), width
    assert screen(seeing(own), width=200).count("web-12.fra") == 1
    assert "function:shop nightly-report-of-all-invoices.py@web-12.fra:4711" in screen(seeing(service), width=200)


@pytest.mark.parametrize(
    ("metadata", "machine"),
    [
        ({"host": "h", "pid": 1, "program": "p"}, "p@h:1"),
        ({"host": "h"}, "@h"),
        ({"host": "h", "pid": "x", "program": ["p"]}, "@h"),
        ({"host": "h", "pid": True}, "@h"),
        ({"host": ""}, None),
        ({"host": {"a": 1}, "pid": 1, "program": "p"}, None),
        ({"pid": 1, "program": "p"}, None),
    ],
)
def test_what_a_holder_says_of_itself_may_be_anything(metadata: dict[str, Any], machine: str | None) -> None:
    """C174: whoever talks to the service without the library may write what he likes."""
    assert machine_of(metadata) == machine


def test_only_the_rows_that_fit_are_made() -> None:
    """8: ten thousand keys cost the picture no more than those on the screen."""
    view = seeing(*(held(f"k{number:05}") for number in range(10_000)))
    lines = picture(view, FRAME)
    assert sum("k0" in text(line) for line in lines) == 10
    assert "10000 keys: 10000 held" in text(lines[1])


def test_quitting_and_drawing_anew() -> None:
    """8: q quits from the table, and elsewhere goes back; Ctrl-L draws anew from anywhere."""
    view = seeing(held("job"))
    assert press(view, "q", now=0.0)[1] == "quit"
    assert press(typed(view, "?"), "q", now=0.0) == (view, None)
    assert press(typed(view, "/"), "redraw", now=0.0)[1] == "redraw"


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"j", ["j"]),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", ["up", "down", "up", "down"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~", ["page up", "page down", "home", "end", "home", "end"]),
        (b"\r\n\x7f\x08\x15\x0c", ["enter", "enter", "backspace", "backspace", "clear", "redraw"]),
        ("日é".encode(), ["日", "é"]),
        (b"\x1b[200~y\x1b[201~", ["y"]),
        (b"\x1b[15;2~q", ["q"]),
        (b"\x1bq", ["escape", "q"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
        (b"\x01\x00", []),
        (b"\xff", ["\ufffd"]),
    ],
)
def test_bytes_are_keys(data: bytes, keys: list[str]) -> None:
    """8: what terminals send for keys is understood whole and in pieces; what is not known does nothing."""
    reader = Keys()
    assert [*reader.feed(data), *reader.feed(b"")] == keys
    slow = Keys()
    pieces = [key for byte in data for key in slow.feed(bytes([byte]))]
    assert [*pieces, *slow.feed(b"")] == keys


def test_an_escape_alone_is_a_key_once_nothing_follows() -> None:
    """8: escape begins other keys; it is itself when there is no more."""
    reader = Keys()
    assert (reader.feed(b"\x1b"), reader.begun) == ([], True)
    assert (reader.feed(b""), reader.begun) == (["escape"], False)
