"""The keeper's loop: when it is started, woken and ended, what it keeps of leases that are over, and late batches."""

import random
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from leased.engine import renew
from leased.errors import AccessDenied
from leased.keeper import Keeper
from leased.policy import RENEWAL_GRID, min_ttl
from leased.store import Signal
from leased.timeline import Cancelled, Task
from tests.engine.rig import Rig


def loop_of(rig: Rig) -> Task:
    """The one task of this rig: the keeper's loop."""
    (task,) = rig.process.tasks
    return task


def entries(rig: Rig) -> int:
    """How many entries the keeper has, of leases that go on and of those that are over."""
    return len(rig.keeper._heap) + len(rig.keeper._fresh)


def steps_of(rig: Rig, *, seconds: float) -> int:
    """How many steps the whole process takes in this time."""
    before = rig.timeline.steps
    rig.pass_time(seconds)
    return rig.timeline.steps - before


class BusyWorkers:
    """A clock whose started work begins late, as where every worker hangs in a call."""

    def __init__(self, rig: Rig, *, late: float) -> None:
        self._clock = rig.clock
        self._late = late

    def now(self) -> float:
        """See `leased.store.Clock`."""
        return self._clock.now()

    def wall(self) -> float:
        """See `leased.store.Clock`."""
        return self._clock.wall()

    async def sleep(self, seconds: float) -> None:
        """See `leased.store.Clock`."""
        await self._clock.sleep(seconds)

    def signal(self) -> Signal:
        """See `leased.store.Clock`."""
        return self._clock.signal()

    def start(self, work: Coroutine[Any, Any, None]) -> object:
        """See `leased.store.Clock`, but late."""

        async def later() -> None:
            await self._clock.sleep(self._late)
            await work

        return self._clock.start(later())


def rig_with_busy_workers(*, late: float) -> Rig:
    """A rig whose batches begin so many seconds after they were due."""
    rig = Rig()
    rig.keeper = Keeper(rig.store, replace(rig.env, clock=BusyWorkers(rig, late=late)))
    return rig


def test_one_loop_serves_all_leases_and_outlives_the_last_for_some_time() -> None:
    """L14: while the loop runs `add` asks for no other; ten seconds after the last lease it is over, and the next
    lease asks for it again."""
    rig = Rig()
    first = rig.granted("first", ttl=3_600)
    assert rig.keeper.add(first, renewing=True)
    rig.process.start(rig.keeper.run())
    rig.pass_time(20)
    second = rig.granted("second", ttl=3_600)
    assert not rig.keeper.add(second, renewing=True)
    rig.pass_time(20)
    rig.keeper.discard(first)
    rig.keeper.discard(second)
    rig.pass_time(8.9)
    third = rig.granted("third", ttl=3_600)
    assert not rig.keeper.add(third, renewing=True)
    rig.pass_time(1.1)
    rig.keeper.discard(third)
    rig.pass_time(8.9)
    assert not loop_of(rig).done
    rig.pass_time(2.2)
    assert rig.process.tasks == {}
    assert rig.keeper.add(rig.granted("fourth"), renewing=True)


def test_a_loop_that_begins_after_the_first_lease_has_gone_waits_for_the_next() -> None:
    """L14: a block that is over before the loop's first look does not end the loop."""
    rig = Rig()
    hold = rig.granted()
    rig.keep(hold)
    rig.keeper.discard(hold)
    rig.pass_time(8.9)
    assert not rig.keeper.add(rig.granted("k2"), renewing=True)


def test_a_lease_is_kept_although_the_loop_was_on_its_way_out() -> None:
    """H1: each of many leases with long gaps between them is renewed, whichever loop serves it."""
    rig = Rig()
    for n in range(30):
        hold = rig.granted(f"k{n}", ttl=6)
        rig.keep(hold)
        rig.pass_time(7)
        assert hold.lost_reason(rig.clock.now()) is None
        rig.keeper.discard(hold)
        rig.pass_time(9 + n / 10)


def test_a_loop_that_was_cancelled_is_asked_for_again() -> None:
    """LIVE10: where the loop is ended from outside it says so to whoever ended it, and the next lease asks for one."""
    rig = Rig()
    rig.keep(rig.granted(ttl=60))
    rig.pass_time(5)
    loop = loop_of(rig)
    loop.cancel()
    rig.pass_time(0.0)
    assert isinstance(loop.error, Cancelled)
    assert rig.keeper.add(rig.granted("k2"), renewing=True)


def test_a_loop_that_could_not_be_started_is_asked_for_again() -> None:
    """C180: where no thread could be started, the next lease asks for the loop again."""
    rig = Rig()
    assert rig.keeper.add(rig.granted(), renewing=True)
    rig.keeper.not_started()
    assert rig.keeper.add(rig.granted("k2"), renewing=True)


def test_a_closed_loop_without_leases_ends_at_once() -> None:
    """L11, LIVE10: closing wakes the loop, which then has nothing to stay for."""
    rig = Rig()
    hold = rig.granted()
    rig.keep(hold)
    rig.pass_time(0.5)
    rig.keeper.discard(hold)
    rig.keeper.close()
    rig.pass_time(0.001)
    assert rig.process.tasks == {}


def test_a_short_lease_wakes_the_loop_from_its_nap() -> None:
    """H1: a lease that is due before the loop would look again is renewed in time."""
    rig = Rig()
    rig.keep(rig.granted("long", ttl=3_600))
    rig.pass_time(1.2)
    short = rig.granted("short", ttl=min_ttl())
    rig.keep(short)
    rig.pass_time(5)
    assert short.lost_reason(rig.clock.now()) is None


def test_a_lease_that_is_not_due_soon_wakes_nobody() -> None:
    """The loop naps on while leases come and go that are not due before it looks again."""
    rig = Rig()
    rig.keep(rig.granted("long", ttl=3_600))
    rig.pass_time(0.2)
    others = [rig.granted(f"k{n}", ttl=3_600) for n in range(10)]
    for hold in others:
        rig.keep(hold)
    assert steps_of(rig, seconds=0.0) == 0
    assert steps_of(rig, seconds=5.0) <= 6


def test_two_leases_that_end_together_are_both_noticed() -> None:
    """H2: what is taken a moment before its time, beside one that is due, is put back and noticed."""
    rig = Rig()
    holds = [rig.granted(f"k{n}", ttl=10 + n * RENEWAL_GRID / 3) for n in range(4)]
    for hold in holds:
        rig.keep(hold, renewing=False)
    rig.pass_time(11)
    assert [hold.ended for hold in holds] == ["expired"] * 4


def test_a_hold_that_ended_elsewhere_leaves_the_loop() -> None:
    """L14: the loop neither spins on a hold that was released, nor stays for it, though nobody discarded it."""
    rig = Rig()
    hold = rig.granted(ttl=9)
    rig.keep(hold)
    hold.end("released")
    assert steps_of(rig, seconds=60) <= 40
    assert rig.process.tasks == {}


def test_the_loop_does_not_stay_for_a_lease_that_was_discarded() -> None:
    """L14: the entry of an hour's lease does not keep the loop for an hour."""
    rig = Rig()
    hold = rig.granted(ttl=3_600)
    rig.keep(hold)
    rig.pass_time(5)
    rig.keeper.discard(hold)
    rig.pass_time(11.1)
    assert rig.process.tasks == {}


@pytest.mark.parametrize("looked", [True, False], ids=["after the loop looked", "before the loop looked"])
def test_leases_that_are_over_take_bounded_room(looked: bool) -> None:
    """C180: in whatever order leases go, discarded, lost, discarded twice or kept twice, the entries are never more
    than twice those that stay and 64."""
    rig = Rig()
    passed = [rig.granted(f"passed{n}", ttl=9) for n in range(90)]
    for hold in passed:
        rig.keep(hold)
    for hold in passed[:30]:
        rig.run(rig.memory.force_release(hold.key, timeout=1.0), until=rig.timeline.now)
    rig.pass_time(4)
    rig.keeper.close()
    rig.pass_time(10)
    assert {hold.ended for hold in passed} == {"force_released", "expired"}
    holds = [rig.granted(f"k{n:03}", ttl=3_600) for n in range(300)]
    for hold in holds:
        rig.keep(hold, renewing=False)
        rig.keep(hold, renewing=False)
    if looked:
        rig.pass_time(0.0)
    random.Random(1).shuffle(holds)
    while len(holds) > 10:
        hold = holds.pop()
        rig.keeper.discard(hold)
        rig.keeper.discard(hold)
        assert entries(rig) <= 64 + 2 * len(holds) + (0 if looked else 300)
    rig.pass_time(0.0)
    assert entries(rig) <= 64 + 2 * len(holds)


def test_a_lease_costs_no_more_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """To renew one of 1,000 leases, and to discard 900 of them, the loop looks at each of them a few times only."""
    rig = Rig()
    holds = [rig.granted(f"k{n:04}", ttl=3_600) for n in range(1_000)]
    for hold in holds:
        rig.keep(hold)
    short = rig.granted("short", ttl=3)
    rig.keep(short)
    rig.pass_time(1.5)
    looks: list[None] = []
    look = Keeper._current

    def counted(keeper: Keeper, entry: Any) -> Any:
        looks.append(None)
        return look(keeper, entry)

    monkeypatch.setattr(Keeper, "_current", counted)
    rig.pass_time(60)
    assert len(rig.asked("renew")) >= 50
    assert len(looks) <= 500
    for hold in holds[:900]:
        rig.keeper.discard(hold)
    assert len(looks) <= 10_000


def test_renewals_that_succeed_leave_no_stale_entries() -> None:
    """However often leases of different lengths are renewed, each has one entry; but for rounding, nothing stale is
    sifted through."""
    rig = Rig()
    holds = [rig.granted(f"k{n:02}", ttl=2 + n) for n in range(40)]
    for hold in holds:
        rig.keep(hold)
    for _ in range(120):
        rig.pass_time(0.5)
        assert entries(rig) <= 1.1 * len(holds)
    assert len(rig.asked("renew")) > 5 * len(holds)
    assert [hold.lost_reason(rig.clock.now()) for hold in holds] == [None] * len(holds)


def test_leases_that_stay_are_noticed_in_time_whatever_went() -> None:
    """H2: many leases are discarded in any order; each that stays is noticed at its own deadline."""
    rig = Rig()
    chance = random.Random(5)
    holds = [rig.granted(f"k{n:03}", ttl=10 + 400 * chance.random()) for n in range(400)]
    noticed: dict[str, float] = {}

    def note(key: str) -> None:
        noticed[key] = rig.clock.now()

    for hold in holds:
        hold.lost_hooks.append(partial(note, hold.key))
        rig.keep(hold, renewing=False)
    rig.pass_time(1)
    chance.shuffle(holds)
    for hold in holds[:330]:
        rig.keeper.discard(hold)
    stay = holds[330:]
    rig.pass_time(500)
    assert noticed == pytest.approx({hold.key: hold.valid_until for hold in stay}, abs=1e-3)


def test_only_the_discarded_of_two_fresh_holds_goes() -> None:
    """Discarding one of two holds that the loop has not seen leaves the other kept, and tells nothing of the first."""
    for which in (0, 1):
        rig = Rig()
        holds = [rig.granted(f"k{n}", ttl=10) for n in range(2)]
        for hold in holds:
            rig.keep(hold, renewing=False)
        rig.keeper.discard(holds[which])
        rig.pass_time(11)
        assert [event.key for event in rig.told("lost")] == [holds[1 - which].key]


def test_two_leases_that_are_due_together_are_both_renewed() -> None:
    """H1: a batch of two renews two, within a third of the shorter lease; one alone is not a batch."""
    rig = Rig()
    holds = [rig.granted("a", ttl=6), rig.granted("b", ttl=60)]
    for hold in holds:
        rig.keep(hold)
    holds[1].renew_due = holds[0].renew_due
    rig.pass_time(3)
    calls = [call for call in rig.store.calls if call.operation == "renew"]
    assert [(call.key, call.timeout, call.batched) for call in calls] == [("a", 2.0, True), ("b", 2.0, True)]
    rig.pass_time(2)
    assert not [call for call in rig.store.calls if call.operation == "renew"][2].batched
    rig.pass_time(100)
    assert [hold.lost_reason(rig.clock.now()) for hold in holds] == [None, None]


def test_nothing_is_asked_once_the_end_is_that_of_max_hold() -> None:
    """M8: when a renewal has moved the end to `max_hold`, or the first grant reached it, no further one is asked."""
    rig = Rig()
    hold = rig.granted(ttl=10, max_hold=25.0)
    rig.keep(hold)
    short = rig.granted("short", ttl=10, max_hold=9.0)
    rig.keep(short)
    rig.pass_time(40)
    assert (hold.ended, short.ended) == ("max_hold", "max_hold")
    assert {call.key for call in rig.store.calls if call.operation == "renew"} == {"k"}
    last = rig.asked("renew")[-1]
    assert 15 <= last <= 20
    assert len(rig.asked("renew")) <= 6


def test_a_second_keeping_stops_no_renewals() -> None:
    """A hold that is renewed goes on to be renewed when it is kept again without that."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.keep(hold)
    rig.keep(hold, renewing=False)
    rig.pass_time(30)
    assert hold.lost_reason(rig.clock.now()) is None


def test_a_denial_is_told() -> None:
    """H1, A4: the first denial of a renewal is an event."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    hold.name = "nightly"
    rig.store.fail("renew", AccessDenied("no"))
    rig.keep(hold)
    rig.pass_time(12)
    assert [(event.key, event.lock) for event in rig.told("denied")] == [("k", "nightly")]


def test_closing_stops_leases_that_the_loop_has_not_seen() -> None:
    """L11: a hold that was added a moment before the closing is not renewed, nor one that is renewed by hand later."""
    rig = Rig()
    fresh = rig.granted("fresh", ttl=10)
    rig.keep(fresh)
    rig.keeper.close()
    assert rig.run(renew(rig.store, rig.env, fresh), until=rig.timeline.now + 0.1)
    asked = len(rig.asked("renew"))
    rig.pass_time(20)
    assert len(rig.asked("renew")) == asked
    assert fresh.ended == "expired"


@pytest.mark.parametrize("how", ["released", "discarded", "closed"])
def test_a_batch_that_begins_late_asks_only_for_what_is_still_kept(how: str) -> None:
    """C019, L11: between the instant at which renewals are due and the moment a worker is free for them, one lease is
    given up: nothing is asked for it, and the others are renewed."""
    rig = rig_with_busy_workers(late=1.0)
    holds = [rig.granted(f"k{n}", ttl=9) for n in range(3)]
    for hold in holds:
        rig.keep(hold)
    rig.pass_time(3.5)
    assert rig.asked("renew") == []
    if how == "released":
        holds[1].end("released")
    elif how == "discarded":
        rig.keeper.discard(holds[1])
    else:
        rig.keeper.close()
    rig.pass_time(1.5)
    asked = {call.key for call in rig.store.calls if call.operation == "renew"}
    assert asked == (set() if how == "closed" else {"k0", "k2"})


def test_the_answer_of_a_renewal_does_not_bring_a_discarded_hold_back() -> None:
    """A renewal is in flight when its hold is discarded: its answer starts no other, and no loss is told later."""
    rig = Rig()
    hold = rig.granted(ttl=9)
    other = rig.granted("other", ttl=3_600)
    rig.keep(hold)
    rig.keep(other)
    rig.store.delay_answer("renew", 1.0)
    rig.pass_time(3.5)
    rig.keeper.discard(hold)
    rig.pass_time(60)
    assert len(rig.asked("renew")) == 1
    assert rig.told("lost") == []
