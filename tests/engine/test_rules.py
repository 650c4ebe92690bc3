"""The seven rules of the engine, the arithmetic of leases, and the line of local waiters as data."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased import policy
from leased.engine import release, renew
from leased.errors import StoreUnavailable
from leased.hold import Hold
from leased.model import Contended, Lease, Released
from leased.policy import call_timeout, pause, retry_renewal_at
from tests.engine.rig import Rig, claim_on


def test_rule_1_a_refusal_proves_nothing_while_an_attempt_is_unanswered() -> None:
    """An ungranted acquisition ends with an abandon unless each of its attempts was answered."""
    rig = Rig()
    rig.occupied(ttl=1_000)
    rig.store.lose_request("acquire")
    claim = claim_on()
    assert isinstance(rig.run(rig.acquire(claim, wait=5)), Contended)
    assert [call.token for call in rig.store.calls if call.operation == "abandon"] == [claim.token]
    answered = Rig()
    answered.occupied(ttl=1_000)
    assert isinstance(answered.run(answered.acquire(claim_on(), wait=5)), Contended)
    assert answered.asked("abandon") == []


def test_rule_2_an_acquisition_that_lapsed_untaken_has_ended_too() -> None:
    """A late copy of a claim whose lease ran out, though nobody took the key, starts nothing."""
    rig = Rig()
    rig.store.lose_answer("acquire")
    claim = claim_on(ttl=5)
    hold = rig.run(rig.acquire(claim), until=rig.timeline.now)
    assert isinstance(hold, Hold)
    rig.pass_time(6)
    answer = rig.run(rig.memory.acquire(claim, timeout=1), until=rig.timeline.now)
    assert isinstance(answer, Contended)
    assert answer.ended


def test_rule_2_a_copy_that_comes_after_the_release_is_refused() -> None:
    """O5: an attempt went unanswered, its repetition won, and the hold was released: the first copy, which arrives only
    now, is refused, for the store was told that it may come."""
    rig = Rig()
    rig.store.lose_request("acquire")
    claim = claim_on(ttl=60)
    hold = rig.run(rig.acquire(claim), until=rig.timeline.now)
    assert isinstance(hold, Hold)
    assert hold.late
    assert rig.run(release(rig.store, rig.env, hold), until=rig.timeline.now)
    answer = rig.run(rig.memory.acquire(claim, timeout=1), until=rig.timeline.now)
    assert isinstance(answer, Contended)
    assert answer.ended


def test_rule_3_belief_ends_before_the_release_leaves_and_the_token_is_kept() -> None:
    """The hold is over before the first byte; an unanswered release can be repeated with the same token."""
    rig = Rig()
    hold = rig.granted()
    believed: list[float] = []

    async def look(call: object) -> None:
        believed.append(hold.remaining(rig.clock.now()))

    rig.store.before("release", look, times=99)
    rig.store.down = True
    with pytest.raises(StoreUnavailable):
        rig.run(release(rig.store, rig.env, hold))
    rig.store.down = False
    assert rig.run(release(rig.store, rig.env, hold)) == Released()
    assert believed == [0.0]
    assert len({call.token for call in rig.store.calls if call.operation == "release"}) == 1


def test_rule_4_a_given_up_acquire_may_have_had_effects() -> None:
    """A claim with the holder's owner that nobody answered may have ended the earlier hold: it is withdrawn, and the
    earlier one finds out."""
    rig = Rig()
    earlier = rig.granted(owner="run-7")
    rig.store.lose_answer("acquire", times=2)
    with pytest.raises(StoreUnavailable):
        rig.run(rig.acquire(claim_on(owner="run-7")))
    assert not rig.run(renew(rig.store, rig.env, earlier), until=rig.timeline.now + 1)
    assert earlier.ended == "retaken"
    assert not rig.held()


def test_rule_5_a_shortening_renewal_lowers_the_deadline_before_it_is_sent() -> None:
    """While it is under way, and if its answer is lost, nobody believes in more than it may leave."""
    rig = Rig()
    hold = rig.granted(ttl=60)
    during: list[float] = []

    async def look(call: object) -> None:
        during.append(hold.remaining(rig.clock.now()))

    rig.store.before("renew", look)
    rig.store.lose_answer("renew")
    with pytest.raises(StoreUnavailable):
        rig.run(renew(rig.store, rig.env, hold, ttl=6.0))
    assert during == [pytest.approx(6 * 0.98 - 0.05)]
    rig.pass_time(6)
    assert hold.lost_reason(rig.clock.now()) == "expired"


def test_rule_5_holds_until_a_later_answer_says_that_it_was_overtaken() -> None:
    """After a shortening renewal without an answer only the answer to a later one lifts the deadline again."""
    rig = Rig()
    hold = rig.granted(ttl=60)
    rig.store.lose_request("renew")
    with pytest.raises(StoreUnavailable):
        rig.run(renew(rig.store, rig.env, hold, ttl=6.0))
    assert hold.remaining(rig.clock.now()) < 6
    assert rig.run(renew(rig.store, rig.env, hold, ttl=60.0), until=rig.timeline.now + 1)
    assert hold.remaining(rig.clock.now()) > 55


def test_rule_6_renewals_carry_a_number() -> None:
    """Each attempt takes a new number; a store that has seen a higher one answers with it, and the client goes on."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    for _ in range(3):
        assert rig.run(renew(rig.store, rig.env, hold), until=rig.timeline.now + 1)
    assert hold.number == 3
    rig.run(rig.memory.renew("k", hold.token, ttl=30.0, number=10, timeout=1), until=rig.timeline.now)
    assert rig.run(renew(rig.store, rig.env, hold, ttl=50.0), until=rig.timeline.now + 1)
    assert hold.number == 11
    assert hold.remaining(rig.clock.now()) > 45


def test_rule_6_an_older_answer_does_not_override_a_newer_one() -> None:
    """Two renewals whose answers arrive in the other order: the later one counts."""
    claim = claim_on(ttl=30)
    hold = Hold(Lease("k", claim.token, 1, 30.0, None, 30.0), 0.0, claim=claim, margin=0.0)
    first, second = hold.ask(1.0, ttl=20.0), hold.ask(2.0, ttl=10.0)
    assert hold.renewed(Lease("k", claim.token, 1, 10.0, None, 10.0, renewal=second), 2.0, now=3.0)
    assert hold.valid_until == pytest.approx(12.0 - 0.05)
    assert hold.renewed(Lease("k", claim.token, 1, 20.0, None, 20.0, renewal=first), 1.0, now=4.0)
    assert hold.valid_until == pytest.approx(12.0 - 0.05)


@pytest.mark.parametrize("told", [5.0, 5.001, 65.0, 1e9])
def test_more_than_the_whole_lease_is_never_believed(told: float) -> None:
    """M5: after the store's clock was set back it may tell of more time than the lease has; that is not believed, for
    the clock may be put right again."""
    lease = Lease("k", "a-token-of-its-own", 1, 5.0, None, told)
    hold = Hold(lease, 100.0, claim=claim_on(ttl=5.0), margin=0.02)
    assert hold.valid_until == pytest.approx(100.0 + 5.0 * 0.98 - 0.05)
    assert hold.renewed(replace(lease, renewal=1), 101.0, now=101.0)
    assert hold.valid_until == pytest.approx(101.0 + 5.0 * 0.98 - 0.05)


def test_rule_7_a_forced_release_names_the_number_it_aims_at() -> None:
    """A late repeat of a forced release with a number does not hit the successor."""
    rig = Rig()
    first = rig.granted()
    forced = rig.run(rig.memory.force_release("k", fencing_token=first.fencing_token, timeout=1))
    second = rig.granted()
    late = rig.run(rig.memory.force_release("k", fencing_token=first.fencing_token, timeout=1))
    assert (forced, late) == (True, False)
    assert rig.run(renew(rig.store, rig.env, second), until=rig.timeline.now + 1)


times = st.floats(0, 1e6)
lengths = st.floats(0.105, policy.MAX_TTL)
rates = st.floats(-0.01, 0.01)


@given(asked=times, delay=st.floats(0, 100), left=lengths, ours=rates, theirs=rates)
def test_belief_never_outlives_the_lease(asked: float, delay: float, left: float, ours: float, theirs: float) -> None:
    """M5: for every delay, and clocks off by up to 1 % each way, the local deadline comes before the store's expiry."""
    until = policy.valid_until(asked, waited=0.0, left=left)
    believed_for = (until - asked) / (1 + ours)
    lives_for = delay + left / (1 + theirs)
    assert believed_for <= lives_for


@given(left=lengths, margin=st.floats(0, 0.4))
def test_a_ttl_that_is_allowed_is_not_halved(left: float, margin: float) -> None:
    """M5: from the shortest ttl on, the margins leave at least half of it; just below they would not."""
    least = policy.min_ttl(margin)
    if left >= least:
        assert policy.usable(left, margin=margin) >= left / 2 - 1e-9
    below = least - 0.0011
    if below > 0:
        assert policy.usable(below, margin=margin) < below / 2


def test_the_shortest_ttl_at_the_defaults_is_the_documented_one() -> None:
    """M5: 105 ms."""
    assert policy.min_ttl() == 0.105


@given(attempt=st.integers(0, 10_000), seed=st.integers())
def test_naps_stay_within_their_limits(attempt: int, seed: int) -> None:
    """W2, W3: a nap is at least half its nominal length, never above a second, for any number of attempts."""
    nap = policy.pause(attempt, random.Random(seed))
    nominal = min(policy.POLL_MAX, policy.POLL_MIN * 2.0 ** min(attempt, 50))
    assert nominal / 2 <= nap <= nominal


@given(timeout=st.floats(0.01, 300), wait=st.floats(0, 1e6), left=st.floats(-10, 1e6))
def test_calls_get_no_more_time_than_there_is(timeout: float, wait: float, left: float) -> None:
    """W2, O6: half the budget for a single try; otherwise what is left of the wait, but a round trip at least."""
    given_time = policy.call_timeout(timeout, wait=wait, left=left)
    assert given_time <= timeout
    if wait <= 0:
        assert 2 * given_time <= timeout
    else:
        assert given_time <= max(left, policy.MIN_CALL_TIMEOUT)
        assert given_time >= min(timeout, policy.MIN_CALL_TIMEOUT)


@given(timeout=st.floats(0.01, 300), ttl=lengths)
def test_a_call_for_a_lease_leaves_time_for_another(timeout: float, ttl: float) -> None:
    """H1: a call made for a lease takes at most a third of its ttl."""
    assert policy.lease_call_timeout(timeout, ttl=ttl) <= min(timeout, ttl / 3)


@given(asked=times, left=lengths)
def test_renewals_are_due_after_a_third_of_what_is_left(asked: float, left: float) -> None:
    """H1: never later than a third of the time for which the lease is believed."""
    due = policy.renew_at(asked, believed_until=asked + left)
    assert due == pytest.approx(asked + left / 3, rel=1e-9, abs=1e-6)


def test_forever_is_infinite_and_nothing_else_is() -> None:
    """W1: every other limit is finite."""
    assert math.isinf(policy.FOREVER)
    for name, value in vars(policy).items():
        if name.isupper() and isinstance(value, int | float) and name != "FOREVER":
            assert math.isfinite(value), name


class Most:
    """Chance at its end: the longest naps."""

    def __init__(self, drawn: float = 1.0) -> None:
        self.drawn = drawn

    def random(self) -> float:
        """As drawn."""
        return self.drawn


def test_naps_double_from_the_shortest_to_the_longest() -> None:
    """W3: 50 ms doubling to a second; jitter takes up to half of it, but not of the longest; `retry_delay` stands for
    all of them, and no more than a second."""
    longest = [pause(attempt, Most()) for attempt in range(7)]
    assert longest == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert [pause(attempt, Most(0.0)) for attempt in range(6)] == pytest.approx([0.025, 0.05, 0.1, 0.2, 0.4, 1.0])
    assert pause(3, Most(0.0), retry_delay=0.3) == pytest.approx(0.15)
    assert pause(3, Most(0.0), retry_delay=30.0) == 1.0


def test_a_renewal_that_failed_is_tried_again_several_times_before_the_end() -> None:
    """H1: after a quarter of what is left, at most after a second, less up to half by jitter."""
    assert retry_renewal_at(100.0, believed_until=102.0, chance=Most()) == pytest.approx(100.5)
    assert retry_renewal_at(100.0, believed_until=102.0, chance=Most(0.0)) == pytest.approx(100.25)
    assert retry_renewal_at(100.0, believed_until=200.0, chance=Most()) == pytest.approx(101.0)
    assert retry_renewal_at(100.0, believed_until=100.0, chance=Most()) == pytest.approx(100.01)


def test_a_single_try_may_take_half_of_the_operations_time() -> None:
    """O6: it may be repeated once, and both fit."""
    assert call_timeout(5.0, wait=0.0, left=0.0) == 2.5
