"""What excuses a broken promise, and the bounds of each excuse: one step beyond them the judge convicts."""

from typing import Any

import pytest

from tests.nemesis.histories import BELIEF, TTL, Story

LOSES = "until-failover"


def overlap(*, fault: tuple[float, float, float] | None, loses: bool = True, exclusive: str = LOSES) -> Story:
    """A is granted at 1.0 and believes to 1.93, B is granted at 1.6."""
    story = Story()
    story.grant(1.0, 10, exclusive=exclusive)
    story.grant(1.6, 11, who="b", exclusive=exclusive)
    if fault:
        story.fault(*fault, loses=loses)
    return story


def test_what_a_fail_over_lost_is_excused() -> None:
    """C103: two holders for as long as the forgotten one believes, if the store had said so; it is counted."""
    verdict = overlap(fault=(1.2, 1.3, 1.5)).verdict()
    assert verdict.valid
    assert verdict.excused == {"exclusion: fail-over": 1}


@pytest.mark.parametrize("exclusive", ["primary", "replicated", "consensus"])
def test_not_where_the_store_promised_more(exclusive: str) -> None:
    """What `assurance` did not state when the lease was granted is not excused."""
    assert overlap(fault=(1.2, 1.3, 1.5), exclusive=exclusive).broken() == {"exclusion"}


@pytest.mark.parametrize(
    ("what", "fault", "loses"),
    [
        ("nothing was broken", None, False),
        ("nothing that loses was broken", (1.2, 1.3, 1.5), False),
        ("it came after both were granted", (1.7, 1.8, 1.9), True),
        ("the old data was gone before the grant", (0.2, 0.5, 0.9), True),
    ],
)
def test_only_by_a_fault_that_can_be_the_cause(what: str, fault: Any, loses: bool) -> None:
    """A fail-over excuses only grants from before the old data was gone, against grants from after it began."""
    assert overlap(fault=fault, loses=loses).broken() == {"exclusion"}, what


def test_only_for_one_ttl() -> None:
    """A forgotten holder who believes for longer than a ttl after the old data was gone is convicted."""
    for renewed_at, valid in ((1.25, True), (1.9, False)):
        story = Story()
        hold = story.grant(1.0, 10, exclusive=LOSES)
        story.fault(1.2, 1.3, 1.5, loses=True)
        story.renew(renewed_at, hold)
        story.sight(1.95, hold, until=renewed_at + BELIEF)
        story.grant(1.95, 11, who="b", exclusive=LOSES)
        assert ("exclusion" not in story.broken()) is valid, renewed_at


def test_a_forgotten_holder_is_told_at_its_next_renewal() -> None:
    """C103: a renewal that the new primary grants to the forgotten holder, although B holds the key, is convicted."""
    for lost, valid in (("taken", True), ("", False)):
        story = Story()
        hold = story.grant(1.0, 10, exclusive=LOSES)
        story.fault(1.2, 1.3, 1.5, loses=True)
        story.grant(1.6, 11, who="b", exclusive=LOSES)
        story.renew(1.7, hold, lost=lost)
        assert story.verdict().valid is valid
        assert valid or "staleness" in story.broken()


def test_a_later_grant_that_was_forgotten_gives_way() -> None:
    """Where the fail-over forgot the later grant (and the forced release before it) the earlier holder goes on."""
    story = Story()
    hold = story.grant(1.0, 10, exclusive=LOSES)
    story.force(1.05, aim=10)
    story.grant(1.1, 11, who="b", exclusive=LOSES)
    story.fault(1.2, 1.3, 1.5, loses=True)
    story.renew(1.6, hold)
    story.release(1.7, hold)
    assert story.verdict().valid


def test_two_primaries_may_both_grant() -> None:
    """While the old primary still answers, it may grant what the new one has granted: for one ttl after it is gone."""
    cases: tuple[tuple[list[float], bool], ...] = (([], True), ([2.2], False))
    for renewals, valid in cases:
        story = Story()
        new = story.grant(1.4, 10, exclusive=LOSES)
        story.fault(1.3, 1.75, 2.5, loses=True)
        old = story.grant(1.7, 11, who="b", exclusive=LOSES)
        for at in renewals:
            story.renew(at, new)
            story.renew(at + 0.2, old, who="b")
        assert ("exclusion" not in story.broken()) is valid


def test_an_early_loss_by_fail_over() -> None:
    """What was granted before the old data was gone may be lost early; what was granted or renewed after it may not."""
    for granted_at, renewed_at, valid in ((1.0, None, True), (1.35, None, False), (1.0, 1.55, False)):
        story = Story()
        hold = story.grant(granted_at, 10, exclusive=LOSES)
        story.fault(1.2, 1.3, 1.5, loses=True)
        if renewed_at:
            story.renew(renewed_at, hold)
        story.renew(1.7, hold, lost="expired")
        assert story.broken() == (set() if valid else {"early loss"}), (granted_at, renewed_at)


def test_a_repeated_request_after_a_fail_over() -> None:
    """The new primary may know nothing of a token; one that lost nothing must know it."""
    for loses in (True, False):
        story = Story()
        hold = story.grant(1.0, 10, exclusive=LOSES)
        story.fault(1.2, 1.3, 1.5, loses=loses)
        story.call("acquire", 1.6, hold=hold, given={"ttl": TTL, "wait": 0.0}, fence=11, lost=False, until=2.5)
        assert story.broken() == (set() if loses else {"idempotence"})


@pytest.mark.parametrize(
    ("aim", "at", "outcome", "valid"),
    [
        (10, 1.3, "ok", True),
        (None, 1.3, "ok", True),
        (9, 1.3, "ok", False),
        (10, 0.5, "ok", False),
        (10, 1.3, "unknown", True),
        (10, 1.3, "fail", False),
        (10, 1.65, "ok", False),
    ],
)
def test_a_forced_release_excuses_whom_it_can_have_hit(aim: int | None, at: float, outcome: Any, valid: bool) -> None:
    """SAFE10: only the hold it aims at, only after it was sent, and only if it can have been done."""
    story = overlap(fault=None, exclusive="primary")
    story.force(at, aim=aim, outcome=outcome)
    assert story.broken() == (set() if valid else {"exclusion"})


def test_a_forced_release_excuses_for_one_ttl() -> None:
    """A forced holder believes until its next renewal, which must tell it, or its deadline: no longer than a ttl."""
    story = Story()
    hold = story.grant(1.0, 10)
    story.force(1.05, aim=10)
    story.renew(1.9, hold)
    story.grant(2.0, 11, who="b")
    assert "exclusion" in story.broken()


def test_an_unknown_forced_release_may_come_late() -> None:
    """A stopped server does what it was sent when it goes on; not later than a time-out after that."""
    for healed, valid in ((4.6, True), (1.2, False)):
        story = Story()
        story.force(1.0, outcome="unknown", took=2.0)
        story.fault(0.9, 0.9, healed, loses=False)
        story.grant(4.0, 10)
        story.grant(4.5, 11, who="b")
        assert story.broken() == (set() if valid else {"exclusion"})


def clock_moved(*, step: float = 0.0, rate: float = 1.0, granted: float = 1.6) -> Story:
    """A is granted at 1.0 for a second and believes to 1.93, B is granted meanwhile; the store's clock is moved."""
    story = Story()
    story.grant(1.0, 10)
    story.grant(granted, 11, who="b")
    story.clock(0.9, 3.0, step=step, rate=rate)
    return story


def test_a_clock_that_was_set_ends_leases() -> None:
    """P3: a lease ends by the store's clock; set forward that is early, and it is counted."""
    verdict = clock_moved(step=5.0).verdict()
    assert verdict.valid
    assert verdict.excused == {"exclusion: clock moved": 1}


@pytest.mark.parametrize(("rate", "granted", "valid"), [(1.3, 1.8, True), (1.3, 1.7, False), (1.005, 1.9, False)])
def test_a_clock_that_runs_too_fast_excuses_by_how_much(rate: float, granted: float, valid: bool) -> None:
    """SAFE3: at 1.3 a second is over after 0.77; half a percent is within the margin and excuses nothing."""
    assert clock_moved(rate=rate, granted=granted).verdict().valid is valid


def test_no_clock_excuses_a_fencing_token() -> None:
    """SAFE2: tokens rise whatever becomes of the clock."""
    story = clock_moved(step=-5.0)
    story.grant(4.0, 9, who="c")
    assert "fencing" in story.broken()


def test_lost_as_forgotten_only_where_something_can_have_forgotten() -> None:
    """`store_lost` is said of what a fail-over or a clock ended, and of nothing else."""
    for step, valid in ((5.0, True), (0.0, False)):
        story = Story()
        hold = story.grant(1.0, 10)
        story.sight(1.5, hold, until=None, reason="store_lost")
        story.clock(1.2, 3.0, step=step)
        assert ("reason" not in story.broken()) is valid


def test_a_hold_that_its_holder_abandoned_may_be_called_forgotten() -> None:
    """A renewal that is under way then finds nothing."""
    story = Story()
    hold = story.grant(1.0, 10)
    story.call("abandon", 1.3, hold=hold)
    story.sight(1.5, hold, until=None, reason="store_lost")
    assert "reason" not in story.broken()


def test_a_clock_warning_only_where_a_clock_was_moved() -> None:
    """Half a percent is no step."""
    for rate, valid in ((1.3, True), (1.005, False)):
        story = Story()
        story.clock(1.0, 3.0, rate=rate)
        story.add("told", 2.0, event="clock_warning", step=1.0)
        assert ("clock" not in story.broken()) is valid
