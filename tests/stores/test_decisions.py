"""The contract as decisions: from what is seen of a key at one instant to the answer and what is written."""

from __future__ import annotations

from typing import Any

import pytest

from leased.model import Claim, Contended, Held, Lost, Released, Status, Terms
from leased.stores import _sql_rules as rules
from leased.stores._sql_record import NEVER_GRANTED, REPLAY, SECOND, Record, Seen, digest_of
from leased.stores._sql_rules import Effect

NOW = 1_700_000_000 * SECOND


def seen(record: Record | None, *, after: float = 0.0, mark: str | None = None, **more: Any) -> Seen:
    """What is seen so many seconds after `NOW`."""
    return Seen(record, mark, NOW + round(after * SECOND), **more)


def claim(token: str = "t", *, ttl: float = 10.0, owner: str | None = None, late: bool = False, **terms: Any) -> Claim:
    """A claim of the key."""
    return Claim("k", token, ttl, owner=owner, terms=Terms(**terms), late=late)


def granted(token: str = "t", **how: Any) -> Record:
    """The record of a grant at `NOW`."""
    answer, effect = rules.acquire(seen(None), claim=claim(token, **how))
    assert isinstance(answer, Held)
    assert effect is not None
    return effect.record


def forced(token: str = "t", **how: Any) -> Record:
    """The record of a grant that was forced at `NOW`."""
    done, effect = rules.force_release(seen(granted(token, **how)), fencing_token=None)
    assert done is True
    assert effect is not None
    return effect.record


def test_an_open_key_is_granted() -> None:
    """Row "the key open": all of the claim is written, cut at `max_hold`, with a number above the wall clock."""
    terms: dict[str, Any] = {"max_hold": 8.0, "hold_at_least": 3.0, "lock_delay": 2.0}
    answer, effect = rules.acquire(seen(None), claim=claim(owner="o", late=True, **terms))
    assert isinstance(answer, Held)
    assert effect is not None
    assert (answer.lease.left, answer.lease.owner, answer.lease.renewal) == (8.0, "o", 0)
    record = effect.record
    assert (record.token, record.owner, record.late, record.forced) == (digest_of("t"), b"o", True, False)
    assert (record.fencing_token, record.renewal, record.acquired_at) == (NOW, -1, NOW)
    assert (record.expires_at, record.free_at, record.deadline) == (
        NOW + 8 * SECOND,
        NOW + 10 * SECOND,
        NOW + 8 * SECOND,
    )
    assert (effect.marks, effect.freed, record.marked_until) == ((), False, 0)


def test_fencing_tokens_rise_from_the_greater_of_the_last_and_the_clock() -> None:
    """M4: `max(previous + 1, wall clock)`, where the previous one is the key's, or the last of the whole store; a clock
    that counts from elsewhere is read from its zero."""
    lapsed = granted()._replace(fencing_token=NOW + 50 * SECOND)
    for last, expected in (
        (None, NOW + 50 * SECOND + 1),
        (NOW + 70 * SECOND, NOW + 70 * SECOND + 1),
        (5, NOW + 20 * SECOND),
    ):
        answer, _ = rules.acquire(seen(lapsed, after=20, last=last), claim=claim("u"))
        assert isinstance(answer, Held)
        assert answer.lease.fencing_token == expected
    answer, _ = rules.acquire(seen(None, zero=7), claim=claim())
    assert isinstance(answer, Held)
    assert answer.lease.fencing_token == NOW + 7


def test_a_token_that_holds_the_key_is_told_so_again() -> None:
    """Row "this token holds the key": the same grant; `late` is added and it is counted, until the first renewal."""
    record = granted()
    answer, effect = rules.acquire(seen(record, after=3), claim=claim(late=True))
    assert isinstance(answer, Held)
    assert (answer.lease.left, answer.lease.fencing_token) == (7.0, record.fencing_token)
    assert effect == Effect(record._replace(late=True, renewal=-2))
    renewed = record._replace(renewal=3, late=True)
    answer, effect = rules.acquire(seen(renewed), claim=claim())
    assert isinstance(answer, Held)
    assert effect is None


@pytest.mark.parametrize("record", [None, granted("u"), granted("u", ttl=0.5)], ids=["no record", "held", "lapsed"])
def test_an_ended_token_is_refused_for_good(record: Record | None) -> None:
    """Row "a mark of this token": `ended`, whatever else is there, and nothing changes."""
    answer, effect = rules.acquire(seen(record, after=1, mark="abandoned"), claim=claim())
    assert isinstance(answer, Contended)
    assert (answer.ended, effect) == (True, None)
    if record is not None and record.expires_at > NOW + SECOND:
        assert answer.status is not None
        assert answer.status.held


def test_a_lapsed_token_is_refused_for_good() -> None:
    """Row "a lapsed record with it": a token gets at most one grant; at the expiry itself it has lapsed."""
    for after in (10.0, 30.0):
        answer, effect = rules.acquire(seen(granted(), after=after), claim=claim())
        assert isinstance(answer, Contended)
        assert (answer.ended, effect) == (True, None)


def test_a_held_or_closed_key_is_refused() -> None:
    """Row "the key held, or closed": what anyone may see, and nothing changes; owners count only if both have one."""
    closed = granted(hold_at_least=60.0)
    for record, asks, after in (
        (granted(owner="o"), claim("u", owner="p"), 1.0),
        (granted(owner="o"), claim("u"), 1.0),
        (granted(), claim("u", owner="o"), 1.0),
        (granted(), claim("u"), 9.999),
        (closed, claim("u"), 30.0),
        (granted(owner="o", lock_delay=60.0), claim("u", owner="o"), 30.0),
    ):
        answer, effect = rules.acquire(seen(record, after=after), claim=asks)
        assert isinstance(answer, Contended)
        assert answer.status is not None
        assert (answer.status.held, answer.ended, effect) == (True, False, None)


def test_the_same_owner_takes_over() -> None:
    """Row "owners equal and not null": a new grant; the old token is marked `retaken`, for claims to look for."""
    answer, effect = rules.acquire(seen(granted(owner="o"), after=4), claim=claim("u", owner="o"))
    assert isinstance(answer, Held)
    assert effect is not None
    assert effect.marks == ((digest_of("t"), "retaken"),)
    assert (effect.record.token, effect.record.marked_until) == (digest_of("u"), NOW + 4 * SECOND + REPLAY)


def test_who_takes_a_lapsed_key_marks_its_token_only_if_it_may_come_again() -> None:
    """Row "the key open": the token of a lapsed record that is `late` is marked `expired`; earlier marks stay known."""
    for late, marks in ((True, ((digest_of("t"), "expired"),)), (False, ())):
        record = granted(late=late)._replace(marked_until=NOW + 900 * SECOND)
        answer, effect = rules.acquire(seen(record, after=11), claim=claim("u"))
        assert isinstance(answer, Held)
        assert effect is not None
        assert (effect.marks, effect.record.marked_until) == (marks, NOW + 900 * SECOND)


def test_a_renewal_sets_the_expiry() -> None:
    """Rows of `renew`: a number above the record's sets expiry and opening from now, cut at the deadline; one that is
    not above changes nothing."""
    record = granted(max_hold=20.0, lock_delay=2.0, hold_at_least=15.0)
    answer, effect = rules.renew(seen(record, after=4), key="k", token="t", ttl=5.0, number=1)
    assert isinstance(answer, Held)
    assert effect is not None
    assert (answer.lease.left, answer.lease.renewal, answer.lease.ttl) == (5.0, 1, 5.0)
    once = effect.record
    assert (once.expires_at, once.free_at, once.renewal, once.ttl) == (
        NOW + 9 * SECOND,
        NOW + 15 * SECOND,
        1,
        5 * SECOND,
    )
    answer, effect = rules.renew(seen(once, after=8), key="k", token="t", ttl=60.0, number=2)
    assert effect is not None
    assert (effect.record.expires_at, effect.record.free_at) == (NOW + 20 * SECOND, NOW + 22 * SECOND)
    for number in (0, 1):
        answer, effect = rules.renew(seen(once, after=8), key="k", token="t", ttl=60.0, number=number)
        assert isinstance(answer, Held)
        assert (answer.lease.left, answer.lease.renewal, effect) == (1.0, 1, None)
    assert rules.renew(seen(record), key="k", token="t", ttl=60.0, number=0)[1] is None
    looked = rules.look(seen(once, after=8), key="k", token="t")
    assert isinstance(looked, Held)
    assert looked.lease.left == 1.0


@pytest.mark.parametrize(
    ("record", "after", "mark", "reason"),
    [
        (granted(), 10.0, None, "expired"),
        (granted(max_hold=5.0), 5.0, None, "max_hold"),
        (granted(max_hold=5.0), 4.0, None, None),
        (granted("u"), 1.0, "retaken", "retaken"),
        (granted("u"), 1.0, "force_released", "force_released"),
        (granted("u"), 1.0, "abandoned", "taken"),
        (granted("u"), 1.0, None, "taken"),
        (granted("u"), 11.0, None, "expired"),
        (None, 0.0, None, "expired"),
        (None, 0.0, "retaken", "retaken"),
    ],
)
def test_what_is_lost_says_why(record: Record | None, after: float, mark: str | None, reason: str | None) -> None:
    """Rows of `renew` that are refusals: with the best reason, and without any effect."""
    answer, effect = rules.renew(seen(record, after=after, mark=mark), key="k", token="t", ttl=5.0, number=1)
    if reason is None:
        assert isinstance(answer, Held)
    else:
        assert (answer, effect) == (Lost(reason), None)  # type: ignore[arg-type]  # a row of this table


def test_a_release_ends_the_lease() -> None:
    """Row "this token holds the key": freed, closed for what is left of `hold_at_least`; marked where it may come
    again."""
    for late, lately in ((False, False), (True, False), (False, True)):
        record = granted(hold_at_least=6.0, lock_delay=60.0, late=late)
        answer, effect = rules.release(seen(record, after=2), token="t", late=lately)
        assert answer == Released()
        assert effect is not None
        assert (effect.record.token, effect.record.free_at, effect.freed) == (None, NOW + 6 * SECOND, True)
        assert effect.marks == (((digest_of("t"), "released"),) if late or lately else ())
        assert effect.record.marked_until == (NOW + 2 * SECOND + REPLAY if late or lately else 0)
    _, effect = rules.release(seen(granted(hold_at_least=1.0), after=2), token="t", late=False)
    assert effect is not None
    assert effect.record.free_at == NOW + 2 * SECOND


def test_a_release_of_nothing_changes_nothing_but_its_mark() -> None:
    """Rows "a lapsed record" and "anything else": the answer says which; with `late` the token is marked."""
    for record, after, reason in (
        (granted(), 10.0, "expired"),
        (granted("u"), 1.0, "not_holder"),
        (None, 0.0, "not_holder"),
    ):
        answer, effect = rules.release(seen(record, after=after), token="t", late=False)
        assert (answer.reason, effect) == (reason, None)
        answer, effect = rules.release(seen(record, after=after), token="t", late=True)
        assert answer.reason == reason
        now = NOW + round(after * SECOND)
        marked = (record or NEVER_GRANTED)._replace(marked_until=now + REPLAY)
        assert effect == Effect(marked, ((digest_of("t"), "released"),), freed=False)
    answer, effect = rules.release(seen(granted(late=True), after=10), token="t", late=False)
    assert answer == Released("expired")
    assert effect is not None
    assert effect.marks == ((digest_of("t"), "released"),)
    assert rules.release(seen(granted("u", late=True)), token="t", late=False) == (Released("not_holder"), None)


def test_an_abandon_opens_what_it_holds_and_always_marks() -> None:
    """`abandon`: the key opens at once; what is not held, or lapsed, is only marked; a later mark prolongs, an earlier
    one shortens nothing."""
    record = granted(hold_at_least=60.0, lock_delay=60.0)
    effect = rules.abandon(seen(record, after=2), token="t")
    assert effect is not None
    assert (effect.record.token, effect.record.free_at, effect.freed) == (None, NOW + 2 * SECOND, True)
    assert effect.marks == ((digest_of("t"), "abandoned"),)
    for other, after in ((granted("u"), 1.0), (granted(), 10.0), (None, 0.0)):
        effect = rules.abandon(seen(other, after=after), token="t", heard=5)
        now = NOW + round(after * SECOND)
        assert effect == Effect(
            (other or NEVER_GRANTED)._replace(marked_until=now + REPLAY), ((digest_of("t"), "abandoned"),), freed=False
        )
    far = granted("u")._replace(marked_until=NOW + 10 * REPLAY)
    effect = rules.abandon(seen(far), token="t")
    assert effect is not None
    assert effect.record.marked_until == NOW + 10 * REPLAY


def test_an_abandon_that_heard_less_than_was_told_does_nothing() -> None:
    """`heard`: nothing happens, and nothing is marked, unless it is all that was ever told of this hold."""
    twice = granted()._replace(renewal=-2)
    assert rules.abandon(seen(twice), token="t", heard=1) is None
    assert rules.abandon(seen(granted()._replace(renewal=4)), token="t", heard=1) is None
    for heard in (2, 3):
        effect = rules.abandon(seen(twice), token="t", heard=heard)
        assert effect is not None
        assert effect.freed


def test_a_forced_release_of_a_lease_starts_its_lock_delay() -> None:
    """Row "the key held": marked `force_released`, closed for `lock_delay` from now; the delay then stands."""
    record = granted(lock_delay=30.0, hold_at_least=900.0)
    done, effect = rules.force_release(seen(record, after=2), fencing_token=record.fencing_token)
    assert done is True
    assert effect is not None
    assert (effect.marks, effect.freed) == (((digest_of("t"), "force_released"),), True)
    ended = effect.record
    assert (ended.token, ended.forced, ended.free_at) == (None, True, NOW + 32 * SECOND)
    assert rules.force_release(seen(ended, after=3), fencing_token=None) == (False, None)


def test_a_forced_release_opens_a_closed_key() -> None:
    """Row "the key closed": it opens now; the token of a lapsed `late` record is marked `expired`, and no other."""
    for late, marks in ((True, ((digest_of("t"), "expired"),)), (False, ())):
        done, effect = rules.force_release(seen(granted(late=late, lock_delay=60.0), after=20), fencing_token=None)
        assert done is True
        assert effect is not None
        assert (effect.marks, effect.freed, effect.record.forced) == (marks, True, False)
        assert (effect.record.token, effect.record.free_at) == (None, NOW + 20 * SECOND)
        assert effect.record.marked_until == (NOW + 20 * SECOND + REPLAY if late else 0)


def test_a_forced_release_of_nothing_is_false() -> None:
    """Rows "a number that is not the record's" and "the key open"."""
    for record, after, number in (
        (None, 0.0, None),
        (granted(), 1.0, 5),
        (granted(), 10.0, None),
        (forced(), 0.0, None),
    ):
        assert rules.force_release(seen(record, after=after), fencing_token=number) == (False, None)


def test_the_status_of_a_key_without_a_record_is_free() -> None:
    """`status`: free where nothing is kept; else what the record says, on the clock's own zero."""
    assert rules.status(seen(None), key="k") == Status("k")
    shown = rules.status(seen(granted(), after=1, zero=5 * SECOND), key="k")
    assert (shown.state, shown.expires_in, shown.expires_at) == ("held", 9.0, NOW / SECOND + 15)
    refused, _ = rules.acquire(seen(granted(), after=1, zero=5 * SECOND), claim=claim("u"))
    assert isinstance(refused, Contended)
    assert refused.status == shown
