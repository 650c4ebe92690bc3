"""The value of a key under compare-and-set, and the clock that its times come from: what is kept, refused, believed."""

from __future__ import annotations

import json
import math

import pytest

from leased.errors import StoreNotUsable
from leased.stores import _cas_record as values
from leased.stores._cas_clock import ClientClock, read_date
from leased.stores._cas_record import Kept, Mark
from leased.stores._sql_record import NEVER_GRANTED, REPLAY, RETENTION, SECOND, Record
from leased.stores._sql_rules import Effect
from leased.targets import Options
from leased.testing import MovableClock

RECORD = Record(
    token=b"\x01\xff", owner=b"owner", held_by=b"program@host:1", metadata=b'{"a":1}', fencing_token=2, renewal=3,
    acquired_at=4, expires_at=50, free_at=60, deadline=70, ttl=8, hold_at_least=9, lock_delay=10, late=True,
    forced=False, marked_until=11,
)  # fmt: skip


@pytest.mark.parametrize(
    "kept",
    [
        Kept(RECORD),
        Kept(RECORD._replace(token=None, owner=None, late=False, forced=True)),
        Kept(RECORD, {b"\x02": Mark("retaken", 12), b"\x03": Mark("expired", 13)}),
        Kept(NEVER_GRANTED),
    ],
)
def test_what_is_written_is_read_again(kept: Kept) -> None:
    """Every field of the record and every mark comes back as it was, and in its type; no marks take no room."""
    value = values.write(kept)
    again = values.read("k", value)
    assert (again.record, dict(again.marks)) == (kept.record, dict(kept.marks))
    assert [type(field) for field in again.record or ()] == [type(field) for field in kept.record or ()]
    assert (b'"ended"' in value) is bool(kept.marks)


def test_a_key_without_a_record_is_written_as_never_granted() -> None:
    """Marks of a key that nobody had need something to stand by."""
    assert values.read("k", values.write(Kept(None, {b"\x02": Mark("abandoned", 5)}))) == Kept(
        NEVER_GRANTED, {b"\x02": Mark("abandoned", 5)}
    )


def test_the_first_reason_of_a_mark_stays_until_it_is_over() -> None:
    """O5: a token marked again is remembered for longer, with its first reason; marks that are over go."""
    now = 1_000 * SECOND
    kept = Kept(
        RECORD, {b"live": Mark("retaken", now + 1), b"over": Mark("retaken", now), b"other": Mark("x", now + 9)}
    )
    after = kept.after(Effect(RECORD, ((b"live", "released"), (b"over", "released"), (b"new", "expired"))), now=now)
    assert after == Kept(
        RECORD,
        {
            b"live": Mark("retaken", now + REPLAY),
            b"over": Mark("released", now + REPLAY),
            b"new": Mark("expired", now + REPLAY),
            b"other": Mark("x", now + 9),
        },
    )


def test_a_value_is_needed_for_its_fencing_token_and_for_its_marks() -> None:
    """M4: a record that was granted is kept for a day after key and lease are over, one that never was only for its
    marks, and nothing for nobody."""
    assert Kept(RECORD).forget_at == (60 + RETENTION) / SECOND
    assert Kept(RECORD._replace(expires_at=65)).forget_at == (65 + RETENTION) / SECOND
    far = {b"\x02": Mark("x", 3 * RETENTION), b"\x03": Mark("x", 5)}
    assert Kept(RECORD, far).forget_at == 3 * RETENTION / SECOND
    assert Kept(NEVER_GRANTED, {b"\x02": Mark("x", 5 * SECOND)}).forget_at == 5.0
    assert Kept().forget_at == Kept(NEVER_GRANTED).forget_at == 0.0


@pytest.mark.parametrize("value", [b"", b"7", b"null", b"[]", b"{}", b'{"format":1}', b"\xff", b"[" * 100_000])
def test_a_value_of_somebody_else_is_refused(value: bytes) -> None:
    """S3: what `leased` has not written is neither read as a lock nor written over; the error names the key."""
    with pytest.raises(StoreNotUsable, match="'the-key'") as raised:
        values.read("the-key", value)
    assert raised.value.hint


def test_a_value_of_a_newer_release_is_refused() -> None:
    """S3: an unknown format is named."""
    fields = json.loads(values.write(Kept(RECORD)))
    with pytest.raises(StoreNotUsable, match="format 2") as raised:
        values.read("k", json.dumps({**fields, "format": 2}).encode())
    assert raised.value.hint


class Wall:
    """A client's wall clock beside a local one that stands still until it is moved."""

    def __init__(self, *, skew_margin: float = 1.0) -> None:
        self.events: list[tuple[str, float]] = []
        self.clock = MovableClock(flowing=False)
        options = Options(
            clock=self.clock,
            skew_margin=skew_margin,
            observer=lambda event: self.events.append((event.name, event.data["off"])),
        )
        self.wall = ClientClock(self.clock, options, shown="dict:")

    def told(self, earliest: float, latest: float, *, took: float = 0.0) -> None:
        """An answer says that the server's time lay so far from this wall clock's."""
        now = self.clock.wall()
        self.wall.read(now + earliest, now + latest, asked_at=self.clock.now() - took)


def test_a_wall_clock_counts_in_microseconds_with_its_offset() -> None:
    """Without anything known against it, it is believed; an offset of tests moves it."""
    bench = Wall()
    assert bench.wall.offset == 0.0
    assert bench.wall.off is False
    assert bench.wall.micros() == round(bench.clock.wall() * SECOND)
    bench.wall.offset = 20.0
    assert bench.wall.micros() == round((bench.clock.wall() + 20) * SECOND)


@pytest.mark.parametrize(
    ("earliest", "latest", "took", "off"),
    [
        (0.6, 0.7, 0.0, 0.6),
        (0.5, 9.0, 0.0, 0.0),
        (-9.0, -0.5, 0.0, 0.0),
        (-0.8, -0.7, 0.0, -0.7),
        (-0.8, -0.7, 0.3, 0.0),
        (-1.8, -1.7, 0.3, -1.4),
        (-3.0, 3.0, 0.0, 0.0),
    ],
)
def test_a_wall_clock_is_off_by_what_is_certain(earliest: float, latest: float, took: float, off: float) -> None:
    """M6: more than half the margin beyond all that the exchange can explain; then times count from the server's."""
    bench = Wall()
    bench.told(earliest, latest, took=took)
    assert bench.wall.off is (off != 0.0)
    assert bench.wall.micros() == pytest.approx((bench.clock.wall() + off) * SECOND, abs=2)
    assert bench.events == ([("clock_warning", off)] if off else [])


def test_a_clock_that_is_off_is_told_once_and_forgiven_when_it_is_right() -> None:
    """M6: the warning comes when it goes wrong, not with every answer; an answer that agrees ends it."""
    bench = Wall()
    for _ in range(3):
        bench.told(2.0, 2.1)
    assert len(bench.events) == 1
    bench.told(0.0, 0.1)
    assert bench.wall.off is False
    bench.told(2.0, 2.1)
    assert len(bench.events) == 2


def test_a_step_is_more_than_half_the_margin() -> None:
    """M6: a wall clock that was set since, forward or back, by more than half the margin has stepped; with a margin of
    nothing none ever has."""
    for by, stepped in ((0.25, False), (-0.25, False), (0.75, True), (-0.75, True)):
        bench = Wall()
        course = bench.wall.course()
        assert course == bench.clock.wall() - bench.clock.now()
        bench.clock.move(50)
        assert not bench.wall.stepped(course)
        bench.clock.set_wall(bench.clock.wall() + by)
        assert bench.wall.stepped(course) is stepped
    bench = Wall(skew_margin=0.0)
    course = bench.wall.course()
    bench.clock.set_wall(bench.clock.wall() + 1e6)
    assert not bench.wall.stepped(course)
    bench.told(1e5, 1e5)
    assert not bench.wall.off
    assert math.isinf(bench.wall._most)


def test_a_date_is_a_whole_second() -> None:
    """M6: `Date` says in which second the server answered; what is no date says nothing."""
    bench = Wall()
    bench.clock.set_wall(1_445_412_480.0)
    read_date(bench.wall, "Wed, 21 Oct 2015 07:28:01 GMT", asked_at=bench.clock.now())
    assert bench.events == [("clock_warning", 1.0)]
    off: list[bool] = []
    for date in ("no date", "Wed, 21 Oct 2015 07:27:59 GMT", "Wed, 21 Oct 2015 07:27:58 GMT"):
        read_date(bench.wall, date, asked_at=bench.clock.now())
        off.append(bench.wall.off)
    assert off == [True, False, True]
