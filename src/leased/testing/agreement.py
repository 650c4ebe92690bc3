"""A machine that asks a store and the pure model the same things and compares all answers; Hypothesis drives it.

`agree(place)` is the whole test. It is imported by tests only: nothing else here needs Hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from leased.model import (
    Abandon,
    Acquire,
    Claim,
    Held,
    Look,
    Operation,
    Release,
    Renew,
    Terms,
)
from leased.policy import MAX_TTL, REPLAY_WINDOW
from leased.store import Store
from leased.testing.comparing import TIMEOUT, alike, ask
from leased.testing.ledger import Ledger
from leased.testing.model import Answer, Command, ForceRelease, ShowList, ShowStatus, State, outcomes
from leased.testing.worlds import Driver, Place, World

_NAMES = ("a", "a:", "A")
_KEYS = st.sampled_from([0, 0, 0, 0, 1, 2])
_OWNERS = st.sampled_from([None, "run", "run", "Run"])
_ALIKE = 10
"""Runs in one go: Hypothesis varies what it tried before, so many short goes see more than a long one."""
_STEPS = (1, 2, 3, 8, 20)
_METADATA = ("{}", '{"note":"ä"}')
_RECENT = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 4])
_HEARD = st.sampled_from([None, None, 0, 0, 1, 1, 2])


class Disagreement(AssertionError):
    """The store answered what the model does not allow."""


class Agreement(RuleBasedStateMachine):
    """The store of a place beside the model: same commands, same instant, same answers."""

    place: ClassVar[Place]

    def __init__(self) -> None:
        super().__init__()
        self.driver: Driver = self.place.face.driver()
        self.world: World = self.driver.run(self._open())
        self.client = self.world.store
        self.exact = self.world.clock is not None
        self.tick = 0.125 if self.exact else self.world.unit
        self.slack = 0.0 if self.exact else self.world.unit / 2
        self.state = State(numbers=self.world.numbers)
        self.ledger = Ledger(slack=self.slack)
        self.now = 0.0
        # What depends on a wall clock that this machine does not read, or that was set since.
        self.unknown: set[str] = set() if self.exact else {"acquired_at", "expires_at", "free_at"}
        self.claims: list[Claim] = []
        self.keys = [self.world.prefix + name for name in _NAMES]

    async def _open(self) -> World:
        return self.place.open()

    def teardown(self) -> None:
        """Close the store."""
        self.driver.run(self.world.close())
        self.driver.close()

    # What is said and heard

    def tell(self, command: Command) -> Answer:
        """Give a command to the store, and see that the model allows its answer."""
        answer = self.driver.run(ask(self.client, command))
        self.judge(command, answer)
        return answer

    def judge(self, command: Command, answer: Answer) -> None:
        """Go on with the first state of the model in which this answer is right; there has to be one."""
        wall = self.world.clock.wall() if self.world.clock else 0.0
        for allowed in outcomes(self.state, self.now, wall, command):
            state, expected = allowed if self.exact else self._with_their_number(*allowed, answer)
            if alike(answer, expected, slack=self.slack, skipped=self.unknown):
                self.state = state
                self.ledger.saw(command, answer, now=self.now)
                return
        _, expected = next(iter(outcomes(self.state, self.now, wall, command)))
        raise Disagreement(f"at {self.now} to {command}: the store said {answer}, the model {expected}")

    def _with_their_number(self, state: State, expected: Answer, answer: Answer) -> tuple[State, Answer]:
        """Where the store reads a clock of its own its fencing tokens are taken over; the ledger judges them."""
        if not isinstance(expected, Held) or not isinstance(answer, Held):
            return state, expected
        number = answer.lease.fencing_token
        state = state.put(replace(state.records[expected.lease.key], fencing_token=number))
        return state, Held(replace(expected.lease, fencing_token=number))

    def claim(self, recent: int) -> Claim:
        """One of the claims made so far, 0 is the newest."""
        return self.claims[max(0, len(self.claims) - 1 - recent)]

    def new_claim(self, key: int, **wishes: Any) -> Claim:
        """A claim with a token of its own, remembered."""
        claim = Claim(self.keys[key], f"{len(self.claims):032x}", **wishes)
        self.claims.append(claim)
        return claim

    def seconds(self, steps: float) -> float:
        """So many steps of this machine's time."""
        return steps * (self.tick if not self.exact else 1.0)

    # Claims

    @initialize(delay=st.sampled_from([0, 8]))
    def start(self, *, delay: int) -> None:
        """Have some claims to speak of."""
        for key in (2, 1, 0):
            terms = Terms(lock_delay=self.seconds(delay))
            self.tell(Acquire(self.new_claim(key, ttl=self.seconds(3 + 20 * key), owner="run", terms=terms)))

    @rule(key=_KEYS, ttl=st.sampled_from(_STEPS), owner=_OWNERS, late=st.booleans())
    def acquire(self, *, key: int, ttl: int, owner: str | None, late: bool) -> None:
        """A new claim with plain terms."""
        self.tell(Acquire(self.new_claim(key, ttl=self.seconds(ttl), owner=owner, late=late)))

    @rule(
        key=_KEYS,
        ttl=st.sampled_from(_STEPS),
        owner=_OWNERS,
        late=st.booleans(),
        hold=st.sampled_from([0, 0, 8]),
        delay=st.sampled_from([0, 8, 20]),
        most=st.sampled_from([None, 3]),
        metadata=st.sampled_from(_METADATA),
    )
    def acquire_with_terms(self, *, key: int, ttl: int, owner: str | None, **terms: Any) -> None:
        """A new claim with every option there is."""
        conditions = Terms(
            max_hold=MAX_TTL if terms["most"] is None else self.seconds(terms["most"]),
            hold_at_least=self.seconds(terms["hold"]),
            lock_delay=self.seconds(terms["delay"]),
            held_by="program@host:1",
            metadata=terms["metadata"],
        )
        wishes = {"ttl": self.seconds(ttl), "owner": owner, "late": terms["late"], "terms": conditions}
        self.tell(Acquire(self.new_claim(key, **wishes)))

    @rule(recent=_RECENT, late=st.booleans())
    def acquire_again(self, *, recent: int, late: bool) -> None:
        """A copy of an earlier claim arrives."""
        self.tell(Acquire(replace(self.claim(recent), late=late)))

    @rule(key=_KEYS, ttl=st.sampled_from(_STEPS), late=st.booleans())
    def take_over(self, *, key: int, ttl: int, late: bool) -> None:
        """Whoever is named as the owner of the key claims it again."""
        record = self.state.records.get(self.keys[key])
        owner = record.owner if record else "run"
        self.tell(Acquire(self.new_claim(key, ttl=self.seconds(ttl), owner=owner, late=late)))

    # Holders

    @rule(recent=_RECENT, ttl=st.sampled_from(_STEPS), above=st.integers(1, 3))
    def renew(self, *, recent: int, ttl: int, above: int) -> None:
        """A renewal with a number above all before it."""
        claim = self.claim(recent)
        record = self.state.records.get(claim.key)
        number = (record.renewal if record else 0) + above
        self.tell(Renew(claim.key, claim.token, self.seconds(ttl), number))

    @rule(recent=_RECENT, ttl=st.sampled_from(_STEPS), below=st.integers(0, 2))
    def renew_late(self, *, recent: int, ttl: int, below: int) -> None:
        """A copy of an earlier renewal arrives."""
        claim = self.claim(recent)
        record = self.state.records.get(claim.key)
        number = max(0, (record.renewal if record else 0) - below)
        self.tell(Renew(claim.key, claim.token, self.seconds(ttl), number))

    @rule(recent=_RECENT)
    def look(self, *, recent: int) -> None:
        """A holder, present or past, asks whether it holds."""
        self.tell(Look(self.claim(recent).key, self.claim(recent).token))

    @rule(recent=_RECENT, late=st.booleans())
    def release(self, *, recent: int, late: bool) -> None:
        """A holder, present or past, releases."""
        self.tell(Release(self.claim(recent).key, self.claim(recent).token, late=late))

    @rule(recent=_RECENT, late=st.booleans(), told=st.booleans())
    def release_among_copies(self, *, recent: int, late: bool, told: bool) -> None:
        """Copies of a claim arrive before and after the release of its lease."""
        claim = self.claim(recent)
        self.tell(Acquire(replace(claim, late=late)))
        self.tell(Release(claim.key, claim.token, late=told))
        self.tell(Acquire(claim))

    @rule(recent=_RECENT, heard=_HEARD)
    def abandon(self, *, recent: int, heard: int | None) -> None:
        """A claim is abandoned, whatever became of it, or unless others may have heard of it."""
        self.tell(Abandon(self.claim(recent).key, self.claim(recent).token, heard))

    @rule(recent=_RECENT, late=st.booleans())
    def abandon_again(self, *, recent: int, late: bool) -> None:
        """A claim that has ended is abandoned while that is still remembered; a copy of it arrives much later."""
        claim = self.claim(recent)
        self.tell(Release(claim.key, claim.token, late=late))
        self.pass_time(REPLAY_WINDOW - self.tick)
        self.tell(Abandon(claim.key, claim.token))
        self.pass_time(REPLAY_WINDOW - self.tick)
        self.tell(Acquire(claim))

    @rule(key=_KEYS)
    def abandon_first(self, *, key: int) -> None:
        """A claim is abandoned before it arrives; it may still arrive later."""
        claim = self.new_claim(key, ttl=self.seconds(8), owner="run")
        self.tell(Abandon(claim.key, claim.token))

    @rule(recent=_RECENT, key=_KEYS, what=st.sampled_from([Release, Look]))
    def try_elsewhere(self, *, recent: int, key: int, what: Callable[[str, str], Operation]) -> None:
        """The token of one key is tried on another one; why it has ended is known there to some stores only."""
        known = what is Release or self.world.marks == "store"
        if known and self.keys[key] != self.claim(recent).key:
            self.tell(what(self.keys[key], self.claim(recent).token))

    # Anybody

    @rule(key=_KEYS, off=st.sampled_from([None, 0, 0, 1, -1]), times=st.sampled_from([1, 1, 2]))
    def force(self, *, key: int, off: int | None, times: int) -> None:
        """A forced release, or two: without a number, with the last one of the key, or with one beside it."""
        record = self.state.records.get(self.keys[key])
        number = None if off is None else (record.fencing_token if record else 7) + off
        for _ in range(times):
            self.tell(ForceRelease(self.keys[key], number))

    @rule(key=_KEYS)
    def show_status(self, *, key: int) -> None:
        """Somebody looks at a key."""
        self.tell(ShowStatus(self.keys[key]))

    @rule(prefix=st.sampled_from(["", "a", "A", "%"]), limit=st.integers(1, 3))
    def show_list(self, *, prefix: str, limit: int) -> None:
        """Somebody lists keys, page by page."""
        after = ""
        while True:
            page = self.tell(ShowList(self.world.prefix + prefix, after, limit))
            if not isinstance(page, list) or not page:
                return
            after = page[-1].key

    @rule(data=st.data(), size=st.integers(0, 5))
    def batch(self, *, data: st.DataObject, size: int) -> None:
        """Several operations at once, on few keys."""
        operations = [self._member(data) for _ in range(size)]
        answers = self.driver.run(self.client.many(operations, timeout=TIMEOUT))
        if len(answers) != size:
            raise Disagreement(f"a batch of {size} got {len(answers)} answers")
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(answer, Exception):
                raise answer
            self.judge(operation, answer)

    def _member(self, data: st.DataObject) -> Operation:
        kind = data.draw(st.sampled_from(["acquire", "again", "renew", "release", "abandon", "look"]))
        if kind == "acquire":
            key, owner = data.draw(_KEYS), data.draw(_OWNERS)
            return Acquire(self.new_claim(key, ttl=self.seconds(8), owner=owner))
        claim = self.claim(data.draw(_RECENT))
        match kind:
            case "again":
                return Acquire(claim)
            case "renew":
                return Renew(claim.key, claim.token, self.seconds(3), data.draw(st.integers(0, 6)))
            case "release":
                return Release(claim.key, claim.token, late=data.draw(st.booleans()))
            case "abandon":
                return Abandon(claim.key, claim.token, data.draw(_HEARD))
            case _:
                return Look(claim.key, claim.token)

    # Time and restarts

    def pass_time(self, seconds: float) -> None:
        """Let time pass for store and model."""
        if seconds > 0 and self.world.move:
            self.now += seconds
            self.world.move(seconds)

    @rule(steps=st.sampled_from([1, 1, 2, 3, 8, 40, 100_000]))
    def advance(self, *, steps: int) -> None:
        """Some time passes."""
        self.pass_time(self.seconds(steps))

    @rule(which=st.integers(0, 20), off=st.sampled_from([-1, 0, 0, 0, 1]))
    def advance_to_an_edge(self, *, which: int, off: int) -> None:
        """Time passes to the very instant at which something ends, or to a tick before or after it."""
        edges = {mark.until for mark in self.state.marks.values()}
        for record in self.state.records.values():
            edges |= {record.expires_at, record.free_at, record.deadline}
        ahead = sorted(edge for edge in edges if self.now < edge < self.now + MAX_TTL / 2)
        if ahead:
            self.pass_time(ahead[which % len(ahead)] + off * self.tick - self.now)

    @rule(key=_KEYS, edge=st.sampled_from(["expires_at", "deadline", "free_at"]), forced=st.booleans())
    def outlive(self, *, key: int, edge: str, forced: bool) -> None:
        """Time passes to the end of what is known of a key, its last holder asks, and somebody may force the key."""
        record = self.state.records.get(self.keys[key])
        if record and record.token and getattr(record, edge) < self.now + MAX_TTL / 2:
            self.pass_time(getattr(record, edge) - self.now)
            self.tell(Look(record.key, record.token))
            if forced:
                self.tell(ForceRelease(record.key))
                self.tell(Acquire(self.new_claim(key, ttl=self.seconds(3))))

    @precondition(lambda self: self.exact)
    @rule(seconds=st.sampled_from([-3_600.0, -0.5, 0.5, 3_600.0]))
    def set_the_wall_clock(self, *, seconds: float) -> None:
        """Somebody sets the clock on the wall; the store's own time goes on as it was."""
        if self.world.clock:
            self.world.clock.set_wall(self.world.clock.wall() + seconds)
            self.unknown = {"acquired_at"}

    @rule()
    def use_another_client(self) -> None:
        """The next calls come from another client of the same data."""
        self.client = self.driver.run(self._another())

    @precondition(lambda self: self.world.lasting)
    @rule()
    def restart(self) -> None:
        """The client goes away; a new one finds everything as it was."""
        self.driver.run(self.client.close())
        self.client = self.driver.run(self._another())

    async def _another(self) -> Store:
        return self.world.another()

    @invariant()
    def keys_are_shown_as_they_are(self) -> None:
        """The key that was spoken of last is shown as the model has it, so that nothing changed unseen."""
        if self.claims:
            self.tell(ShowStatus(self.claims[-1].key))

    @invariant()
    def storage_is_bounded(self) -> None:
        """The store keeps at most one record for a key and one mark for a token that ended."""
        if self.world.size:
            most = len(self.keys) + len(self.state.marks)
            found = self.world.size()
            if found > most:
                raise Disagreement(f"the store keeps {found} entries where {most} can be needed")


def agree(place: Place, *, examples: int, steps: int = 60, name: str = "", **more: Any) -> None:
    """Compare the store of this place with the model in so many runs; the first disagreement is raised, made small.

    Runs under another `name` are other runs. `more` goes to `hypothesis.settings`.
    """
    for part in range(-(-examples // _ALIKE)):
        title = f"Agreement_{place.store}_{place.face.name}_{name}{part}"
        machine = type(title, (Agreement,), {"place": place})
        chosen = settings(max_examples=min(_ALIKE, examples - part * _ALIKE), stateful_step_count=steps, **more)
        run_state_machine_as_test(machine, settings=chosen)
