"""Rows of the engine that no other test has: last words, dead grants that stand in the way, releases tried again."""

from itertools import pairwise

import pytest

from leased.engine import apply_renewal, drop, lose, release, renew
from leased.errors import RateLimited, StoreUnavailable
from leased.hold import Hold
from leased.model import Claim, Contended, Held, Lost, Released
from leased.stores.memory import MemoryStore
from leased.timeline import Cancelled
from tests.engine.rig import Rig, claim_on
from tests.faces.faults import Call


def heard_by(rig: Rig) -> list[Claim]:
    """The claims as the store gets them, from now on."""
    heard: list[Claim] = []

    class Hearing(MemoryStore):
        async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
            heard.append(claim)
            return await rig.memory.acquire(claim, timeout=timeout)

        async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
            await rig.memory.abandon(key, token, heard=heard, timeout=timeout)

    rig.store.within = Hearing(rig.clock)
    return heard


def freed(rig: Rig, hold: Hold) -> Released:
    """What a release of this hold answers."""
    outcome: Released = rig.run(release(rig.store, rig.env, hold), until=rig.timeline.now + 2)
    return outcome


def test_a_dead_grant_is_handed_back_at_once_and_not_waited_out() -> None:
    """C066, L12: an answer that comes when the lease is used up, on a key with `hold_at_least`: the dead grant would
    keep the key closed for its own waiter; it is abandoned, and the new token is granted in the same instant."""
    rig = Rig()
    rig.store.delay_answer("acquire", 9.9)
    task = rig.start(rig.acquire(claim_on(ttl=10, hold_at_least=100.0), wait=60))
    rig.pass_time(9.95)
    assert isinstance(task.result(), Hold)
    rig = Rig()
    held = rig.occupied(ttl=1_000)
    task = rig.start(rig.acquire(claim_on(ttl=10, hold_at_least=100.0), wait=60))
    rig.pass_time(5)
    rig.store.delay_answer("acquire", 9.9)
    rig.run(rig.memory.release("k", held.token, timeout=1), until=rig.timeline.now)
    rig.pass_time(9.901)
    assert isinstance(task.result(), Hold)


def test_only_a_claim_that_may_come_again_is_late() -> None:
    """O6: a claim with the caller's own token says so from its first attempt, one with the engine's own from the first
    that went unanswered; a new token begins anew."""
    rig = Rig()
    heard = heard_by(rig)
    rig.run(rig.acquire(claim_on("a"), wait=0), until=rig.timeline.now)
    rig.run(rig.acquire(claim_on("b"), wait=0, brought=True), until=rig.timeline.now)
    assert [claim.late for claim in heard] == [False, True]
    heard.clear()
    rig.store.lose_answer("acquire")
    spent = claim_on("c", ttl=0.5)
    rig.store.delay_answer("acquire", 0.6)
    task = rig.start(rig.acquire(spent, wait=30))
    rig.pass_time(10)
    assert isinstance(task.result(), Hold)
    assert [claim.late for claim in heard if claim.token == spent.token] == [False, True]
    assert [claim.late for claim in heard if claim.token != spent.token] == [False]


def test_a_limit_without_a_time_is_tried_again_after_a_nap_and_owes_nothing() -> None:
    """R2: `RateLimited` that names no time costs an ordinary nap; it was an answer, so nothing is abandoned."""
    rig = Rig()
    rig.store.fail("acquire", RateLimited("slow down"))
    rig.run(rig.acquire(claim_on(), wait=60), until=5)
    first, second = rig.asked("acquire")
    assert second - first <= 0.06
    rig.store.fail("acquire", RateLimited("slow down", retry_after=2.0))
    with pytest.raises(RateLimited):
        rig.run(rig.acquire(claim_on("k2"), wait=0))
    assert rig.asked("abandon") == []


def test_a_short_wait_is_a_wait() -> None:
    """W1, W2: half a second of waiting: what is left of it is told to the store's line, limits only run it out, no
    attempt begins after its end, and it is told as `rejected`."""
    rig = Rig()
    heard = heard_by(rig)
    rig.occupied(ttl=1_000)
    rig.store.fail("acquire", RateLimited("slow down", retry_after=2.0), key="limited", times=9)
    assert isinstance(rig.run(rig.acquire(claim_on(), wait=0.5)), Contended)
    assert heard[0].wait == 0.5
    assert isinstance(rig.run(rig.acquire(claim_on("limited"), wait=0.5)), Contended)
    assert [event.name for event in rig.events] == ["rejected", "rejected"]
    rig.store.hang("acquire", key="silent")
    with pytest.raises(StoreUnavailable):
        rig.run(rig.acquire(claim_on("silent"), wait=0.5))
    assert rig.store.asked("acquire", key="silent") == 1


def test_a_fixed_lease_is_never_kept_in_the_stores_line() -> None:
    """H5: such a line would begin the lease when its turn comes."""
    rig = Rig()
    heard = heard_by(rig)
    rig.run(rig.acquire(claim_on(ttl=9), wait=5, fixed=True), until=1)
    assert [claim.wait for claim in heard] == [0.0]


def test_a_fixed_lease_is_asked_for_while_any_of_it_is_usable() -> None:
    """H5, M5: with 0.8 s left of it a fixed lease is still granted; with nothing usable left the store is not asked."""
    rig = Rig()
    rig.occupied(ttl=1.2)
    hold = rig.run(rig.acquire(claim_on(ttl=2), wait=1.9, fixed=True), until=5)
    assert isinstance(hold, Hold)
    rig = Rig()
    heard = heard_by(rig)
    held = rig.occupied(ttl=1_000)
    task = rig.start(rig.acquire(claim_on(ttl=3), wait=2.99, fixed=True))
    rig.pass_time(2.97)
    rig.run(rig.memory.release("k", held.token, timeout=1), until=rig.timeline.now)
    rig.pass_time(1)
    assert isinstance(task.result(), Contended)
    assert min(claim.ttl for claim in heard) > 0.05


def test_the_first_naps_are_short() -> None:
    """W3: a key that is free again after half a second without a bell is noticed after few and short naps."""
    rig = Rig()
    rig.store.deaf = True
    rig.occupied(ttl=1_000)
    rig.start(rig.acquire(claim_on(), wait=60))
    rig.pass_time(0.72)
    assert len(rig.asked("acquire")) >= 5


def test_an_acquire_tells_how_long_it_took_and_whose_it_was() -> None:
    """L12: the event has the seconds since asking; the hold bears the name of its lock."""
    rig = Rig()
    rig.pass_time(100)
    rig.occupied(ttl=3)
    hold = rig.run(rig.acquire(claim_on(), wait=60, name="nightly"), until=rig.timeline.now + 10)
    assert isinstance(hold, Hold)
    assert hold.name == "nightly"
    assert [event.data["waited"] for event in rig.told("acquired")] == [pytest.approx(3, abs=0.01)]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_release_lets_the_next_one_here_ask_at_once(cancelled: bool) -> None:
    """W5: where the store has no bell a waiter of this process still gets the key in the instant of the release, also
    when whoever releases is cancelled meanwhile."""
    rig = Rig()
    rig.store.deaf = True
    hold = rig.granted(ttl=1_000)
    waiting = rig.start(rig.acquire(claim_on(ttl=60), wait=600))
    rig.pass_time(20.3)
    rig.store.delay("release", 0.01)
    task = rig.start(release(rig.store, rig.env, hold))
    rig.pass_time(0.001)
    if cancelled:
        task.cancel()
    rig.pass_time(0.02)
    assert isinstance(waiting.result(), Hold)
    assert isinstance(task.error, Cancelled) is cancelled


def test_a_release_is_tried_again_at_growing_intervals() -> None:
    """L12: 50 ms doubling, jittered, each try with no more time than is left of the budget."""
    rig = Rig()
    hold = rig.granted()
    rig.store.lose_request("release", times=1_000)
    with pytest.raises(StoreUnavailable):
        freed(rig, hold)
    tries = [call for call in rig.store.calls if call.operation == "release"]
    naps = [later.at - earlier.at for earlier, later in pairwise(tries)]
    assert 4 <= len(naps) <= 6
    assert 0.025 <= naps[0] <= 0.051
    assert 0.05 <= naps[1] <= 0.11
    assert [call.timeout + call.at for call in tries] == pytest.approx([1.0] * len(tries))


def test_a_release_that_did_not_arrive_tells_a_loss_from_itself() -> None:
    """`not_holder` counts as freed only after a try that may have been applied, however the later ones went."""
    rig = Rig()
    refused = StoreUnavailable("refused", applied=False)
    lost = rig.granted("lost")
    rig.run(rig.memory.force_release("lost", timeout=1), until=rig.timeline.now)
    rig.store.fail("release", refused, times=2)
    assert freed(rig, lost) == Released("not_holder")
    assert lost.ended == "force_released"
    ours = rig.granted("ours")

    async def break_and_stay_away(call: Call) -> None:
        rig.store.fail("release", refused)
        raise StoreUnavailable("the connection broke")

    rig.store.after("release", break_and_stay_away)
    assert freed(rig, ours) == Released()
    assert rig.store.asked("release", key="ours") == 3


def test_a_lease_that_ran_out_while_its_release_was_tried_is_told_as_expired() -> None:
    """An unanswered try before the expiry and an answer after it: the lease ran out, nothing was freed."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.pass_time(9.7)
    rig.store.down = True
    rig.timeline.at(10.05, lambda: setattr(rig.store, "down", False))
    assert freed(rig, hold) == Released("expired")


def test_a_release_that_was_made_while_its_caller_went_is_known_to_the_handle() -> None:
    """L12: the store freed the key and the caller was cancelled before the answer came: the second request finds
    nothing, which counts as freed."""
    rig = Rig()
    hold = rig.granted()
    rig.store.delay_answer("release", 0.3)
    task = rig.start(release(rig.store, rig.env, hold))
    rig.pass_time(0.1)
    task.cancel()
    rig.pass_time(1)
    assert isinstance(task.error, Cancelled)
    assert hold.outcome == Released()
    assert freed(rig, hold) == Released("already_released")


def test_the_end_of_time_ends_a_release() -> None:
    """L14: a release that is closed while it waits, as at the end of a process, does no more work."""
    rig = Rig()
    hold = rig.granted()
    rig.store.hang("release")
    rig.start(release(rig.store, rig.env, hold))
    rig.pass_time(0.1)
    rig.timeline.close()
    assert len(rig.asked("release")) == 1


def test_a_loss_that_nobody_can_explain_is_taken() -> None:
    """H2: the release finds another holder, and the question why gets no answer."""
    rig = Rig()
    hold = rig.granted()
    rig.run(rig.memory.force_release("k", timeout=1), until=rig.timeline.now)
    rig.store.lose_request("look")
    assert freed(rig, hold) == Released("not_holder")
    assert hold.ended == "taken"


def test_a_loss_without_anybody_to_run_hooks_is_still_told() -> None:
    """H3: where no hooks can be run the loss is marked and told all the same."""
    rig = Rig()
    hold = rig.granted()
    hold.lost_hooks.append(lambda: "hook")
    rig.env.run_hook = None
    lose(rig.env, hold, "taken")
    assert (hold.ended, len(rig.told("lost")), rig.hooks) == ("taken", 1, [])


def test_a_renewal_is_told_once_it_counts() -> None:
    """H1: the event comes when the answer moved the deadline, not when it came too late."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    hold.name = "nightly"
    assert rig.run(renew(rig.store, rig.env, hold), until=rig.timeline.now)
    assert [(event.key, event.lock) for event in rig.told("renewed")] == [("k", "nightly")]
    rig.pass_time(9)
    rig.store.delay_answer("renew", 2.0)
    assert not rig.run(renew(rig.store, rig.env, hold), until=rig.timeline.now + 3)
    assert len(rig.told("renewed")) == 1


def test_a_lease_that_was_over_when_the_store_said_so_ran_out() -> None:
    """H2: "expired" from the store is a loss of the store only while the lease should have gone on."""
    for passed, reason in ((5.0, "store_lost"), (9.8, "expired")):
        rig = Rig()
        hold = rig.granted(ttl=10)
        rig.pass_time(passed)
        apply_renewal(rig.env, hold, Lost("expired"), asked_at=rig.clock.now())
        assert hold.ended == reason


def test_a_grant_whose_caller_has_gone_is_dropped_whole() -> None:
    """L12, O1: it is handed back to the store, its owner is free again, and the handle is released."""
    rig = Rig()
    claim = claim_on(owner="run-7")
    hold = rig.run(rig.acquire(claim, scoped=True), until=rig.timeline.now)
    assert isinstance(hold, Hold)
    rig.run(drop(rig.store, rig.env, hold, claim), until=rig.timeline.now)
    assert hold.ended == "released"
    assert not rig.held()
    assert isinstance(rig.run(rig.acquire(claim_on(owner="run-7")), until=rig.timeline.now), Hold)


def test_how_long_a_refusal_took_is_told() -> None:
    """P3: `contended` and `rejected` say how long they waited, as `acquired` does."""
    rig = Rig()
    rig.occupied(ttl=1_000)
    rig.run(rig.acquire(claim_on()))
    rig.run(rig.acquire(claim_on(), wait=7.3))
    assert [event.name for event in rig.events] == ["contended", "rejected"]
    assert [event.data for event in rig.events] == [{"waited": 0.0}, {"waited": pytest.approx(7.3, abs=1e-3)}]


def test_an_acquire_that_ends_in_an_error_is_told() -> None:
    """P3: once, with the error's class and how long it took; one that was cancelled has not failed."""
    rig = Rig()
    rig.store.hang("acquire")
    with pytest.raises(StoreUnavailable):
        rig.run(rig.acquire(claim_on(), wait=3, name="nightly"))
    (event,) = rig.events
    assert (event.name, event.key, event.lock) == ("acquire_failed", "k", "nightly")
    assert event.data["error"] == "StoreUnavailable"
    assert event.data["waited"] >= 3
    rig.events.clear()
    task = rig.start(rig.acquire(claim_on(), wait=60))
    rig.pass_time(1)
    task.cancel()
    rig.pass_time(60)
    assert task.done
    assert rig.events == []
