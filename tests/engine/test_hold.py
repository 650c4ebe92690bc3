"""What a hold believes: numbered renewals and their late answers, its last instant, and its end."""

import pytest

from leased import hold as hold_module
from leased.engine import renew
from leased.errors import LockLost
from leased.hold import Hold
from leased.model import Claim, Lease, Terms
from leased.policy import usable
from tests.engine.rig import Rig


def new_hold(*, ttl: float = 30.0, max_hold: float = 1e6) -> Hold:
    """A hold that was asked for at 0, on a key that the store keeps for `ttl`."""
    claim = Claim("k", "t", ttl, terms=Terms(max_hold=max_hold))
    return Hold(lease(left=ttl), 0.0, claim=claim, margin=0.02)


def lease(*, left: float, renewal: int = 0) -> Lease:
    """What the store answers: so many seconds left, after so many renewals."""
    return Lease("k", "t", 1, 100.0, None, left, renewal=renewal)


def test_belief_ends_at_its_last_instant() -> None:
    """M5, SAFE3: at `valid_until` itself the lease is lost already, and nothing remains; a moment before it is held."""
    hold = new_hold()
    assert hold.valid_until == usable(30)
    assert hold.lost_reason(hold.valid_until) == "expired"
    assert hold.lost_reason(hold.valid_until - 1e-6) is None
    assert hold.remaining(10.0) == pytest.approx(usable(30) - 10)
    assert hold.remaining(hold.valid_until + 7) == 0.0


def test_a_lease_that_ends_near_its_max_hold_ran_out() -> None:
    """M8: the reason is `max_hold` only where that is what cut the lease."""
    assert new_hold(ttl=10, max_hold=10.5).lost_reason(20) == "expired"
    assert new_hold(ttl=10, max_hold=10).lost_reason(20) == "max_hold"


def test_an_unanswered_shortening_bounds_what_an_older_answer_gives() -> None:
    """M7: the answer to an earlier, longer renewal comes after a shorter one was sent: belief ends no later than the
    shorter one may leave, until the store has answered that one, or a later one."""
    hold = new_hold()
    longer = hold.ask(1.0, ttl=60)
    shorter = hold.ask(2.0, ttl=5)
    assert (longer, shorter) == (1, 2)
    assert hold.valid_until == 2 + usable(5)
    assert hold.renewed(lease(left=60, renewal=longer), 1.0, now=3.0)
    assert hold.valid_until == 2 + usable(5)
    assert hold.renewed(lease(left=4, renewal=shorter), 2.0, now=3.5)
    assert hold.valid_until == 2 + usable(4)
    last = hold.ask(4.0, ttl=60)
    assert hold.renewed(lease(left=60, renewal=last), 4.0, now=5.0)
    assert hold.valid_until == 4 + usable(60)


def test_an_answer_that_is_not_older_counts() -> None:
    """M7: an answer with the number of the last one that was applied is news; one with a lower number changes nothing,
    and a number of the store's above ours is where we go on from."""
    hold = new_hold()
    assert hold.renewed(lease(left=50), 5.0, now=6.0)
    assert hold.valid_until == 5 + usable(50)
    assert hold.renewed(lease(left=40, renewal=7), 7.0, now=8.0)
    assert hold.valid_until == 7 + usable(40)
    assert hold.renewed(lease(left=90, renewal=6), 8.0, now=9.0)
    assert hold.valid_until == 7 + usable(40)
    assert hold.ask(9.0, ttl=30) == 8


@pytest.mark.parametrize("how", ["at its last instant", "released"])
def test_no_answer_revives_what_is_over(how: str) -> None:
    """SAFE5, M7: an answer that comes at the instant at which belief ends, or after a release, changes nothing."""
    hold = new_hold()
    until = hold.valid_until
    if how == "released":
        assert hold.end("released") is True
    else:
        until = hold.ask(0.0, ttl=20) and hold.valid_until
    now = 1.0 if how == "released" else hold.valid_until
    assert hold.renewed(lease(left=60, renewal=1), 0.5, now=now) is False
    assert hold.valid_until == until


def test_the_first_reason_stands() -> None:
    """H2: a hold ends once; whoever ends it later is told that it had ended."""
    hold = new_hold()
    assert hold.end("taken") is True
    assert hold.end("released") is False
    assert hold.ended == "taken"


def test_a_fork_ends_every_hold_of_the_parent_in_the_child() -> None:
    """L13: what was held before a fork is lost (`forked`), cannot be ended and has nothing left; a new one is held."""
    before = new_hold()
    hold_module._count_fork()  # what the child runs first
    after = new_hold()
    assert before.lost_reason(1.0) == "forked"
    assert before.remaining(1.0) == 0.0
    assert before.end("released") is False
    with pytest.raises(LockLost) as raised:
        before.check(1.0)
    assert raised.value.reason == "forked"
    assert (after.lost_reason(1.0), after.forked) == (None, False)


def test_a_shortening_that_hangs_is_noticed_at_the_end_that_it_may_leave() -> None:
    """M7, H2: a kept hold is shortened and no answer comes: its loss is told at the deadline that the request left."""
    rig = Rig()
    hold = rig.granted(ttl=600)
    rig.keep(hold, renewing=False)
    rig.pass_time(1.5)
    rig.store.hang("renew", past_timeout=True)
    rig.start(renew(rig.store, rig.env, hold, ttl=3.0))
    noticed: list[float] = []
    hold.lost_hooks.append(lambda: noticed.append(rig.clock.now()))
    rig.pass_time(60)
    assert noticed == [pytest.approx(1.5 + usable(3.0), abs=1e-3)]


def test_an_answer_with_less_than_was_asked_for_is_noticed_at_its_end() -> None:
    """H2: the store leaves a kept hold less than was asked for: its loss is told at the deadline of that answer."""
    rig = Rig()
    hold = rig.granted(ttl=600)
    rig.keep(hold, renewing=False)
    rig.pass_time(1.5)
    number = hold.ask(rig.clock.now(), ttl=600)
    assert hold.renewed(lease(left=2, renewal=number), rig.clock.now(), now=rig.clock.now())
    noticed: list[float] = []
    hold.lost_hooks.append(lambda: noticed.append(rig.clock.now()))
    rig.pass_time(60)
    assert noticed == [pytest.approx(1.5 + usable(2.0), abs=1e-3)]
