"""Every order of a few operations on one key: the model keeps the promises, whatever is lost, late or doubled."""

import os
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Literal

import pytest

from leased.model import Abandon, Acquire, Claim, Held, Look, Release, Renew, Terms
from leased.policy import REPLAY_WINDOW
from leased.testing import model
from leased.testing.ledger import Hold, Ledger, PromiseBroken
from leased.testing.model import Command, ForceRelease, State, step
from tests.contract.mutants import MUTANTS, Mutant

DEPTH = int(os.environ.get("LEASED_SCOPE_DEPTH", "5"))
"""Operations in a row: 8 in the nightly run."""

WALL = 1_000.0
FIRST = Claim("k", "first", 2.0, owner="run", terms=Terms(hold_at_least=3.0))
SECOND = Claim("k", "second", 2.0, owner="run")
OTHER = Claim("k", "other", 2.0, late=True, terms=Terms(max_hold=3.0, lock_delay=1.0))
TAKES_TIME = (1.0, REPLAY_WINDOW)
OPERATIONS: tuple[Command, ...] = (
    Acquire(FIRST),
    Acquire(SECOND),
    Acquire(OTHER),
    Renew("k", "first", 2.0, 1),
    Renew("k", "first", 1.0, 2),
    Renew("k", "other", 2.0, 1),
    Release("k", "first"),
    Release("k", "second", late=True),
    Release("k", "other"),
    Abandon("k", "first"),
    Abandon("k", "other"),
    ForceRelease("k"),
    ForceRelease("k", int(WALL * 1e6)),
)


@dataclass(frozen=True)
class Moment:
    """What the model and the answers amount to after some operations."""

    rules: ModuleType
    state: State
    now: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)

    def key(self) -> object:
        """Equal for moments with the same future."""
        marks = frozenset((token, mark.ending, mark.until - self.now) for token, mark in self.state.marks.items())
        return (
            frozenset((record, self.now) for record in self.state.records.values()),
            marks,
            self.state.last,
            frozenset((hold.claim.token, hold.until, hold.late, self.now) for hold in self.ledger._holds.values()),
            frozenset(self.ledger._refused_until.items()),
        )

    def after(self, command: Command) -> "Moment":
        """The moment after an operation; the ledger raises if its answer breaks a promise."""
        state, answer = self.rules.step(self.state, self.now, WALL + self.now, command)
        ledger = Ledger(
            _holds={
                key: Hold(hold.claim, hold.number, hold.until, hold.late) for key, hold in self.ledger._holds.items()
            },
            _numbers=dict(self.ledger._numbers),
            _refused_until=dict(self.ledger._refused_until),
        )
        ledger.saw(command, answer, now=self.now)
        for claim in (FIRST, SECOND, OTHER):
            look = Look("k", claim.token)
            ledger.saw(look, self.rules.step(state, self.now, WALL + self.now, look)[1], now=self.now)
        return replace(self, state=state, ledger=ledger)


def explore(rules: ModuleType, *, depth: int) -> int:
    """Go through every order of so many operations; how many different moments there are."""
    moments = [Moment(rules, rules.State())]
    seen = {moments[0].key()}
    for _ in range(depth):
        following: list[Moment] = []
        for moment in moments:
            reached = [moment.after(command) for command in OPERATIONS]
            reached += [replace(moment, now=moment.now + seconds) for seconds in TAKES_TIME]
            for new in reached:
                if (key := new.key()) not in seen:
                    seen.add(key)
                    following.append(new)
        moments = following
    return len(seen)


def test_no_order_of_operations_breaks_a_promise() -> None:
    """Exclusion, rising tokens, one grant for a token, nothing revived, nothing lost early: in every state reached."""
    assert explore(model, depth=DEPTH) > 5_000


@pytest.mark.parametrize(
    "mutant",
    [
        mutant
        for mutant in MUTANTS
        if mutant.bug
        in {
            "a renewal revives a lapsed lease",
            "a holder believes at the instant of expiry",
            "a release does not compare the token",
            "a fencing token is used again",
            "an ended token is granted again",
            "an abandon is not remembered",
            "a late record is not marked when released",
        }
    ],
    ids=lambda mutant: mutant.bug,
)
def test_answers_alone_convict_a_bug(mutant: Mutant) -> None:
    """A bug that breaks a promise shows in the answers themselves: the judge needs no model to compare with."""
    with pytest.raises(PromiseBroken):
        explore(mutant.rules(), depth=4)


@pytest.mark.parametrize(("numbers", "above"), [("key", 0), ("store", 1)])
def test_numbers_are_above_those_of_the_key_or_of_the_store(numbers: Literal["key", "store"], above: int) -> None:
    """Where a store counts per key, two keys may get one number in one microsecond; one key never does."""
    state = State(numbers=numbers)
    found: list[int] = []
    for key, token in (("k", "1"), ("other", "2"), ("k", "3")):
        state, answer = step(state, 0.0, WALL, Acquire(Claim(key, token, 2.0, owner="run")))
        assert isinstance(answer, Held)
        found.append(answer.lease.fencing_token)
    first = int(WALL * 1e6)
    assert found == [first, first + above, first + 1 + above]
