"""Stores with one planted bug each: the text of the pure model with one place changed, run as a model of its own."""

import inspect
import sys
from dataclasses import dataclass
from types import ModuleType

from leased.testing import model
from leased.testing.model import ForceRelease, ShowList, ShowStatus


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug, and where it is planted: `old` is there exactly once."""

    bug: str
    old: str
    new: str

    def rules(self) -> ModuleType:
        """The model with this bug in it; it understands the same commands."""
        text = inspect.getsource(model)
        assert text.count(self.old) == 1, f"{self.bug}: the model has this {text.count(self.old)} times: {self.old}"
        module = ModuleType("mutant")
        sys.modules["mutant"] = module  # where dataclasses look up the names in annotations
        try:
            exec(compile(text.replace(self.old, self.new), self.bug, "exec"), vars(module))
        finally:
            del sys.modules["mutant"]
        for command in (ShowStatus, ShowList, ForceRelease):
            setattr(module, command.__name__, command)
        return module


MUTANTS = (
    Mutant(
        "a renewal revives a lapsed lease",
        "if record is None or not record.held_by(renew.token, now) or renew.number <= record.renewal:",
        "if record is None or record.token != renew.token or renew.number <= record.renewal:",
    ),
    Mutant(
        "a lease is still held at the instant of its expiry",
        "return self.token is not None and now < self.expires_at",
        "return self.token is not None and now <= self.expires_at",
    ),
    Mutant(
        "a closed key opens one instant too late",
        "return not self.held(now) and now < self.free_at",
        "return not self.held(now) and now <= self.free_at",
    ),
    Mutant(
        "a holder believes at the instant of expiry",
        "return self.token == token and now < self.expires_at",
        "return self.token == token and now <= self.expires_at",
    ),
    Mutant(
        "a release does not compare the token",
        "    if record and record.held_by(release.token, now):\n        free_at",
        "    if record and record.held(now):\n        free_at",
    ),
    Mutant("a fencing token is used again", "number = max(previous + 1, ", "number = max(previous, "),
    Mutant("fencing tokens follow the wall clock alone", "max(previous + 1, int(wall * 1_000_000))", "int(wall * 1e6)"),
    Mutant("fencing tokens are not above zero time", "max(previous + 1, int(wall * 1_000_000))", "previous + 1"),
    Mutant(
        "an ended token is granted again",
        "if state.marked(claim.token, now) or (record and record.token == claim.token):",
        "if record and record.token == claim.token:",
    ),
    Mutant(
        "a lapsed token is granted again",
        "if state.marked(claim.token, now) or (record and record.token == claim.token):",
        "if state.marked(claim.token, now):",
    ),
    Mutant("an ended token is forgotten too soon", "since + REPLAY_WINDOW)", "since + REPLAY_WINDOW / 2)"),
    Mutant(
        "a token that is marked again is not remembered for longer",
        "mark = Mark(self.marked(token, since) or ending, since + REPLAY_WINDOW)",
        "mark = self.marks[token] if self.marked(token, since) else Mark(ending, since + REPLAY_WINDOW)",
    ),
    Mutant("the last reason of a mark stands", "Mark(self.marked(token, since) or ending, ", "Mark(ending, "),
    Mutant(
        "renewals add to the expiry",
        "expires_at = min(now + ttl, self.deadline)",
        "expires_at = min(max(now, self.expires_at) + ttl, self.deadline)",
    ),
    Mutant(
        "renewals never shorten",
        "expires_at = min(now + ttl, self.deadline)",
        "expires_at = max(self.expires_at, min(now + ttl, self.deadline))",
    ),
    Mutant("`max_hold` is ignored", "expires_at = min(now + ttl, self.deadline)", "expires_at = now + ttl"),
    Mutant("`hold_at_least` is ignored", "self.acquired_at + self.terms.hold_at_least)", "self.acquired_at)"),
    Mutant("`lock_delay` is ignored", "max(expires_at + self.terms.lock_delay, ", "max(expires_at, "),
    Mutant(
        "a release ignores `hold_at_least`",
        "free_at = max(now, record.acquired_at + record.terms.hold_at_least)",
        "free_at = now",
    ),
    Mutant("equal renewal numbers count", "renew.number <= record.renewal", "renew.number < record.renewal"),
    Mutant("renewal numbers are not compared", " or renew.number <= record.renewal", ""),
    Mutant(
        "no owner is the same owner",
        "if claim.owner is None or claim.owner != record.owner:",
        "if claim.owner != record.owner:",
    ),
    Mutant(
        "an owner's case does not matter",
        "if claim.owner is None or claim.owner != record.owner:",
        "if claim.owner is None or claim.owner.lower() != (record.owner or '').lower():",
    ),
    Mutant(
        "the taken-over token is not marked",
        '        state = state.mark(record.token, "retaken", since=now)',
        "        pass",
    ),
    Mutant(
        "an owner enters a closed key",
        "    elif record and record.closed(now):",
        "    elif record and record.closed(now) and record.owner != claim.owner:",
    ),
    Mutant(
        "a repeated claim does not become late",
        "record = replace(record, late=record.late or claim.late, told=record.told + 1)",
        "record = replace(record, told=record.told + 1)",
    ),
    Mutant(
        "a repeated claim starts its lease again",
        "record = replace(record, late=record.late or claim.late, told=record.told + 1)",
        "record = replace(record, late=record.late or claim.late, told=record.told + 1).with_expiry(claim.ttl, now)",
    ),
    Mutant("a late release is not marked", "if release.late or (record", "if (record"),
    Mutant("a late record is not marked when released", "or (record and mine and record.late)", ""),
    Mutant(
        "a repeated claim is not counted",
        "record = replace(record, late=record.late or claim.late, told=record.told + 1)",
        "record = replace(record, late=record.late or claim.late)",
    ),
    Mutant(
        "an abandon takes back what was renewed",
        "if heard is not None and (record.renewal or record.told > heard):",
        "if heard is not None and record.told > heard:",
    ),
    Mutant(
        "an abandon takes back what others were told",
        "if heard is not None and (record.renewal or record.told > heard):",
        "if heard is not None and (record.renewal or record.told < heard):",
    ),
    Mutant(
        "an abandon by who heard of less marks all the same",
        "                    return state, None\n",
        '                    return state.mark(token, "abandoned", since=now), None\n',
    ),
    Mutant(
        "an abandon is not remembered",
        'return state.mark(token, "abandoned", since=now), None',
        "return state, None",
    ),
    Mutant(
        "an abandon leaves the key closed",
        "state = state.put(replace(record, token=None, free_at=now))",
        "state = state.put(replace(record, token=None))",
    ),
    Mutant(
        "an abandon ends anybody's lease",
        "            if record and record.held_by(token, now):",
        "            if record and record.held(now):",
    ),
    Mutant(
        "a forced release is not aimed",
        "if record is None or fencing_token not in (None, record.fencing_token):",
        "if record is None:",
    ),
    Mutant(
        "a forced release opens its own delay",
        "if record.forced or not record.closed(now):",
        "if not record.closed(now):",
    ),
    Mutant(
        "a forced release starts no delay",
        "free_at=now + record.terms.lock_delay, forced=True",
        "free_at=now, forced=True",
    ),
    Mutant(
        "a forced token is not marked",
        'state.mark(record.token, "force_released", since=now).put(forced)',
        "state.put(forced)",
    ),
    Mutant(
        "a closed key cannot be forced", "return state.put(replace(record, free_at=now)), True", "return state, False"
    ),
    Mutant("a free key is forced", "if record.forced or not record.closed(now):", "if record.forced:"),
    Mutant(
        "a loss at `max_hold` is called expiry",
        'Lost("max_hold" if now >= record.deadline else "expired")',
        'Lost("expired")',
    ),
    Mutant(
        "a lease taken by others is called expired",
        'Lost("taken" if record and record.held(now) else "expired")',
        'Lost("expired")',
    ),
    Mutant(
        "a lapsed lease is shown as held",
        "not (record.held(now) or record.closed(now)):",
        "not (record.token or record.closed(now)):",
    ),
    Mutant(
        "the list leaves out closed keys",
        "if status.held][: command.limit]",
        'if status.state == "held"][: command.limit]',
    ),
    Mutant("the list ignores its limit", "if status.held][: command.limit]", "if status.held]"),
    Mutant("the list begins with the last key", "key.encode() > after)", "key.encode() >= after)"),
    Mutant("the list ignores the prefix", "if key.startswith(command.prefix) and key", "if key"),
)
