"""The keeper: when it renews, what it tries again, what it notices, what hangs and what that delays."""

import gc
import random

import pytest

from leased.errors import AccessDenied, StoreNotUsable, StoreUnavailable
from leased.hold import Hold
from leased.policy import RENEWAL_GRID, min_ttl, retry_renewal_at
from tests.engine.rig import Rig


@pytest.mark.parametrize("ttl", [min_ttl(), 0.15, 0.5, 1.0, 15.0, 60.0])
def test_a_lease_of_any_length_never_lapses(ttl: float) -> None:
    """C031, H1: from the smallest ttl to a minute a renewed lease is held for five of them."""
    rig = Rig()
    hold = rig.granted(ttl=ttl)
    rig.keep(hold)
    started = rig.timeline.now
    while rig.timeline.now < started + 5 * ttl:
        rig.pass_time(ttl / 50)
        assert hold.lost_reason(rig.clock.now()) is None
        assert rig.held()
    third = (ttl * 0.98 - 0.05) / 3
    assert len(rig.asked("renew")) <= 5 * ttl / third + 3
    assert len(rig.asked("renew")) >= 5


def test_renewals_come_at_a_third_of_the_time_left() -> None:
    """H1: each renewal is asked when a third of what was left has passed, and sets the end to now + ttl."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    rig.keep(hold)
    rig.pass_time(60)
    gaps = [later - earlier for earlier, later in zip(rig.asked("renew"), rig.asked("renew")[1:], strict=False)]
    assert gaps == pytest.approx([(30 * 0.98 - 0.05) / 3] * len(gaps), abs=RENEWAL_GRID)
    assert hold.valid_until > rig.clock.now() + 18


def test_one_failed_renewal_is_followed_by_the_next() -> None:
    """C023, H1: one renewal of a lease of 30 s fails in two minutes: it is retried, and nothing lapses."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    rig.store.lose_request("renew")
    rig.keep(hold)
    rig.pass_time(120)
    assert hold.lost_reason(rig.clock.now()) is None
    assert rig.held()
    first, second, third = rig.asked("renew")[:3]
    assert second - first <= 1.0 + RENEWAL_GRID
    assert third - second == pytest.approx(9.8, abs=0.1)
    assert [event.data["error"] for event in rig.told("renewal_failed")] == ["StoreUnavailable"]


def test_a_lost_answer_of_a_renewal_harms_nothing() -> None:
    """C045: a renewal is applied and its answer lost; the next one succeeds and no loss is reported."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.store.lose_answer("renew")
    rig.keep(hold)
    rig.pass_time(30)
    assert hold.lost_reason(rig.clock.now()) is None
    assert rig.told("lost") == []


def test_failing_renewals_do_not_hammer_the_store() -> None:
    """H1, C191: while every renewal is refused at once, retries are jittered and bounded, also just before the end."""
    for ttl in (min_ttl(), 1.0, 30.0):
        rig = Rig()
        hold = rig.granted(ttl=ttl)
        rig.store.fail("renew", StoreUnavailable("refused", applied=False), times=10_000)
        rig.keep(hold)
        rig.pass_time(ttl + 1)
        assert hold.ended == "expired"
        assert 2 <= len(rig.asked("renew")) <= 90
        assert len(rig.told("renewal_failed")) == 1


def test_retries_are_never_closer_than_a_breath_and_never_further_than_a_second() -> None:
    """H1: the nap before a retry is jittered, at most a second and at least 10 ms, however little is left."""
    chance = random.Random(1)
    for left in (0.0, 1e-6, 0.01, 0.1, 1.0, 30.0, 1e6):
        naps = {retry_renewal_at(100.0, believed_until=100.0 + left, chance=chance) - 100.0 for _ in range(50)}
        assert min(naps) + 1e-9 >= 0.01
        assert max(naps) <= 1.0


def test_an_outage_shorter_than_the_lease_is_survived() -> None:
    """C191: a store that is away for 2 s costs no lease of 10 s."""
    rig = Rig()
    holds = [rig.granted(f"k{n}", ttl=10) for n in range(20)]
    for hold in holds:
        rig.keep(hold)
    rig.pass_time(3)
    rig.store.down = True
    rig.pass_time(2)
    rig.store.down = False
    rig.pass_time(20)
    assert [hold.lost_reason(rig.clock.now()) for hold in holds] == [None] * 20


def test_one_hung_renewal_delays_nobody() -> None:
    """C025, H1: 200 leases, the renewal of one hangs for ever: after three ttls the other 199 are held,
    and the hung one was lost no later than its own deadline."""
    rig = Rig()
    holds = [rig.granted(f"k{n:03}", ttl=15) for n in range(200)]
    ended_at: list[float] = []
    stuck = holds[77]
    stuck.lost_hooks.append(lambda: ended_at.append(rig.clock.now()))
    deadline = stuck.valid_until
    rig.store.hang("renew", key=stuck.key, past_timeout=True)
    for hold in holds:
        rig.keep(hold)
    rig.pass_time(45)
    assert [hold.key for hold in holds if hold.lost_reason(rig.clock.now()) is not None] == [stuck.key]
    assert ended_at == [pytest.approx(deadline, abs=RENEWAL_GRID)]
    assert ended_at[0] <= deadline + 1e-6


def test_renewals_that_are_due_together_leave_as_one_batch() -> None:
    """H1: what is due within one step of the grid is one request."""
    rig = Rig()
    holds = [rig.granted(f"k{n}", ttl=30) for n in range(100)]
    for hold in holds:
        rig.keep(hold)
    before = rig.store.requests
    rig.pass_time(30)
    assert len(rig.asked("renew")) >= 200
    assert rig.store.requests - before <= 10


def test_a_definite_loss_ends_one_member_of_a_batch_only() -> None:
    """H1, H3: the first definite loss ends that hold at once: event and hook once; the others of its batch go on."""
    rig = Rig()
    holds = [rig.granted(f"k{n}", ttl=30) for n in range(3)]
    holds[1].lost_hooks.append(lambda: "told")
    for hold in holds:
        rig.keep(hold)
    rig.run(rig.memory.force_release("k1", timeout=1.0), until=rig.timeline.now)
    rig.pass_time(12)
    assert [hold.ended for hold in holds] == [None, "force_released", None]
    assert rig.hooks == ["told"]
    assert [event.key for event in rig.told("lost")] == ["k1"]


def test_the_body_is_stopped_before_hooks_are_called() -> None:
    """H3: mark lost, then stop the body, then tell, then call hooks."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    order: list[str] = []
    hold.stop = lambda: order.append(f"stop, {hold.ended}")
    hold.lost_hooks.append(lambda: order.append(f"hook, {len(rig.told('lost'))} told"))
    rig.keep(hold, renewing=False)
    rig.pass_time(10)
    assert order == ["stop, expired", "hook, 1 told"]


def test_a_lease_that_is_not_renewed_is_noticed_at_its_deadline() -> None:
    """H2: a kept hold without renewal is lost when the local deadline passes; nobody is asked."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.keep(hold, renewing=False)
    deadline = hold.valid_until
    rig.pass_time(deadline - rig.clock.now() - 0.1)
    assert rig.told("lost") == []
    rig.pass_time(0.1 + 1e-3)
    assert [event.data["reason"] for event in rig.told("lost")] == ["expired"]
    assert rig.asked("renew") == []


def test_max_hold_ends_renewals_and_has_its_own_reason() -> None:
    """M8, C029: no renewal moves the end past `max_hold`; it is reached as a loss of that reason, after which none is
    asked."""
    rig = Rig()
    hold = rig.granted(ttl=10, max_hold=25.0)
    rig.keep(hold)
    rig.pass_time(40)
    assert hold.ended == "max_hold"
    assert max(rig.asked("renew")) < 25
    assert not rig.held()


def test_a_denial_stops_renewals_and_the_lease_ends_as_denied() -> None:
    """H1, A4: after a denial nothing is asked any more; the hold is lost (`denied`) at its deadline."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    rig.store.fail("renew", AccessDenied("no"), times=9)
    rig.keep(hold)
    rig.pass_time(25)
    assert hold.lost_reason(rig.clock.now()) is None
    assert len(rig.asked("renew")) == 1
    rig.pass_time(6)
    assert hold.ended == "denied"


def test_a_store_that_is_not_usable_ends_the_hold() -> None:
    """H2: `StoreNotUsable` in answer to a renewal is a loss (`store_lost`)."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    rig.store.fail("renew", StoreNotUsable("gone"), times=9)
    rig.keep(hold)
    rig.pass_time(12)
    assert hold.ended == "store_lost"


def test_a_record_that_is_gone_before_its_time_is_a_loss_of_the_store() -> None:
    """H2, C109: a store that knows nothing of a lease that should go on has lost it: it did not run out."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    rig.memory._records.clear()
    rig.keep(hold)
    rig.pass_time(12)
    assert hold.ended == "store_lost"


def test_the_warning_comes_after_a_third_of_failing() -> None:
    """H6: `at_risk` is told once, when renewals have been failing for a third of the lease, and again only after one
    that worked."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    hold.at_risk_hooks.append(lambda: rig.clock.now())
    rig.store.lose_request("renew", times=10_000)
    rig.keep(hold)
    rig.pass_time(25)
    first_failure = rig.asked("renew")[0]
    assert rig.hooks == [pytest.approx(first_failure + 10, abs=RENEWAL_GRID)]
    rig.store.let_go()
    rig.pass_time(3)
    assert hold.lost_reason(rig.clock.now()) is None
    rig.store.lose_request("renew", times=10_000)
    rig.pass_time(40)
    assert len(rig.told("at_risk")) == 2


def test_nothing_is_asked_for_a_hold_that_was_given_up() -> None:
    """C019, L12: after a release, and after `discard`, no renewal is sent, and the loop ends by itself."""
    rig = Rig()
    for n in range(3):
        hold = rig.granted(f"k{n}", ttl=10)
        rig.keep(hold)
        hold.end("released")
        rig.keeper.discard(hold)
    rig.pass_time(60)
    assert rig.asked("renew") == []
    assert rig.process.tasks == {}


def test_a_renewal_in_flight_at_the_release_changes_nothing() -> None:
    """C019: the renewal's answer comes after the release: the hold stays released, and no further one is sent."""
    rig = Rig()
    hold = rig.granted(ttl=9)
    rig.store.delay("renew", 0.2)
    rig.keep(hold)
    rig.pass_time(3)
    assert len(rig.asked("renew")) == 1
    hold.end("released")
    rig.keeper.discard(hold)
    rig.run(rig.memory.release(hold.key, hold.token, timeout=1.0), until=rig.timeline.now)
    rig.pass_time(60)
    assert len(rig.asked("renew")) == 1
    assert hold.ended == "released"
    assert not rig.held()
    assert rig.told("lost") == []


def test_a_forgotten_hold_is_not_renewed() -> None:
    """C029: the keeper refers to holds weakly: one that nobody has any more is dropped."""
    rig = Rig()
    rig.keep(rig.granted("forgotten", ttl=10))
    kept = rig.granted("kept", ttl=10)
    rig.keep(kept)
    gc.collect()
    rig.pass_time(30)
    assert {call.key for call in rig.store.calls if call.operation == "renew"} == {"kept"}
    assert not rig.held("forgotten")


def test_a_thousand_short_blocks_leave_nothing_behind() -> None:
    """C180: entries of holds that are over do not pile up in the keeper."""
    rig = Rig()
    longest = rig.granted("long", ttl=3_600)
    rig.keep(longest)
    for n in range(1_000):
        hold = rig.granted(f"k{n}", ttl=3_600)
        rig.keep(hold)
        hold.end("released")
        rig.keeper.discard(hold)
    assert len(rig.keeper._heap) + len(rig.keeper._fresh) < 100


def test_closing_stops_renewals_and_losses_are_still_noticed() -> None:
    """L11: a closed keeper renews nothing; what still runs is lost at its deadline, with the reason it was given."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.keep(hold)
    rig.pass_time(5)
    asked = len(rig.asked("renew"))
    hold.last_reason = "closed"
    rig.keeper.close()
    late = rig.granted("late", ttl=10)
    rig.keep(late)
    rig.pass_time(20)
    assert len(rig.asked("renew")) == asked
    assert hold.ended == "closed"
    assert late.ended == "expired"
    assert rig.process.tasks == {}


def test_the_loop_notices_a_clock_that_jumped() -> None:
    """W2, H2: the loop naps at most a second, so that time lost in a suspension is noticed within a second."""
    rig = Rig()
    hold = rig.granted(ttl=3_600)
    rig.keep(hold)
    rig.pass_time(1)
    rig.clock.step(4_000)
    rig.pass_time(1.01)
    assert hold.ended == "expired"


def test_a_manual_renewal_moves_the_next_step() -> None:
    """L5: a kept hold that is shortened by hand is renewed and noticed by its new deadline."""
    from leased.engine import renew

    rig = Rig()
    hold = rig.granted(ttl=60)
    rig.keep(hold)
    assert rig.run(renew(rig.store, rig.env, hold, ttl=6.0), until=rig.timeline.now + 0.1)
    rig.pass_time(20)
    assert hold.lost_reason(rig.clock.now()) is None
    assert len(rig.asked("renew")) >= 8


def test_a_lease_that_is_cut_to_less_than_a_nap_wakes_the_loop() -> None:
    """H2, L5: a kept hold is shortened by hand to end before the loop would look again: the loss is told in time."""
    from leased.engine import renew

    rig = Rig()
    hold = rig.granted(ttl=60)
    rig.keep(hold, renewing=False)
    rig.pass_time(0.5)
    assert rig.run(renew(rig.store, rig.env, hold, ttl=0.3), until=rig.timeline.now)
    noticed: list[float] = []
    hold.lost_hooks.append(lambda: noticed.append(rig.clock.now()))
    rig.pass_time(0.4)
    assert noticed == [pytest.approx(hold.valid_until, abs=1e-3)]


def test_belief_never_outlives_the_store_with_slow_renewals() -> None:
    """C072, M5: with answers that take up to 2 s in either direction the local deadline is never after the store's."""
    rig = Rig()
    hold = rig.granted(ttl=12)
    chance = random.Random(7)
    rig.keep(hold)
    for _ in range(400):
        rig.store.delay("renew", 2 * chance.random())
        rig.store.delay_answer("renew", 2 * chance.random())
        rig.pass_time(0.5)
        record = rig.memory._find("k")
        assert record is not None
        assert hold.valid_until <= record.expires_at
    assert isinstance(hold, Hold)
    assert hold.ended is None
