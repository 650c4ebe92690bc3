"""What has to happen in time: answers, losses told, keys handed on. Judged only where nothing was broken meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from nemesis.checks.violation import Violation
from nemesis.excuses import Excuses
from nemesis.run import GIVING_UP, NEVER, Call, Hold, Run, usable
from nemesis.worker import TIMEOUT

LATENESS = 1.5
"""Seconds by which a busy machine may be late with anything."""

HAND_OFF = 1.0 + LATENESS
"""Seconds within which a released key is taken by somebody who waits for it: one poll, were every notice lost."""

SIGNAL = 1.0 + LATENESS
"""Seconds within which a kept hold's loss is told."""

HEALING = 1.0
"""Seconds after a fault is healed in which a call may still meet it, in a connection or a name that was kept."""

SHORT = 0.1
"""Seconds: less is at once."""

CLEAN_UP = 1.0
"""Seconds that a call may spend on handing back what is not wanted."""

LONGEST_TTL = 2.0
"""Seconds: no lease of a run is longer."""


def answers_in_time(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """Every call ends within its wait, or the time-out of the store, and the time for cleaning up; broken or not."""
    for call in run.calls:
        wait = float(call.given.get("wait") or 0.0)
        bound = max(wait, TIMEOUT) + CLEAN_UP + LATENESS
        if call.call == "drop":
            continue
        ended = min(call.answered, run.ended, run.deaths.get(call.who, NEVER))
        bound += run.stopped(call.who, call.asked, ended)
        if ended - call.asked > bound:
            text = f"{call.key!r}: {call.call} {call.op} took {ended - call.asked:.3f} s"
            yield Violation("bounded", call.asked, text)


def loss_told(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """A loss is told in a second, after the process runs again, where somebody keeps the hold."""
    for holds in run.holds.values():
        for hold in holds:
            until = max(hold.until(), hold.granted)  # one may be over when it is had, after a stop
            told = min((line.at for line in hold.told if line.data["event"] == "lost"), default=NEVER)
            looked = max([hold.granted, *(line.at for line in hold.sights)])
            renewed = any(line.at > looked for line in hold.told if line.data["event"] == "renewed")
            by = until + SIGNAL + run.stopped(hold.who, until - hold.ttl, until + SIGNAL + LONGEST_TTL)
            over = hold.kept and not renewed and hold.given_up > by and by < min(run.ended, hold.died)
            if over and told > by:
                yield Violation("told", until, f"{hold.key!r}: the loss of {hold.op} was not told by {by:.3f}")


def hand_off(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """A key that was released is soon taken by somebody, if somebody waits for it."""
    for freed, waiting in waited_for(run):
        by = freed.answered + HAND_OFF
        taken = any(freed.asked <= hold.granted <= by for hold in run.holds.get(freed.key, ()))
        if not taken and by < run.ended and run.quiet(freed.asked - HAND_OFF, by, who=[freed.who, waiting.who]):
            text = f"{freed.key!r}: freed by {freed.op}, and {waiting.op} still waited {HAND_OFF:.1f} s later"
            yield Violation("hand-off", freed.answered, text)


def waited_for(run: Run) -> Iterator[tuple[Call, Call]]:
    """Each release that freed a key, with an acquire that waited then, and would have gone on for long enough."""
    waits: dict[str, list[Call]] = defaultdict(list)
    for call in run.calls:
        if call.call == "acquire" and call.given.get("wait") and not call.given.get("patience"):
            waits[call.key].append(call)
    for call in run.calls:
        if call.found.get("freed"):
            by = call.answered + HAND_OFF
            for one in waits[call.key]:
                if one.asked < call.asked and one.answered > call.answered and one.asked + one.given["wait"] > by:
                    yield call, one
                    break


def dead_holders(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """A key that nobody can hold any more is not refused: whatever became of its holder, a lease ends with its ttl."""
    for key in {call.key for call in run.calls if call.call == "acquire"}:
        asked = [call for call in run.calls if call.call == "acquire" and call.key == key and not call.hold]
        ends = sorted((call.asked, _free_by(run, call, run.holds.get(key, ()))) for call in asked)
        for call in asked:
            if call.outcome != "fail" or call.found.get("error") not in ("LockNotAcquired", "LockTimeout"):
                continue
            if not call.given.get("wait") and call.answered - call.asked > usable(float(call.given["ttl"])):
                continue  # its own grant may have been over when it came, and was handed back
            free_by = max((end for began, end in ends if began < call.answered), default=0.0)
            if call.asked > free_by + LATENESS and run.quiet(call.asked, call.answered, who=[call.who]):
                text = f"{key!r}: {call.op} was refused, and nobody can have held the key after {free_by:.3f}"
                yield Violation("wedged", call.asked, text)


def availability(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """A call finds the store where nothing hurts it: after a fault is healed, and in what happens every day.

    What failed at once is convicted, and what had a second to succeed; others may have had little time by design. A
    file, or a row, is locked for as long as somebody is stopped in the middle of a write to it; whoever has little time
    does not wait for that at all.
    """
    in_rows = run.store == "mysql"
    hurting = [fault for fault in run.faults if fault.hurts]
    for call in run.calls:
        took = call.answered - call.asked
        if call.found.get("error") != "StoreUnavailable" or SHORT < took < TIMEOUT / 2 or call.given.get("wait"):
            continue
        began = call.asked - HEALING
        hurt = any(fault.began < call.answered and fault.healed > began for fault in hurting)
        waited = took > SHORT or (in_rows and "busy" in str(call.found.get("message")))
        locked = (
            waited
            and (in_rows or run.store == "sqlite")
            and any(run.stopped(who, call.asked, call.answered) for who in run.stops)
        )
        if not hurt and not locked and not run.stopped(call.who, began, call.answered):
            text = f"{call.key!r}: {call.call} {call.op} failed after {took:.3f} s: {call.found.get('message')}"
            yield Violation("available", call.answered, text)


def _free_by(run: Run, call: Call, holds: Sequence[Hold]) -> float:
    """Until when the store can have held something for an acquire, at the latest."""
    hold = next((hold for hold in holds if hold.acquire is call), None)
    if hold is None:
        over = call.answered + CLEAN_UP
        if call.answered < NEVER and run.quiet(call.asked, over, who=[call.who]):
            return 0.0
        if call.outcome == "fail" and run.quiet(call.asked, over) and run.quiet(call.answered, over, who=[call.who]):
            return over  # what it asked for while it was stopped it has handed back since
        ended = min(call.answered, run.deaths.get(call.who, NEVER))
        healed = max((one.healed for one in run.faults if one.began <= ended), default=0.0)
        return max(ended, healed) + TIMEOUT + LONGEST_TTL
    if any(one.call == "release" and one.found.get("freed") for one in hold.calls):
        return min(one.answered for one in hold.calls if one.found.get("freed"))
    renewing = hold.kept or any(one.call in GIVING_UP for one in hold.calls)
    last = max([hold.until(), hold.granted, *(line.at for line in hold.told)])
    return last + TIMEOUT + (LONGEST_TTL if renewing else hold.ttl)
