"""Small-scope exhaustion: every order of a few calls of two clients on one key of the memory store, whatever a
network does to them. Nothing is drawn by chance.

Each call is a message that arrives now, later, twice or never; its answer may be lost; time passes in steps. What the
clients believe follows from the answers they have seen, as the policy says. In every state reached promises are judged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

from leased.clocks import step
from leased.model import Abandon, Acquire, Claim, Held, Operation, Release, Renew
from leased.policy import valid_until
from leased.store import one
from leased.stores.memory import MemoryStore, _digest, _Record
from leased.testing.clocks import MovableClock
from leased.testing.ledger import Hold, Ledger, PromiseBroken

OPERATIONS, PASSES = 3, 3
"""How many calls are made, and how many times a step of time passes, in the longest of all runs."""

KEY, TTL, STEP = "k", 2.0, 1.25
CLAIMS = (Claim(KEY, "first", TTL, late=True), Claim(KEY, "second", TTL, owner="run", late=True))
_TOKENS = {_digest(claim.token): number for number, claim in enumerate(CLAIMS)}


class Message(NamedTuple):
    """A call on its way: of which client, what, when it was sent, and whether it has arrived once already."""

    client: int
    kind: str
    number: int
    sent_at: float
    arrived: bool

    def operation(self) -> Operation:
        """As the store understands it."""
        claim = CLAIMS[self.client]
        match self.kind:
            case "acquire":
                return Acquire(claim)
            case "renew":
                return Renew(KEY, claim.token, TTL, self.number)
            case "release":
                return Release(KEY, claim.token, late=True)
            case _:
                return Abandon(KEY, claim.token)


class Belief(NamedTuple):
    """What a client holds to be true: until when it has the key, the number of its last renewal, and whether it is done
    with the claim."""

    until: float = 0.0
    renewal: int = 0
    done: bool = False


class State(NamedTuple):
    """Everything there is: equal states have the same future."""

    now: float
    calls: int
    flying: tuple[Message, ...]
    beliefs: tuple[Belief, ...]
    record: tuple[Any, ...] | None
    marks: tuple[Any, ...]
    last: int
    judged: tuple[Any, ...]


class Exhaustion:
    """Goes through all states. `step_through` raises `PromiseBroken` at the first that breaks a promise."""

    def __init__(self, *, operations: int = OPERATIONS, passes: int = PASSES) -> None:
        self.operations = operations
        self.passes = passes
        clock = MovableClock(flowing=False)
        self._began = clock.now()
        self._store = MemoryStore(clock)
        self._ledger = Ledger()

    def step_through(self) -> int:
        """How many different states there are."""
        first = State(0.0, 0, (), (Belief(), Belief()), None, (), 0, ((), (), ()))
        seen, waiting = {first}, [first]
        while waiting:
            for state in self._after(waiting.pop()):
                if state not in seen:
                    self._judge_beliefs(state)
                    seen.add(state)
                    waiting.append(state)
        return len(seen)

    def _after(self, state: State) -> Iterator[State]:
        """All that can happen next. A message that is lost is one that nothing more happens to."""
        if state.now < self.passes * STEP:
            yield state._replace(now=state.now + STEP)
        if state.calls < self.operations:
            for client in range(len(CLAIMS)):
                yield from self._calls(state, client)
        for place, message in enumerate(state.flying):
            rest = state.flying[:place] + state.flying[place + 1 :]
            if message.arrived:
                yield self._arrive(state, message, rest)[0]
                continue
            again = tuple(sorted((*rest, message._replace(arrived=True))))
            after, answer = self._arrive(state, message, again)
            yield after
            yield self._hear(after, message, answer)

    def _calls(self, state: State, client: int) -> Iterator[State]:
        belief = state.beliefs[client]
        if belief.done:
            return
        believes = state.now < belief.until
        if believes:
            number = belief.renewal + 1
            renewing = belief._replace(renewal=number)
            yield self._send(state, Message(client, "renew", number, state.now, arrived=False), renewing)
            yield self._send(state, Message(client, "release", 0, state.now, arrived=False), Belief(done=True))
        else:
            yield self._send(state, Message(client, "acquire", 0, state.now, arrived=False), belief)
            yield self._send(state, Message(client, "abandon", 0, state.now, arrived=False), Belief(done=True))

    def _send(self, state: State, message: Message, belief: Belief) -> State:
        flying = tuple(sorted((*state.flying, message)))
        beliefs = (*state.beliefs[: message.client], belief, *state.beliefs[message.client + 1 :])
        return state._replace(calls=state.calls + 1, flying=flying, beliefs=beliefs)

    def _arrive(self, state: State, message: Message, flying: tuple[Message, ...]) -> tuple[State, Any]:
        """The store executes a call, and its answer is judged."""
        self._enter(state)
        operation = message.operation()
        answer: Any = step(one(self._store, operation, timeout=1.0))
        self._ledger.saw(operation, answer, now=self._began + state.now)
        return self._leave(state._replace(flying=flying)), answer

    def _hear(self, state: State, message: Message, answer: Any) -> State:
        """The client gets the answer; one that is done with its claim does not care."""
        belief = state.beliefs[message.client]
        if belief.done or message.kind in ("release", "abandon"):
            return state
        until = 0.0
        if isinstance(answer, Held):
            until = max(belief.until, valid_until(message.sent_at, waited=0.0, left=answer.lease.left))
            if message.kind == "renew" and message.number < belief.renewal:
                until = belief.until
        belief = belief._replace(until=until)
        beliefs = (*state.beliefs[: message.client], belief, *state.beliefs[message.client + 1 :])
        return state._replace(beliefs=beliefs)

    def _judge_beliefs(self, state: State) -> None:
        """SAFE3: who believes is held to be the holder by the store; so no two believe at once (SAFE1)."""
        for client, belief in enumerate(state.beliefs):
            if state.now < belief.until:
                record = state.record
                holder = _TOKENS.get(record[0]) if record is not None and record[0] is not None else None
                if record is None or holder != client or state.now + self._began >= record[_EXPIRES]:
                    raise PromiseBroken(f"SAFE3: client {client} believes to hold the key, and the store has {record}")

    def _enter(self, state: State) -> None:
        store, ledger = self._store, self._ledger
        store.offset = state.now
        store._records = OrderedDict()
        if state.record is not None:
            record = store._records[KEY] = _Record.__new__(_Record)
            for name, value in zip(_NAMES, state.record, strict=True):
                setattr(record, name, value)
        store._marks, store._last_fencing_token = OrderedDict(state.marks), state.last
        holds, numbers, refused = state.judged
        ledger._holds = {KEY: Hold(CLAIMS[holds[0][0]], *holds[0][1:])} if holds else {}
        ledger._numbers, ledger._refused_until = dict(numbers), dict(refused)

    def _leave(self, state: State) -> State:
        store, ledger = self._store, self._ledger
        found = store._records.get(KEY)
        holds = tuple((CLAIMS.index(hold.claim), hold.number, hold.until, hold.late) for hold in ledger._holds.values())
        return state._replace(
            record=None if found is None else tuple(getattr(found, name) for name in _NAMES),
            marks=tuple(sorted(store._marks.items())),
            last=store._last_fencing_token,
            judged=(holds, tuple(ledger._numbers.items()), tuple(sorted(ledger._refused_until.items()))),
        )


_NAMES = ("token", *(name for name in _Record.__slots__ if name != "token"))
_EXPIRES = _NAMES.index("expires_at")
