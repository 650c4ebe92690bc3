"""How an acquire ends, row by row: with a grant, in contention, with an error; what it owes the store afterwards."""

from dataclasses import replace
from itertools import pairwise

import pytest

from leased import engine
from leased.errors import AccessDenied, RateLimited, StoreNotUsable, StoreUnavailable
from leased.hold import Hold
from leased.model import Claim, Contended, Held
from leased.stores.memory import MemoryStore
from leased.timeline import Cancelled
from tests.engine.rig import Rig, claim_on
from tests.faces.faults import Call


async def _lapse(rig: Rig, seconds: float) -> None:
    await rig.clock.sleep(seconds)


def test_granted_at_once() -> None:
    """A free key: one attempt, a hold that believes for less than the ttl, counted from before the request."""
    rig = Rig()
    claim = claim_on(ttl=10, owner="o")
    hold = rig.run(rig.acquire(claim))
    assert isinstance(hold, Hold)
    assert (hold.key, hold.token, hold.owner, hold.ttl) == ("k", claim.token, "o", 10)
    assert hold.valid_until == pytest.approx(10 * 0.98 - 0.05)
    assert rig.asked("acquire") == [0.0]
    assert rig.asked("abandon") == []
    assert [event.data["waited"] for event in rig.told("acquired")] == [0.0]


def test_contended_at_once() -> None:
    """A held key, a single try: one attempt, `Contended` with what anyone may see, no time passes, nothing is owed."""
    rig = Rig()
    rig.occupied(owner="somebody")
    outcome = rig.run(rig.acquire(claim_on()))
    assert isinstance(outcome, Contended)
    assert outcome.status is not None
    assert outcome.status.owner == "somebody"
    assert (rig.asked("acquire"), rig.timeline.now, rig.asked("abandon")) == ([0.0], 0.0, [])
    assert [event.name for event in rig.events] == ["contended"]


def test_granted_after_waiting() -> None:
    """A key that is released meanwhile: granted in the same instant, by the bell."""
    rig = Rig()
    held = rig.occupied(ttl=100)
    task = rig.start(rig.acquire(claim_on(ttl=10), wait=60))
    rig.pass_time(20)
    rig.run(rig.memory.release("k", held.token, timeout=1), until=rig.timeline.now)
    rig.pass_time(0.0)
    hold = task.result()
    assert isinstance(hold, Hold)
    assert hold.valid_until - rig.clock.now() == pytest.approx(10 * 0.98 - 0.05)


def test_contended_when_the_wait_ran_out() -> None:
    """A key that stays held: `Contended` at the end of the wait, not before and not after; told as `rejected`."""
    rig = Rig()
    rig.occupied(ttl=1_000)
    outcome = rig.run(rig.acquire(claim_on(), wait=7.3))
    assert isinstance(outcome, Contended)
    assert rig.timeline.now == pytest.approx(7.3, abs=1e-3)
    assert [event.name for event in rig.events] == ["rejected"]


def test_the_last_sleep_is_cut_to_the_time_left() -> None:
    """C053: naps that have grown to a second do not carry a wait of 1.01 s beyond its end."""
    for wait in (0.01, 0.12, 1.01):
        rig = Rig()
        rig.occupied(ttl=1_000)
        rig.run(rig.acquire(claim_on(), wait=wait, retry_delay=1.0))
        assert rig.timeline.now == pytest.approx(wait, abs=1e-3)


def test_what_one_attempt_left_unknown_the_next_one_does_not_make_known() -> None:
    """C043, S2: an answer that was lost, then a server that takes no connection: the error says that nobody knows."""
    rig = Rig()

    async def break_and_stay_away(call: Call) -> None:
        rig.store.fail("acquire", StoreUnavailable("refused", applied=False))
        raise StoreUnavailable("the connection broke")

    rig.store.after("acquire", break_and_stay_away)
    with pytest.raises(StoreUnavailable, match="refused") as raised:
        rig.run(rig.acquire(claim_on()))
    assert raised.value.applied is None


def test_an_unanswered_single_try_is_repeated_once_with_the_same_token() -> None:
    """O6: the second try is sent at once; both fit in the operation timeout."""
    rig = Rig(timeout=4)
    rig.store.lose_request("acquire")
    hold = rig.run(rig.acquire(claim_on()))
    assert isinstance(hold, Hold)
    calls = [call for call in rig.store.calls if call.operation == "acquire"]
    assert len({call.token for call in calls}) == 1
    assert sum(call.timeout for call in calls) <= 4
    assert rig.timeline.now == 0.0


def test_a_single_try_that_is_never_answered_raises_and_abandons() -> None:
    """O6, L12: twice no answer: `StoreUnavailable`, and the claim is withdrawn within the clean-up budget."""
    rig = Rig()
    rig.store.lose_answer("acquire", times=2)
    with pytest.raises(StoreUnavailable):
        rig.run(rig.acquire(claim_on()))
    assert len(rig.asked("acquire")) == 2
    assert len(rig.asked("abandon")) == 1
    assert not rig.held()


def test_an_answer_that_it_did_not_happen_owes_nothing() -> None:
    """S2: an attempt of which the store's client knows that it was not applied is not abandoned."""
    rig = Rig()
    rig.store.fail("acquire", StoreUnavailable("refused", applied=False), times=9)
    with pytest.raises(StoreUnavailable):
        rig.run(rig.acquire(claim_on(), wait=3))
    assert rig.asked("abandon") == []


def test_a_wait_without_answers_ends_in_the_stores_error() -> None:
    """C187b: the last word was no answer: that is what is raised, at the end of the wait."""
    rig = Rig()
    rig.store.lose_request("acquire", times=1_000)
    with pytest.raises(StoreUnavailable):
        rig.run(rig.acquire(claim_on(), wait=5))
    assert 5 <= rig.asked("abandon")[0] <= 5.2


def test_a_wait_that_ends_in_limits_only_ran_out_of_time() -> None:
    """R2: over the limit until the end: contention for a wait, the limit itself for a single try."""
    rig = Rig()
    rig.store.fail("acquire", RateLimited("slow down", retry_after=2.0), times=1_000)
    assert isinstance(rig.run(rig.acquire(claim_on(), wait=5)), Contended)
    assert len(rig.asked("acquire")) <= 4
    with pytest.raises(RateLimited):
        rig.run(rig.acquire(claim_on()))


def test_limits_are_waited_out_for_as_long_as_they_say() -> None:
    """R2: the next attempt comes no sooner than `retry_after`."""
    rig = Rig()
    rig.store.fail("acquire", RateLimited("slow down", retry_after=3.0))
    assert isinstance(rig.run(rig.acquire(claim_on(), wait=60), until=50), Hold)
    first, second = rig.asked("acquire")
    assert second - first >= 3.0


@pytest.mark.parametrize("error", [AccessDenied("no"), StoreNotUsable("gone"), ZeroDivisionError("a bug")], ids=repr)
def test_a_refusal_ends_the_wait_at_once(error: Exception) -> None:
    """C135: what waiting would not help is raised at once; only what may have been applied is abandoned."""
    rig = Rig()
    rig.store.fail("acquire", error, times=9)
    with pytest.raises(type(error)):
        rig.run(rig.acquire(claim_on(), wait=60))
    assert rig.asked("acquire") == [0.0]
    assert len(rig.asked("abandon")) == isinstance(error, ZeroDivisionError)


def test_a_dead_grant_of_a_single_try_is_contention_and_handed_back() -> None:
    """C066, M5: an answer after the lease is used up is no grant."""
    rig = Rig()
    rig.store.delay_answer("acquire", 0.6)
    assert isinstance(rig.run(rig.acquire(claim_on(ttl=0.5))), Contended)
    assert not rig.held()
    assert len(rig.asked("abandon")) == 1


def test_a_dead_grant_in_a_wait_is_followed_by_another_attempt_with_a_new_token() -> None:
    """C066, O5: the token of a dead grant is spent: it is handed back, and a new one asks."""
    rig = Rig()
    rig.store.delay_answer("acquire", 0.6)
    claim = claim_on(ttl=0.5)
    hold = rig.run(rig.acquire(claim, wait=30), until=20)
    assert isinstance(hold, Hold)
    assert hold.token != claim.token
    assert [call.token for call in rig.store.calls if call.operation == "abandon"] == [claim.token]


def test_a_dead_grant_of_a_callers_own_token_ends_the_acquire() -> None:
    """O5, O6: no other token may be used for it: contention, and the grant is handed back."""
    rig = Rig()
    rig.store.delay_answer("acquire", 0.6)
    assert isinstance(rig.run(rig.acquire(claim_on(ttl=0.5), wait=30, brought=True), until=5), Contended)
    assert not rig.held()


def test_a_dead_grant_of_a_token_that_is_held_takes_nothing_away() -> None:
    """SAFE1, O5: who asks again with the token of a hold, and is answered too late, still has that hold: what it was
    told before is not handed back, or somebody else could have the key while it believes."""
    rig = Rig()
    claim = claim_on(ttl=2.0)
    first = rig.run(rig.acquire(claim, brought=True), until=rig.timeline.now)
    rig.store.delay("acquire", 1.2)
    rig.pass_time(0.1)
    assert isinstance(rig.run(rig.acquire(claim, brought=True), until=1.5), Contended)
    assert rig.timeline.now < first.valid_until
    assert rig.held()
    rig.pass_time(0.6)
    assert not rig.held()


def test_an_ended_token_is_replaced_unless_it_is_the_callers_own() -> None:
    """O5: a token that had its lease is refused for good: the engine goes on with a new one, or ends."""
    rig = Rig()
    spent = claim_on(ttl=10)

    async def spend() -> None:
        await rig.memory.acquire(spent, timeout=1)
        await rig.memory.abandon("k", spent.token, timeout=1)

    rig.run(spend())
    hold = rig.run(rig.acquire(spent, wait=5), until=3)
    assert isinstance(hold, Hold)
    assert hold.token != spent.token
    rig.run(rig.memory.release("k", hold.token, timeout=1), until=rig.timeline.now)
    assert isinstance(rig.run(rig.acquire(spent, wait=5, brought=True), until=8), Contended)


def test_a_callers_own_token_is_left_alone_when_nobody_answered() -> None:
    """O6: it is not abandoned when the acquire ends in `StoreUnavailable`: the caller will ask again with it."""
    for wait in (0.0, 3.0):
        rig = Rig()
        rig.store.lose_answer("acquire", times=1_000)
        claim = claim_on(ttl=60)
        with pytest.raises(StoreUnavailable):
            rig.run(rig.acquire(claim, wait=wait, brought=True))
        assert rig.asked("abandon") == []
        rig.store.let_go()
        hold = rig.run(rig.acquire(claim, brought=True), until=rig.timeline.now)
        assert isinstance(hold, Hold)
        assert hold.token == claim.token


def test_a_callers_own_token_is_abandoned_when_its_acquire_is_cancelled() -> None:
    """O6: it is abandoned when the acquire is cancelled while an attempt is unanswered."""
    rig = Rig()
    rig.store.delay_answer("acquire", 60)
    task = rig.start(rig.acquire(claim_on(ttl=100), wait=90, brought=True))
    rig.pass_time(1)
    task.cancel()
    rig.pass_time(1)
    assert isinstance(task.error, Cancelled)
    assert not rig.held()


def test_a_cancelled_repeat_with_a_held_token_takes_nothing_away() -> None:
    """SAFE1, O5: somebody asks again with the token of a hold and is cancelled before or after he is answered: the hold
    is not ended early, for it believes in what it was told."""
    for renewed, answered in ((False, False), (True, False), (False, True), (True, True)):
        rig = Rig()
        claim = claim_on(ttl=10)
        first = rig.run(rig.acquire(claim, brought=True), until=rig.timeline.now)
        if renewed:
            rig.run(engine.renew(rig.store, rig.env, first), until=rig.timeline.now)
        if answered:
            second = rig.run(rig.acquire(claim, brought=True), until=rig.timeline.now)
            rig.run(engine.drop(rig.store, rig.env, second, claim), until=1)
        else:
            rig.store.delay_answer("acquire", 60)
            task = rig.start(rig.acquire(claim, wait=90, brought=True))
            rig.pass_time(0.5)
            task.cancel()
            rig.pass_time(0.5)
            assert isinstance(task.error, Cancelled)
        assert rig.asked("abandon")
        assert rig.held(), f"renewed: {renewed}, answered: {answered}"


def test_a_cancelled_acquire_of_a_callers_own_token_hands_back_all_its_attempts() -> None:
    """SAFE11, O6: attempts of one acquire were answered unheard, and another is on its way: nothing is held afterwards,
    whether that one arrives or not."""
    for arrives in (True, False):
        rig = Rig(timeout=1.0)
        rig.store.lose_answer("acquire", times=2)
        task = rig.start(rig.acquire(claim_on(ttl=100), wait=90, brought=True))
        rig.pass_time(0.0)
        (rig.store.delay_answer if arrives else rig.store.delay)("acquire", 60)
        rig.pass_time(0.5)
        assert len(rig.asked("acquire")) == 3
        assert rig.held()
        task.cancel()
        rig.pass_time(1)
        assert not rig.held(), f"arrives: {arrives}"


def test_a_cancelled_wait_hands_back_what_was_on_its_way() -> None:
    """C001, L12: cancelled at every half second of a wait with slow answers: nothing is held a round trip later."""
    for moment in range(1, 30):
        rig = Rig()
        held = rig.occupied(ttl=6)
        rig.store.delay("acquire", 0.3, times=1_000)
        rig.store.delay_answer("acquire", 0.3, times=1_000)
        task = rig.start(rig.acquire(claim_on(ttl=60), wait=60))
        rig.pass_time(moment * 0.5)
        if task.done:
            assert isinstance(task.result(), Hold)
            continue
        task.cancel()
        rig.pass_time(1.0)
        assert isinstance(task.error, Cancelled)
        rig.run(rig.memory.release("k", held.token, timeout=1), until=rig.timeline.now)
        assert not rig.held()
        assert rig.env.lines.waiting("k") == 0


def test_a_fixed_lease_asks_for_what_is_left_of_it() -> None:
    """H5: each attempt asks for a lease that ends when the first would have ended."""
    rig = Rig()
    rig.occupied(ttl=6)
    asked: list[float] = []

    class Noting(type(rig.memory)):  # type: ignore[misc]  # the store's own class, with a note
        async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
            asked.append(round(claim.ttl + rig.clock.now(), 6))
            answer: Held | Contended = await super().acquire(claim, timeout=timeout)
            return answer

    rig.memory.__class__ = Noting
    hold = rig.run(rig.acquire(claim_on(ttl=20), wait=15, fixed=True), until=15)
    assert isinstance(hold, Hold)
    assert len(asked) > 3
    assert set(asked) == {20.0}
    assert hold.valid_until <= 20 * 0.98 - 0.05 + 6 * 0.02 + 1e-6


def test_the_callers_event_ends_a_wait() -> None:
    """L4: `cancelled` is asked while waiting, at least twenty times a second; true ends the wait as contention."""
    rig = Rig()
    rig.occupied(ttl=1_000)
    stopped = False
    task = rig.start(rig.acquire(claim_on(), wait=600, cancelled=lambda: stopped))
    rig.pass_time(10)
    assert not task.done
    stopped = True
    rig.pass_time(0.06)
    assert isinstance(task.result(), Contended)


def test_a_closed_environment_ends_a_wait_and_hands_back_a_grant() -> None:
    """L11: who waits is told within a second; a grant on its way is handed back."""
    rig = Rig()
    held = rig.occupied(ttl=1_000)
    waiting = rig.start(rig.acquire(claim_on(), wait=600))
    rig.pass_time(5)
    rig.env.closed = True
    asked = len(rig.asked("acquire"))
    rig.pass_time(1.01)
    assert len(rig.asked("acquire")) == asked
    with pytest.raises(StoreNotUsable):
        waiting.result()
    rig.env.closed = False
    rig.run(rig.memory.release("k", held.token, timeout=1), until=rig.timeline.now)
    rig.store.delay_answer("acquire", 0.5)
    asking = rig.start(rig.acquire(claim_on(), wait=600))
    rig.pass_time(0.2)
    rig.env.closed = True
    rig.pass_time(1)
    with pytest.raises(StoreNotUsable):
        asking.result()
    rig.env.closed = False
    assert not rig.held()


def test_each_call_gets_the_time_that_is_left() -> None:
    """W2: an attempt of a wait may take what is left of it, at least a round trip, at most the operation timeout."""
    rig = Rig(timeout=5)
    rig.store.lose_request("acquire", times=1_000)
    with pytest.raises(StoreUnavailable):
        rig.run(rig.acquire(claim_on(), wait=8))
    calls = [call for call in rig.store.calls if call.operation == "acquire"]
    assert calls[0].timeout == 5
    assert all(call.timeout <= max(8 - call.at, 0.1) + 1e-9 for call in calls)


def test_a_store_that_swallows_everything_cannot_prolong_a_wait() -> None:
    """W2, C063: every request hangs until its time-out: the caller is back within the wait plus a round trip and the
    clean-up."""
    rig = Rig()
    rig.store.hang("acquire")
    rig.store.hang("abandon")
    with pytest.raises(StoreUnavailable):
        rig.run(rig.acquire(claim_on(), wait=3))
    assert rig.asked("abandon")[0] <= 3.1
    assert rig.timeline.now <= 3.1 + 2.0 + 1e-3


def test_naps_double_with_jitter_up_to_a_second() -> None:
    """W3: between polls 50 ms doubling to a second, jittered by half; `retry_delay` replaces that."""
    rig = Rig()
    rig.store.deaf = True
    rig.occupied(ttl=1_000)
    rig.run(rig.acquire(claim_on(), wait=30))
    times = rig.asked("acquire")
    naps = [later - earlier for earlier, later in pairwise(times[1:])]
    assert 0.025 <= naps[0] <= 0.2
    assert all(0.5 <= nap <= 1.0 + 1e-3 for nap in naps[6:-1])
    rig = Rig()
    rig.store.deaf = True
    rig.occupied(ttl=1_000)
    rig.run(rig.acquire(claim_on(), wait=10, retry_delay=0.5))
    times = rig.asked("acquire")
    assert all(0.25 <= later - earlier <= 0.51 for earlier, later in pairwise(times[1:-1]))


def test_a_grant_that_the_store_took_back_is_no_contention() -> None:
    """S2, O6: a store that hands a grant back and says so has ended its token: the repeated try learns nothing new, and
    the failure stays the last word, instead of a key that nobody holds being told as busy."""
    rig = Rig()

    async def take_back(call: Call) -> None:
        await rig.memory.abandon(call.key, call.token, timeout=1)
        raise StoreUnavailable("0 of 1 replicas confirmed it", applied=False)

    rig.store.after("acquire", take_back, times=1)
    with pytest.raises(StoreUnavailable, match="0 of 1 replicas") as caught:
        rig.run(rig.acquire(claim_on()))
    assert caught.value.applied is False
    assert len(rig.asked("acquire")) == 2
    assert not rig.run(rig.memory.status("k", timeout=1)).held


def test_a_waiter_goes_on_with_a_new_token_after_a_grant_was_taken_back() -> None:
    """O5, O6: while there is time, a waiter whose token was ended by its own store asks again with another."""
    rig = Rig()

    async def take_back(call: Call) -> None:
        await rig.memory.abandon(call.key, call.token, timeout=1)
        raise StoreUnavailable("0 of 1 replicas confirmed it", applied=False)

    rig.store.after("acquire", take_back, times=2)
    hold = rig.run(rig.acquire(claim_on(), wait=10), until=20)
    assert isinstance(hold, Hold)
    assert len({call.token for call in rig.store.calls if call.operation == "acquire"}) >= 2


def test_a_store_with_a_line_of_its_own_is_told_how_long_to_keep_the_claim() -> None:
    """W1: every attempt of a waiter says how much of its wait is left, a single try nothing; and after an answer that
    took the store as long as a nap there is none."""
    rig = Rig()
    rig.occupied(ttl=1_000)
    seen: list[tuple[float, float]] = []

    class Keeping(MemoryStore):
        async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
            seen.append((rig.clock.now(), claim.wait))
            await rig.clock.sleep(min(claim.wait, 4.0))
            outcome = await rig.memory.acquire(claim, timeout=timeout)
            assert isinstance(outcome, Contended)
            return Contended(outcome.status, waited=min(claim.wait, 4.0))

    rig.store.within = Keeping(rig.clock)
    outcome = rig.run(rig.acquire(claim_on(), wait=10))
    assert isinstance(outcome, Contended)
    assert [round(at, 6) for at, _ in seen] == [0, 4, 8]
    assert [round(wait, 6) for _, wait in seen] == [10, 6, 2]
    assert rig.store.watches == 0
    seen.clear()
    rig.run(rig.acquire(claim_on(), wait=0))
    assert [wait for _, wait in seen] == [0.0]


def test_a_request_id_is_named_by_one_attempt_of_a_fixed_lease() -> None:
    """O6, H5: every attempt of a fixed lease asks for another ttl, and a request id is bound to one; other leases are
    asked for in the same words each time."""
    rig = Rig()
    rig.occupied(ttl=1_000)
    named: list[str | None] = []

    class Hearing(MemoryStore):
        async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
            named.append(claim.request_id)
            return await rig.memory.acquire(claim, timeout=timeout)

    rig.store.within = Hearing(rig.clock)
    for fixed in (True, False):
        claim = replace(claim_on(ttl=10), request_id="r-1")
        assert isinstance(rig.run(rig.acquire(claim, wait=0.2, fixed=fixed)), Contended)
        assert len(named) > 2
        assert set(named[1:]) == ({None} if fixed else {"r-1"})
        assert named[0] == "r-1"
        named.clear()
