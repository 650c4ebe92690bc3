"""How holds end: not before their time, for good, and with one grant for one token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nemesis.checks.violation import Violation
from nemesis.excuses import Excuses
from nemesis.run import NEVER, Call, Hold, Run, usable

ROUNDING = 0.01
"""Seconds between what a holder read of its handle and the time that stands beside it, at the most."""

_BY_FORCE = "force_released"
_EARLY = "store_lost"
"""What a holder is told whose lease the store no longer knows before its time: forgotten, or its clock was moved."""


def early_loss(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """A hold does not end before its time, unless it was forced."""
    for hold in _all(run):
        abandoned = min((call.asked for call in hold.calls if call.call == "abandon"), default=NEVER)
        for at, what in _signs_of_an_end(hold):
            if at < min(hold.until(at), abandoned) - ROUNDING and excuses.excuse(hold, at) is None:
                yield Violation("early loss", at, f"{hold.key!r}: {hold.op} believed, {what}")
                break
    yield from _seen_free(run, excuses)


def wrong_reason(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """A loss has a reason that can be: forced only where somebody forced, and none that nobody caused."""
    for hold in _all(run):
        if hold.loss is None:
            continue
        at, reason = hold.loss
        if reason == _BY_FORCE and not excuses.ended_early(hold, at):
            yield Violation("reason", at, f"{hold.key!r}: {hold.op} was lost as forced, and nobody forced it")
        abandoned = any(call.call == "abandon" and call.asked < at for call in hold.calls)
        if reason == _EARLY and not abandoned and not excuses.ended_early(hold, at):
            yield Violation("reason", at, f"{hold.key!r}: {hold.op} was lost as if the store had forgotten it")
        if reason not in ("expired", "taken", _BY_FORCE, _EARLY):
            yield Violation("reason", at, f"{hold.key!r}: {hold.op} was lost for the reason {reason!r}")


def belief_in_time(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """Belief ends within a ttl, less the margins, of the last answer; nothing but an answer extends it."""
    for hold in _all(run):
        if hold.kept:
            continue
        renewals = [call for call in hold.calls if call.call == "renew" and call.outcome == "ok"]
        for line in hold.sights:
            contact = max([hold.granted, *(call.answered for call in renewals if call.asked <= line.at)])
            if (
                line.at < hold.given_up
                and not line.data["lost"]
                and max(line.at, float(line.data["until"])) > contact + usable(hold.ttl) + ROUNDING
            ):
                late = max(line.at, float(line.data["until"])) - contact
                text = f"{hold.key!r}: {hold.op} (ttl {hold.ttl} s) believed {late:.3f} s after the last answer"
                yield Violation("belief", line.at, text)
                break


def resurrection(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """A hold that was known to be lost, or was released, is not believed in again and not renewed."""
    for hold in _all(run):
        lost_at = hold.loss[0] if hold.loss else NEVER
        over_at = min([lost_at, *(call.answered for call in hold.calls if call.call == "release")])
        for line in hold.sights:
            if line.at > lost_at and not line.data["lost"] and hold.given_up > line.at:
                yield Violation("resurrection", line.at, f"{hold.key!r}: {hold.op} was lost and is believed in again")
        for call in hold.calls:
            if call.call == "renew" and call.asked > over_at and call.found.get("renewed"):
                yield Violation("resurrection", call.answered, f"{hold.key!r}: {hold.op} was over and was renewed")


def staleness(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """After a later grant, a call of an earlier holder is not taken for the holder's."""
    for holds in run.holds.values():
        for hold in holds:
            for call in [*hold.calls, *_renewals_by_itself(run, hold)]:
                later = _last_granted_before(holds, call.asked, above=hold.fence) if _passed(run, call) else None
                if later is not None and excuses.revived(hold, later, call) is None:
                    text = f"{hold.key!r}: {call.call} by {hold.op} was granted after {later.op} had it"
                    yield Violation("staleness", call.answered, text)


def idempotence(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """The same request once more gets the same grant while it lives, and none after that. An answer that is longer on
    its way than what is left then is dead on arrival, and its grant handed back."""
    by_op = {hold.op: hold for hold in _all(run)}
    for call in run.calls:
        hold = by_op.get(call.hold)
        if call.call != "acquire" or hold is None:
            continue
        arrives = call.answered + (call.answered - call.asked)
        refused = call.found.get("error") == "LockNotAcquired" and arrives < hold.until(call.answered) - ROUNDING
        other = call.granted and int(call.found["fence"]) != hold.fence
        if other and excuses.forgotten(hold, call.answered) is None:
            text = f"{hold.key!r}: {hold.op} had {hold.fence}, and the same request got {call.found['fence']}"
            yield Violation("idempotence", call.answered, text)
        if refused and excuses.excuse(hold, call.answered) is None:
            text = f"{hold.key!r}: {hold.op} was refused by its own hold when it asked again"
            yield Violation("idempotence", call.answered, text)


def _all(run: Run) -> Iterator[Hold]:
    for holds in run.holds.values():
        yield from holds


def _signs_of_an_end(hold: Hold) -> Iterator[tuple[float, str]]:
    """When the store, or the library, said that this hold is over, and how."""
    signs = [
        (line.at, f"and was told that it is lost ({line.data['reason']})")
        for line in hold.told
        if line.data["event"] == "lost"
    ]
    for call in hold.calls:
        if call.call == "renew" and call.found.get("reason") == "lease_lost":
            signs.append((call.answered, f"and its renewal was refused ({call.found['lost_reason']})"))
        if call.call == "release" and call.found.get("reason") in ("not_holder", "expired"):
            signs.append((call.answered, f"and its release was refused ({call.found['reason']})"))
    yield from sorted(signs)


def _seen_free(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """A status cannot show a key as free, or as another's, during the whole of which it was believed in."""
    for call in run.calls:
        if call.call != "status" or call.outcome != "ok":
            continue
        for hold in run.holds.get(call.key, ()):
            began, ended = hold.belief
            other = began < call.asked and call.answered < ended and call.found["fence"] != hold.fence
            if other and excuses.excuse(hold, call.answered) is None:
                text = f"{hold.key!r}: {hold.op} believed, and status showed {call.found}"
                yield Violation("early loss", call.answered, text)


def _renewals_by_itself(run: Run, hold: Hold) -> Iterator[Call]:
    """The renewals of a kept hold, of which only the end is told: each was sent within a third of the ttl before."""
    for line in hold.told:
        sent = line.at - hold.ttl / 3 - ROUNDING
        if hold.kept and line.data["event"] == "renewed" and not run.stopped(hold.who, sent, line.at):
            yield Call(hold.op, "renew", hold.who, hold.key, hold.op, sent, {}, line.at, "ok", {"renewed": True})


def _passed(run: Run, call: Call) -> bool:
    """Whether the store took the caller for the holder. After an unanswered try a release cannot tell."""
    if call.call == "renew":
        return bool(call.found.get("renewed"))
    return (
        call.call == "release"
        and bool(call.found.get("freed"))
        and run.quiet(call.asked, call.answered, who=[call.who])
    )


def _last_granted_before(holds: Sequence[Hold], at: float, *, above: int) -> Hold | None:
    """The latest hold with a higher fencing token that its holder had before that time."""
    found = [hold for hold in holds if hold.granted < at and hold.fence > above]
    return max(found, key=lambda hold: hold.fence, default=None)
