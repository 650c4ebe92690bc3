"""Bounds of what is remembered for the dashboard: whatever is asked of the service, it stays small."""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from leased.errors import StoreUnavailable
from leased.model import Acquire, Claim, Contended, Held, Lease, Release, Released, Terms
from leased.server import contention as contention_module
from leased.server import journal as journal_module
from leased.server.contention import MOST_STEPS, STEP, Contention
from leased.server.holds import HoldEnd, OwnHolds, PastHold, Room
from leased.server.journal import Journal
from leased.server.metrics import Metrics
from leased.server.overview import MOST_PROJECTS, MOST_SAMPLES, Overview, Spread
from leased.server.settings import Settings

KEYS = int(os.environ.get("HISTORY_KEYS", "100000"))  # also run with a million
NOBODY: Counter[str] = Counter()


class Wall:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        return self.at


def grant(key: str, number: int, *, ttl: float = 60.0) -> tuple[Acquire, Held]:
    claim = Claim(key, f"token-{number}", ttl, terms=Terms(held_by="somebody"))
    return Acquire(claim), Held(Lease(key, claim.token, number, ttl, None, ttl))


def journal(*, wall: Wall, kept: OwnHolds | None = None, **settings: Any) -> Journal:
    return Journal(
        Settings(**settings),
        wall=wall,
        metrics=Metrics({}),
        overview=Overview(lambda: NOBODY),
        contention=Contention(lambda: NOBODY, since=wall.at),
        kept=kept or OwnHolds(),
    )


def test_any_number_of_keys_leaves_no_more_than_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """§12: notes, holds that are watched, and history are bounded in all and of each key; the newest stay."""
    monkeypatch.setattr(journal_module, "MOST_OPEN", 1_000)
    kept, wall = OwnHolds(), Wall()
    one = journal(wall=wall, kept=kept, history=3, history_total=2_000)

    async def run() -> None:
        for number in range(1, KEYS + 1):
            operation, outcome = grant(f"key-{number}", number, ttl=1e6)
            one.note(("", operation, outcome, wall.at))
            if number % 4_000 == 0:
                await one.catch_up()
        for number in range(1, 11):
            operation, outcome = grant("hot", number)
            one.note(("", operation, outcome, wall.at))
            one.note(("", Release("hot", operation.claim.token, True), Released(), wall.at))
        await one.catch_up()

    asyncio.run(run())
    assert 1_000 < kept.total <= 2_000
    assert len(one._open) <= 1_000
    assert len(one._ends) <= 2 * len(one._open) + 1_000
    hot = asyncio.run(kept.holds("", "hot", limit=100))
    assert [hold.fencing_token for hold in hot] == [10, 9, 8]


def test_notes_that_nobody_reads_are_bounded() -> None:
    """§12: where notes come faster than they are read, the oldest go."""
    one = journal(wall=Wall())
    operation, outcome = grant("k", 1)
    for _ in range(journal_module.MOST_NOTES + 10):
        one.note(("", operation, outcome, 0.0))
    assert len(one._notes) == journal_module.MOST_NOTES


def test_a_thousand_projects_leave_a_hundred() -> None:
    """§12: the projects that did nothing for the longest time go; each has an hour of samples at the most."""
    overview = Overview(lambda: NOBODY)
    for number in range(1_000):
        overview.count(f"project-{number}", "acquired")
    assert len(overview) == MOST_PROJECTS
    for at in range(MOST_SAMPLES + 40):
        overview.roll(float(at), held={})
    assert len(overview.samples("project-999")) == MOST_SAMPLES
    assert overview.samples("project-0") == []


def test_a_clock_that_is_set_back_stops_no_overview() -> None:
    """§12: after the clock of the machine went back an hour, samples go on from there."""
    wall = Wall()
    wall.at = 10_000.0
    one = journal(wall=wall)

    async def run() -> None:
        for at in (10_011.0, 6_411.0, 6_422.0, 6_433.0):
            wall.at = at
            one.overview.count("", "acquired")
            await one.catch_up()

    asyncio.run(run())
    assert [sample["acquired"] for sample in one.overview.samples("")] == [1, 1, 1, 1]


def test_contention_is_bounded_and_an_hour_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """§12: of each key an hour, of so many keys; the ones that nobody wanted for the longest time go. Minutes in which
    nothing was asked are told as such, those before the process began are not."""
    monkeypatch.setattr(contention_module, "MOST_KEYS", 100)
    began = 100 * STEP
    queues = Counter({"p/hot": 7, **{f"p/other-{number}": 1 for number in range(500)}})
    one = Contention(lambda: queues, since=began)
    for number in range(1_000):
        one.count(Counter({f"p/key-{number}": 1}), at=began)
    assert len(one) == 100
    one.look(began)
    assert len(one) == 100
    assert [sample["waiting"] for sample in one.samples("p/hot", at=began)] == [7]
    queues.clear()
    for step in range(200):
        one.count(Counter({"p/hot": 2, "p/never-in-vain": 0}), at=began + step * STEP)
    found = one.samples("p/hot", at=began + 200 * STEP)
    assert [sample["contended"] for sample in found] == [2] * 59 + [0]
    assert len(one._keys["p/hot"]) <= MOST_STEPS
    assert [sample["contended"] for sample in one.samples("p/unknown", at=began + 2 * STEP)] == [0] * 3


def test_contention_goes_on_after_a_clock_that_was_set_back() -> None:
    """§12: what seems to come later is forgotten, and the minutes from there on are counted."""
    one = Contention(lambda: NOBODY, since=100 * STEP)
    one.count(Counter({"k": 5}), at=200 * STEP)
    for step in (50, 51):
        one.count(Counter({"k": 1}), at=step * STEP)
    found = one.samples("k", at=51 * STEP)
    assert [sample["contended"] for sample in found] == [1]
    assert one.samples("k", at=200 * STEP)[-1]["contended"] == 0


def test_under_load_contention_is_counted_whole() -> None:
    """However many keys are left out of the history in a second, of none the contention is."""
    wall = Wall()
    one = journal(wall=wall)

    async def run() -> None:
        for number in range(journal_module.MOST_FOLLOWED * 4):
            operation, _ = grant(f"key-{number % 10}", number)
            one.note(("p", operation, Contended(None), wall.at))
        await one.catch_up()

    asyncio.run(run())
    for number in range(10):
        sample = one.contention.samples(f"key-{number}", at=wall.at)[-1]
        assert sample["contended"] == journal_module.MOST_FOLLOWED * 4 / 10


def test_percentiles_are_what_they_say() -> None:
    """To within 5 %, and never below: what half of them did not exceed, 95 and 99 of a hundred."""
    spread = Spread()
    assert spread.shown() is None
    for number in range(1, 1_001):
        spread.add(number / 100)
    for name, true in (("p50", 5_000), ("p95", 9_500), ("p99", 9_900)):
        assert true <= (spread.shown() or {})[name] <= math.ceil(true * 1.05)
    quick = Spread()
    quick.add(0.0)
    assert quick.shown() == {"p50": 0, "p95": 0, "p99": 0}


class Broken(OwnHolds):
    """A registry that does not answer for a while."""

    broken = True
    asked = 0

    async def write_holds(self, begun: Sequence[PastHold], ended: Sequence[HoldEnd], *, room: Room) -> None:
        self.asked += 1
        if self.broken:
            raise StoreUnavailable("the registry gave no answer", applied=False)
        await super().write_holds(begun, ended, room=room)


def test_a_silent_registry_loses_history_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """C135: what cannot be written is lost, told once until it works again, and kept in no growing list."""
    kept, wall = Broken(), Wall()
    one = journal(wall=wall, kept=kept)

    async def run(number: int) -> None:
        operation, outcome = grant("k", number)
        one.note(("", operation, outcome, wall.at))
        await one.catch_up()

    for number in range(1, 4):
        asyncio.run(run(number))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    kept.broken = False
    asyncio.run(run(4))
    kept.broken = True
    asyncio.run(run(5))
    assert len(caplog.records) == 2
    assert (kept.asked, kept.total) == (5, 1)
    assert not one._begun


def test_what_ends_of_holds_mean_depends_on_who_saw_them() -> None:
    """A lease that one replica supposes to have run out may have been renewed elsewhere: its real end counts."""

    async def run() -> list[tuple[str | None, float | None]]:
        kept, room = OwnHolds(), Room(5, 100)
        hold = PastHold("p", "k", "m", 1, "ada", None, 10.0, 0.0, 40.0)
        found: list[tuple[str | None, float | None]] = []
        for end in (
            HoldEnd("p", "k", "m", 1, 40.0, "expired"),
            HoldEnd("p", "k", "m", 1, 70.0, "expired"),
            HoldEnd("p", "k", "m", 1, 40.0, "expired"),
            HoldEnd("p", "k", "", 2, 75.0, "force_released"),
            HoldEnd("p", "k", "other", 1, 75.0, "released"),
            HoldEnd("p", "k", "", 1, 80.0, "force_released", "stuck"),
            HoldEnd("p", "k", "m", 0, 90.0, "released"),
        ):
            begun = [hold] if not found else []
            await kept.write_holds(begun, [end], room=room)
            one = (await kept.holds("p", "k", limit=1))[0]
            found.append((one.end, one.ended_at))
        return found

    assert asyncio.run(run()) == [
        ("expired", 40.0),
        *[("expired", 70.0)] * 4,
        *[("force_released", 80.0)] * 2,
    ]


def test_under_load_counts_are_whole_and_few_keys_are_followed() -> None:
    """§12: however much is done in a second, a bounded number of notes is followed; what is counted, is counted whole.
    A key that was watched and is no more is not said to have run out."""
    kept, wall = OwnHolds(), Wall()
    metrics = Metrics({})
    overview = Overview(lambda: NOBODY)
    contention = Contention(lambda: NOBODY, since=wall.at)
    one = Journal(Settings(), wall=wall, metrics=metrics, overview=overview, contention=contention, kept=kept)
    followed = 0

    def follow(note: journal_module.Note) -> None:
        nonlocal followed
        followed += 1
        Journal._follow(one, note)

    one._follow = follow  # type: ignore[method-assign]

    async def run() -> None:
        operation, outcome = grant("watched", 1, ttl=5.0)
        one.note(("p", operation, outcome, wall.at))
        await one.catch_up()
        for number in range(2, 20_002):
            operation, outcome = grant("hot" if number % 2 else "watched", number)
            one.note(("p", operation, outcome, wall.at))
            one.note(("p", Release(operation.claim.key, operation.claim.token, True), Released(), wall.at))
        await one.catch_up()
        wall.at += 20.0
        await one.catch_up()

    asyncio.run(run())
    assert 1 < followed <= 1 + journal_module.MOST_FOLLOWED
    assert metrics.outcomes["acquire", "held"] == 20_001
    assert metrics.outcomes["release", "released"] == 20_000
    assert [sample["acquired"] for sample in overview.samples("p")] == [20_001]
    assert overview.samples("p")[0]["held"] is None
    assert all(hold.end != "expired" for hold in asyncio.run(kept.holds("p", "watched", limit=100)))
    assert not one._open
