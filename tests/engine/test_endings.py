"""Renewing, releasing and restoring a hold, and what a block says at its end: one test for each row of the tables."""

import pytest

from leased.engine import lose, release, renew, restore
from leased.errors import AccessDenied, LeaseDeadlineExceeded, LockLost, LockNotHeld, StoreNotUsable, StoreUnavailable
from leased.hold import Hold
from leased.model import Claim, Lease, Lost, LostReason, Released, Renewed
from leased.policy import CLEANUP_BUDGET
from leased.recipe import Recipe, make_recipe
from leased.scope import ending_error
from leased.timeline import Cancelled
from tests.engine.rig import Rig, claim_on


def freed(rig: Rig, hold: Hold) -> Released:
    """What a release of this hold answers."""
    outcome: Released = rig.run(release(rig.store, rig.env, hold), until=rig.timeline.now + 2)
    return outcome


def test_release_of_a_held_lease() -> None:
    """Row "held": the store frees it; belief ended before the first byte left; told as `released`."""
    rig = Rig()
    hold = rig.granted()
    seen: list[object] = []

    async def look(call: object) -> None:
        seen.append((hold.ended, hold.remaining(rig.clock.now())))

    rig.store.before("release", look)
    assert freed(rig, hold) == Released()
    assert seen == [("released", 0.0)]
    assert hold.lost_reason(rig.clock.now()) is None
    assert [event.name for event in rig.events][-1] == "released"


def test_release_of_a_released_lease() -> None:
    """Row "released before": `already_released`, without asking."""
    rig = Rig()
    hold = rig.granted()
    freed(rig, hold)
    assert freed(rig, hold) == Released("already_released")
    assert len(rig.asked("release")) == 1


def test_release_of_a_handed_over_lease() -> None:
    """Row "forked or handed over": `not_holder`, without asking: it is another process's now."""
    rig = Rig()
    hold = rig.granted()
    hold.end("handed_over")
    assert freed(rig, hold) == Released("not_holder")
    forked = rig.granted("k2")
    forked.generation -= 1
    assert freed(rig, forked) == Released("not_holder")
    assert rig.asked("release") == []


def test_release_of_a_lapsed_lease() -> None:
    """Row "lost in another way": what the store says; the loss was told once, and stays what it was."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.pass_time(10)
    assert freed(rig, hold) == Released("expired")
    assert hold.lost_reason(rig.clock.now()) == "expired"
    assert [event.data["reason"] for event in rig.told("lost")] == ["expired"]


def test_release_in_the_margin_frees_what_is_not_believed_any_more() -> None:
    """The local deadline has passed and the store's has not: the key is freed, and the loss stays a loss."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.pass_time(9.9)
    assert freed(rig, hold) == Released()
    assert hold.lost_reason(rig.clock.now()) == "expired"
    assert not rig.held()


def test_release_of_a_forced_lease() -> None:
    """Row "lost in another way": a loss that only the store knew of is told with the best knowledge of why."""
    rig = Rig()
    hold = rig.granted()
    hold.lost_hooks.append(lambda: "hook")
    rig.run(rig.memory.force_release("k", timeout=1), until=rig.timeline.now)
    assert freed(rig, hold) == Released("not_holder")
    assert hold.lost_reason(rig.clock.now()) == "force_released"
    assert rig.hooks == ["hook"]


def test_release_without_an_answer_is_tried_again_within_the_budget() -> None:
    """Lost requests are repeated, jittered, within the clean-up budget; then it raises, and can be called again."""
    rig = Rig()
    hold = rig.granted()
    rig.store.lose_request("release", times=1_000)
    started = rig.clock.now()
    with pytest.raises(StoreUnavailable):
        freed(rig, hold)
    tries = rig.asked("release")
    assert len(tries) >= 3
    assert tries[-1] - started <= CLEANUP_BUDGET
    assert hold.outcome is None
    rig.store.let_go()
    assert freed(rig, hold) == Released()


def test_release_whose_answer_was_lost_counts_as_freed() -> None:
    """`not_holder` after an unanswered try counts as freed: it cannot be told from our own release."""
    rig = Rig()
    hold = rig.granted()
    rig.store.lose_answer("release")
    assert freed(rig, hold) == Released()
    assert rig.told("lost") == []


def test_release_that_is_refused_is_raised_at_once() -> None:
    """What trying again would not help is raised at once, and told."""
    rig = Rig()
    hold = rig.granted()
    rig.store.fail("release", StoreNotUsable("gone"))
    with pytest.raises(StoreNotUsable):
        freed(rig, hold)
    assert [event.data["error"] for event in rig.told("release_failed")] == ["StoreNotUsable"]
    assert freed(rig, hold) == Released()


def test_release_that_is_cancelled_is_still_made() -> None:
    """C002, L12: the caller goes, the release is made; afterwards the handle knows it."""
    rig = Rig()
    hold = rig.granted()
    rig.store.delay("release", 0.3)
    task = rig.start(release(rig.store, rig.env, hold))
    rig.pass_time(0.1)
    task.cancel()
    rig.pass_time(1)
    assert isinstance(task.error, Cancelled)
    assert not rig.held()
    assert freed(rig, hold) == Released("already_released")
    assert [event.data for event in rig.told("released")] == [{"fencing_token": hold.fencing_token}]


@pytest.mark.parametrize(("fault", "told"), [("fails", "release_failed"), ("late", "lost")])
def test_a_cancelled_release_that_frees_nothing_is_told_too(fault: str, told: str) -> None:
    """P3: whoever counts holds learns of the end of this one, though its caller has gone."""
    rig = Rig()
    hold = rig.granted(ttl=0.4)
    rig.store.delay("release", 0.3)
    task = rig.start(release(rig.store, rig.env, hold))
    rig.pass_time(0.1)
    task.cancel()
    if fault == "fails":
        rig.store.fail("release", StoreNotUsable("gone"), times=9)
    else:
        rig.store.delay("release", 0.5)
    rig.pass_time(2)
    assert [event.data["fencing_token"] for event in rig.told(told)] == [hold.fencing_token]
    assert not rig.told("released")


def renewed(rig: Rig, hold: Hold, ttl: float | None = None) -> Renewed:
    """What a renewal of this hold answers."""
    outcome: Renewed = rig.run(renew(rig.store, rig.env, hold, ttl=ttl), until=rig.timeline.now + 10)
    return outcome


def test_renewal_of_a_held_lease() -> None:
    """The expiry is set to now + ttl, and belief with it, counted from before the request."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.pass_time(5)
    rig.store.delay("renew", 1.0)
    assert renewed(rig, hold, 30) == Renewed()
    assert hold.valid_until == pytest.approx(5 + 30 * 0.98 - 0.05)
    assert hold.ttl == 30


def test_renewal_leaves_time_for_another_try() -> None:
    """H1: a call made for a lease may take a third of its ttl, or the operation timeout if that is less."""
    for ttl, timeout in ((6.0, 2.0), (60.0, 5.0)):
        rig = Rig(timeout=5.0)
        hold = rig.granted(ttl=ttl)
        assert rig.run(renew(rig.store, rig.env, hold), until=rig.timeline.now)
        rig.keep(hold)
        rig.pass_time(ttl / 2)
        assert [call.timeout for call in rig.store.calls if call.operation == "renew"] == pytest.approx([timeout] * 2)


def test_renewal_of_a_lost_lease_asks_nobody() -> None:
    """A hold that is over is not renewed: false with the reason."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.pass_time(10)
    assert renewed(rig, hold) == Renewed("lease_lost", "expired")
    other = rig.granted("k2")
    freed(rig, other)
    assert renewed(rig, other) == Renewed("released")
    assert rig.asked("renew") == []


def test_renewal_that_the_store_refuses_is_a_loss() -> None:
    """The first definite loss ends the hold, with the store's reason."""
    rig = Rig()
    hold = rig.granted()
    rig.run(rig.memory.force_release("k", timeout=1), until=rig.timeline.now)
    assert renewed(rig, hold) == Renewed("lease_lost", "force_released")
    assert [event.data["reason"] for event in rig.told("lost")] == ["force_released"]


def test_renewal_without_an_answer_leaves_the_earlier_deadline() -> None:
    """No answer: it raises; belief is neither longer nor shorter, unless less was asked for (rule 5)."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    before = hold.valid_until
    rig.store.lose_answer("renew")
    with pytest.raises(StoreUnavailable):
        renewed(rig, hold, 60)
    assert hold.valid_until == before
    rig.store.lose_request("renew")
    with pytest.raises(StoreUnavailable):
        renewed(rig, hold, 5)
    assert hold.valid_until <= rig.clock.now() + 5


def test_renewal_that_is_denied_raises_and_the_lease_goes_on() -> None:
    """A denial is not a loss."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    rig.store.fail("renew", AccessDenied("no"))
    with pytest.raises(AccessDenied):
        renewed(rig, hold)
    assert hold.lost_reason(rig.clock.now()) is None


def test_renewal_whose_answer_comes_after_the_end_revives_nothing() -> None:
    """M7: an answer that comes after belief ended is too late, though the store said yes."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.pass_time(9)
    rig.store.delay_answer("renew", 2.0)
    assert renewed(rig, hold, 60) == Renewed("lease_lost", "expired")


def test_a_restored_hold_has_what_is_really_left() -> None:
    """L6: the store is asked once; belief counts from before that question."""
    rig = Rig()
    hold = rig.granted(ttl=30)
    rig.pass_time(10)
    rig.store.delay_answer("look", 1.0)
    again = rig.run(restore(rig.store, rig.env, Claim("k", hold.token, 30.0)), until=rig.timeline.now + 2)
    assert isinstance(again, Hold)
    assert again.valid_until == pytest.approx(10 + 20 * 0.98 - 0.05)
    assert (again.fencing_token, again.ttl) == (hold.fencing_token, 30.0)


def test_what_cannot_be_restored_says_why() -> None:
    """L6: a lease that is over, or over before the answer came, is `Lost`."""
    rig = Rig()
    hold = rig.granted(ttl=10)
    rig.store.delay_answer("look", 11)
    late = rig.run(restore(rig.store, rig.env, Claim("k", hold.token, 30.0)), until=rig.timeline.now + 12)
    assert late == Lost("expired")
    assert rig.run(restore(rig.store, rig.env, Claim("k", hold.token, 30.0))) == Lost("expired")


def recipe(**terms: object) -> Recipe:
    """A recipe."""
    return make_recipe(margin=0.02, **terms)  # type: ignore[arg-type]  # named terms


def plain_hold() -> Hold:
    """A hold of this key."""
    claim = claim_on(ttl=30)
    return Hold(Lease("k", claim.token, 1, 30.0, None, 30.0), 0.0, claim=claim, margin=0.02)


FAILED = ValueError("mine")
ROWS: list[tuple[Exception | None, LostReason | None, bool, bool, type[Exception] | None]] = [
    # body, lease, enforce, returns -> what the block raises
    (None, None, False, False, None),
    (FAILED, None, False, False, None),
    (None, None, True, False, None),
    (None, "handed_over", False, False, None),
    (FAILED, "handed_over", False, True, None),
    (None, "expired", False, False, LockLost),
    (None, "expired", False, True, None),
    (FAILED, "expired", False, False, LockLost),
    (FAILED, "expired", False, True, LockLost),
    (None, "taken", False, False, LockLost),
    (None, "force_released", False, True, None),
    (None, "expired", True, False, LeaseDeadlineExceeded),
    (None, "expired", True, True, LeaseDeadlineExceeded),
    (FAILED, "max_hold", True, True, LeaseDeadlineExceeded),
    (None, "force_released", True, False, LockLost),
    (None, "closed", False, False, LockLost),
]


@pytest.mark.parametrize(("error", "lost", "enforce", "returns", "raises"), ROWS, ids=str)
def test_what_a_block_raises_at_its_end(
    error: Exception | None,
    lost: LostReason | None,
    enforce: bool,
    returns: bool,
    raises: type[Exception] | None,
) -> None:
    """H4, H5: each row of the table of endings."""
    ending = ending_error(recipe(enforce=enforce), plain_hold(), error=error, lost=lost, returns=returns)
    assert (None if ending is None else type(ending)) is raises
    if isinstance(ending, LockLost):
        assert (ending.key, ending.reason) == ("k", lost)


def test_a_loss_is_told_once() -> None:
    """H3: the first reason stands; event and hooks come once, whoever notices again."""
    rig = Rig()
    hold = rig.granted()
    hold.lost_hooks.append(lambda: "hook")
    lose(rig.env, hold, "taken")
    lose(rig.env, hold, "expired")
    assert hold.lost_reason(0.0) == "taken"
    assert rig.hooks == ["hook"]
    assert len(rig.told("lost")) == 1


@pytest.mark.parametrize(
    "reason",
    [
        "taken",
        "retaken",
        "expired",
        "force_released",
        "max_hold",
        "denied",
        "store_lost",
        "forked",
        "closed",
        "handed_over",
    ],
)
def test_every_reason_of_a_loss_has_its_words(reason: LostReason) -> None:
    """H2: each reason is told in words of its own, with the key and what to do."""
    hold = plain_hold()
    hold.end(reason)
    with pytest.raises(LockLost) as raised:
        hold.check(0.0)
    assert raised.value.reason == reason
    assert "'k'" in raised.value.message
    assert raised.value.hint


def test_a_released_hold_is_not_lost() -> None:
    """L5: after a release `check` says not held, `lost_reason` says nothing, whatever the time."""
    hold = plain_hold()
    hold.end("released")
    assert hold.lost_reason(1e9) is None
    assert hold.remaining(0.0) == 0.0
    with pytest.raises(LockNotHeld):
        hold.check(0.0)


def test_the_reason_for_not_renewing_becomes_the_reason_of_the_loss() -> None:
    """H1, L11: what stopped renewals is what the handle says at its deadline."""
    hold = plain_hold()
    hold.last_reason = "denied"
    assert hold.lost_reason(10.0) is None
    assert hold.lost_reason(30.0) == "denied"
