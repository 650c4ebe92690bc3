"""The judge convicts each kind of broken promise, and nothing that is no such thing. Histories are made by hand."""

from pathlib import Path
from typing import Any

import pytest

from nemesis.judge import CHECKS
from tests.nemesis.histories import BELIEF, TTL, Story


def test_a_life_without_fault_is_valid() -> None:
    """Holders one after the other, renewals, a refusal, a release, a lease that ran out: nothing is broken."""
    story = Story()
    first = story.grant(1.0, 10)
    story.refusal(1.1, who="b")
    story.renew(1.3, first)
    story.release(1.6, first)
    second = story.grant(1.7, 11, who="b")
    story.sight(1.7 + BELIEF + 0.1, second, who="b", until=None, reason="expired")
    story.renew(2.8, second, who="b", lost="expired")
    story.release(2.9, second, who="b", reason="expired")
    story.grant(3.0, 12)
    assert story.verdict().valid, story.violations()


def test_two_believers_at_once() -> None:
    """SAFE1, SAFE3: two holders who believe at the same time are convicted."""
    story = Story()
    story.grant(1.0, 10)
    story.grant(1.5, 11, who="b")
    assert "exclusion" in story.broken()


def test_belief_ends_where_it_is_given_up() -> None:
    """A holder that has begun to release, abandon or drop does not believe any more."""
    for call in ("release", "leave", "abandon", "drop"):
        story = Story()
        hold = story.grant(1.0, 10)
        story.call(call, 1.2, hold=hold, took=0.5, freed=True, reason="")
        story.grant(1.3, 11, who="b")
        assert story.verdict().valid, call


def test_belief_ends_with_its_process() -> None:
    """Nobody believes in a killed process; in a stopped one the belief goes on to its deadline."""
    story = Story()
    story.grant(1.0, 10)
    story.add("killed", 1.2)
    story.grant(1.3, 11, who="b")
    assert "exclusion" not in story.broken()
    story = Story()
    story.grant(1.0, 10)
    story.add("stopped", 1.2)
    story.add("continued", 1.9)
    story.grant(1.3, 11, who="b")
    assert "exclusion" in story.broken()


@pytest.mark.parametrize("fence", [10, 9])
def test_a_fencing_token_that_does_not_rise(fence: int) -> None:
    """SAFE2: a later grant with an equal or lower token is convicted, even across a fail-over."""
    story = Story()
    hold = story.grant(1.0, 10, exclusive="until-failover")
    story.release(1.2, hold)
    story.fault(1.3, 1.4, 1.5, loses=True)
    story.grant(1.6, fence, who="b", exclusive="until-failover")
    assert story.broken() == {"fencing"}


def test_grants_whose_order_is_not_known() -> None:
    """A waiter that asked long ago may have been granted before another one that has its answer already."""
    story = Story()
    story.grant(1.0, 10, who="b", wait=2.0, took=0.9)
    hold = story.grant(1.5, 12, who="c", took=0.01)
    assert "fencing" not in story.broken()
    story.grant(1.6, 12, who="d")
    assert "fencing" in story.broken(), hold


def test_a_stale_write_that_was_accepted() -> None:
    """SAFE14: a write below a token that was seen is refused; one that was not, or a wrong refusal, is convicted."""
    for fences, accepted, valid in (
        ((10, 11, 10), False, True),
        ((10, 11, 10), True, False),
        ((10, 11, 11), False, False),
    ):
        story = Story()
        seen = 0
        for serial, fence in enumerate(fences, 1):
            last = serial == len(fences)
            told: dict[str, Any] = {
                "fence": fence,
                "serial": serial,
                "seen": seen,
                "accepted": accepted if last else True,
            }
            story.add("wrote", float(serial), **told)
            seen = max(seen, fence)
        assert story.broken() == (set() if valid else {"guard"})


def test_a_hold_that_ended_too_early() -> None:
    """SAFE6: a renewal or release that is refused, or a loss that is told, before the deadline."""
    story = Story()
    hold = story.grant(1.0, 10)
    story.renew(1.3, hold, lost="expired")
    assert story.broken() == {"early loss"}
    story = Story()
    hold = story.grant(1.0, 10)
    story.release(1.3, hold, reason="not_holder")
    assert story.broken() == {"early loss"}
    story = Story()
    hold = story.grant(1.0, 10, kept=True)
    story.add("told", 1.3, hold=hold, event="lost", reason="taken")
    assert story.broken() == {"early loss"}
    story = Story()
    story.grant(1.0, 10)
    story.call("status", 1.3, who="b", state="free", fence=None)
    assert story.broken() == {"early loss"}


def test_a_reason_that_nobody_caused() -> None:
    """H2: a loss is called forced only where somebody forced."""
    story = Story()
    hold = story.grant(1.0, 10)
    story.renew(1.3, hold, lost="force_released")
    assert "reason" in story.broken()
    story = Story()
    hold = story.grant(1.0, 10)
    story.force(1.1, aim=10)
    story.renew(1.3, hold, lost="force_released")
    assert story.verdict().valid


def test_a_belief_that_lasts_too_long() -> None:
    """M5, SAFE12: belief beyond what the last answer supports."""
    story = Story()
    hold = story.grant(1.0, 10)
    story.sight(1.2, hold, until=1.0 + TTL + 0.1)
    assert "belief" in story.broken()
    story = Story()
    hold = story.grant(1.0, 10)
    story.sight(1.0 + TTL + 0.1, hold, until=1.0 + TTL + 0.1)
    assert "belief" in story.broken()


def test_a_lost_hold_that_comes_back() -> None:
    """SAFE5: believed in again, or renewed, after it was lost or released."""
    story = Story()
    hold = story.grant(1.0, 10)
    story.sight(2.1, hold, until=None, reason="expired")
    story.sight(2.2, hold, until=3.0)
    assert "resurrection" in story.broken()
    story = Story()
    hold = story.grant(1.0, 10)
    story.release(1.2, hold)
    story.renew(1.3, hold)
    assert "resurrection" in story.broken()


def test_a_stale_renewal_that_was_granted() -> None:
    """SAFE4: a renewal by an earlier holder after a later one had the key."""
    story = Story()
    first = story.grant(1.0, 10)
    story.force(1.1, aim=10)
    story.grant(1.2, 11, who="b")
    story.renew(1.4, first)
    assert "staleness" in story.broken()


def test_a_stale_renewal_by_the_library_itself() -> None:
    """SAFE4: of a kept hold only the end of a renewal is told; it was sent within a third of the ttl before."""
    for renewed_at, stale in ((1.4, False), (1.7, True)):
        story = Story()
        first = story.grant(1.0, 10, kept=True)
        story.force(1.1, aim=10)
        story.grant(1.2, 11, who="b")
        story.add("told", renewed_at, hold=first, event="renewed")
        assert ("staleness" in story.broken()) is stale


def test_a_request_that_is_not_the_same_twice() -> None:
    """SAFE7: the same request gets the same grant, and is not refused by its own hold."""
    story = Story()
    hold = story.grant(1.0, 10)
    story.call("acquire", 1.2, hold=hold, given={"ttl": TTL, "wait": 0.0}, fence=11, lost=False, until=2.0)
    assert story.broken() == {"idempotence"}
    story = Story()
    hold = story.grant(1.0, 10)
    story.refusal(1.2, hold=hold)
    assert story.broken() == {"idempotence"}
    story = Story()
    hold = story.grant(1.0, 10)
    story.refusal(1.2, hold=hold, took=0.4)  # of what was left when it was answered, nothing is
    assert story.verdict().valid


def test_a_call_that_takes_too_long() -> None:
    """LIVE4: a call that is not back in its time, whatever is broken; time in which its process stood still is free."""
    story = Story()
    story.fault(1.0, 1.0, 20.0, loses=False)
    story.refusal(1.0, wait=1.0, took=9.0)
    assert story.broken() == {"bounded"}
    story.add("stopped", 2.0)
    story.add("continued", 9.0)
    assert story.verdict().valid


def test_a_call_that_never_ends() -> None:
    """A call without an end is convicted, unless its process was killed."""
    story = Story()
    story.call("renew", 1.0, outcome=None)
    assert story.broken() == {"bounded"}
    story.add("killed", 1.5)
    assert story.verdict().valid


def test_a_call_of_a_process_that_was_stopped_and_killed() -> None:
    """Time in which a process was stopped counts for nothing, and after its death there is no answer."""

    def unbounded(*, stopped: float) -> bool:
        story = Story()
        story.call("status", 10.0, outcome=None)
        story.add("stopped", 11.0)
        story.add("continued", 11.0 + stopped)
        story.add("killed", 16.1)
        story.add("end", 40.0, who="nemesis")
        return "bounded" in story.broken()

    assert not unbounded(stopped=3.0)
    assert unbounded(stopped=0.1)


def test_a_loss_that_is_not_told() -> None:
    """SAFE12, H2: who keeps a hold is told of its end."""
    story = Story()
    hold = story.grant(1.0, 10, kept=True)
    assert story.broken() == {"told"}
    story.add("told", 2.5, hold=hold, event="lost", reason="expired")
    assert story.verdict().valid


def test_a_hold_that_was_over_when_it_was_had() -> None:
    """A process that was stopped between the grant and its answer never believed, and is told of the loss."""
    story = Story()
    hold = story.grant(1.0, 10, kept=True, took=3.0, lost=True)
    story.add("stopped", 1.1)
    story.add("continued", 3.9)
    story.release(2.7, story.grant(2.5, 11, who="b"), who="b")
    assert story.broken() == {"told"}
    story.add("told", 4.1, hold=hold, event="lost", reason="expired")
    assert story.verdict().valid


def test_a_released_key_that_nobody_gets() -> None:
    """LIVE2: a waiter that is there gets a released key soon, if nothing is broken."""

    def waits(*, fault: bool, taken: bool) -> set[str]:
        story = Story()
        hold = story.grant(10.0, 10)
        story.refusal(10.1, who="b", wait=8.0, took=8.0)
        story.release(10.5, hold)
        if taken:
            story.release(11.1, story.grant(11.0, 11, who="c"), who="c")
            story.grant(11.2, 12, who="c")
        if fault:
            story.fault(11.0, 11.0, 12.0, loses=False)
        return story.broken() - {"wedged"}

    assert waits(fault=False, taken=False) == {"hand-off"}
    assert waits(fault=True, taken=False) == set()
    assert waits(fault=False, taken=True) == set()


def test_a_dead_holder_that_blocks_for_ever() -> None:
    """LIVE1: a key is refused although every lease that can have been granted is over."""
    story = Story()
    story.grant(1.0, 10)
    story.add("killed", 1.2)
    story.refusal(1.5, who="b")
    story.refusal(20.0, who="b")
    assert story.broken() == {"wedged"}


def test_an_error_that_is_not_documented() -> None:
    """P2: only documented classes; `StoreNotUsable` is for what will not pass."""
    for error, broken in (("StoreUnavailable", set()), ("StoreNotUsable", {"errors"}), ("KeyError", {"errors"})):
        story = Story()
        story.fault(0.9, 0.9, 1.1, loses=False)
        story.call("status", 1.0, outcome="fail", error=error, message="")
        assert story.broken() == broken


def test_a_store_that_is_not_found() -> None:
    """S4: no error where nothing hurts: neither after a fault, nor by what happens every day."""

    def fails(*, began: float = 50.0, hurts: bool = True, stopped: bool = False, took: float = 0.01) -> bool:
        story = Story()
        story.fault(began, began, began + 1.0, loses=False, hurts=hurts)
        story.call("renew", 10.0, outcome="fail", took=took, error="StoreUnavailable", message="")
        if stopped:
            story.add("stopped", 9.5)
            story.add("continued", 9.9)
        return story.broken() == {"available"}

    assert fails()
    assert fails(took=1.5)
    assert not fails(took=0.5)
    assert not fails(stopped=True)
    assert not fails(began=8.5)
    assert fails(began=8.5, hurts=False)
    assert fails(began=7.5)


def test_what_a_stopped_process_has_locked() -> None:
    """S8: whoever is stopped in the middle of a write keeps the others out of a file, or a row, and of nothing else."""

    def fails(*, store: str = "sqlite", took: float = 1.0, stopped: bool = True, message: str = "") -> bool:
        story = Story()
        story.add("store", 0.5, who="nemesis", kind=store)
        if stopped:
            story.add("stopped", 9.5, who="b")
            story.add("continued", 10.5, who="b")
        story.call("status", 10.0, outcome="fail", took=took, error="StoreUnavailable", message=message)
        return story.broken() == {"available"}

    for store in ("sqlite", "mysql"):
        assert not fails(store=store)
        assert fails(store=store, took=0.01)
        assert fails(store=store, stopped=False)
    for store in ("redis", "http", "etcd", "postgresql"):
        assert fails(store=store)
    assert not fails(store="mysql", took=0.01, message="it stayed busy with others")
    assert fails(store="sqlite", took=0.01, message="it stayed busy with others")


def test_a_clock_that_is_called_stepped() -> None:
    """A false alarm is convicted: no scenario steps a clock."""
    story = Story()
    story.add("told", 1.0, event="clock_warning", step=1.0)
    assert story.broken() == {"clock"}


def test_every_check_is_tested_here() -> None:
    """Each name that a violation can bear is convicted in some test above."""
    text = Path(__file__).read_text()
    assert not [name for name in CHECKS if f'"{name}"' not in text]


def test_a_stopped_waiter_that_was_refused_hides_no_blocked_key() -> None:
    """LIVE1: what it may have got while it was stopped it has handed back a second later."""
    story = Story()
    story.grant(1.0, 10)
    story.add("killed", 1.2)
    story.refusal(5.0, who="b", wait=6.0, took=6.0)
    story.add("stopped", 7.0, who="b")
    story.add("continued", 10.0, who="b")
    story.refusal(14.0, who="c")
    assert story.broken() == {"wedged"}
