"""The judge at the store: compares every answer with the contract, in the store's time. It never changes an answer."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace

from leased.errors import LeasedError
from leased.model import Abandon, Acquire, Contended, Held, Look, Lost, Release, Released, Renew, Status
from leased.policy import MAX_FENCING_TOKEN
from leased.store import Outcome
from leased.testing.model import Answer, Command, ForceRelease, Record, State, outcomes, step
from leased.testing.simulation.history import History

_TOLERANCE = 1e-5


class Judge:
    """Knows, from the answers alone, who holds what; breaks the run off at the first answer outside the contract.

    `announced` are tokens that a client held although an attempt of theirs went unanswered: the store was to be told of
    it, so that no late copy of the attempt is granted later. A restart that loses grants takes the judge back to an
    earlier state, but never lets fencing tokens go back.
    """

    def __init__(self, history: History) -> None:
        self.state = State(numbers="store")
        self.freed: set[str] = set()
        self.forced: set[str] = set()
        self.abandoned: set[str] = set()
        self.granted: dict[str, float] = {}
        self.excused: set[str] = set()
        self.announced: set[str] = set()
        self._history = history
        self._highest: dict[str, int] = {}
        self._states = [self.state]

    def record(self, key: str) -> Record | None:
        """The last lease of the key."""
        return self.state.records.get(key)

    def holds(self, key: str, token: str, *, now: float) -> bool:
        """Whether the store holds the key for this token at this instant of its clock."""
        record = self.state.records.get(key)
        return record is not None and record.held_by(token, now)

    def saw(self, command: Command, answer: Outcome | Answer, *, now: float, wall: float) -> None:
        """The store answered this command at that instant."""
        before = self.state
        for state, allowed in outcomes(before, now, wall, command):
            if _alike(answer, allowed):
                self.state = _settled(state, command, before=before, now=now)
                self._states.append(self.state)
                self._note(command, answer, before=before, now=now)
                return
        _, expected = next(iter(outcomes(before, now, wall, command)))
        promise = _promise(before, command, answer, now=now, wall=wall)
        self._history.break_off(promise, f"{command}: the store answered {answer}, the contract says {expected}")

    def take_back(self, count: int) -> None:
        """The store forgot everything but the first `count` commands; what was known of tokens binds nobody now."""
        if count + 1 < len(self._states):
            self.state = self._states[count]
            del self._states[count + 1 :]
            self.excused.update(self.granted, self.abandoned)

    def _note(self, command: Command, answer: Outcome | Answer, *, before: State, now: float) -> None:
        match command, answer:
            case Acquire(claim), Held(lease):
                record = before.records.get(claim.key)
                if record is not None and record.held_by(claim.token, now):
                    return
                self._granted(claim.key, lease.fencing_token)
                if claim.token in self.granted and claim.token in self.announced - self.excused:
                    self._history.break_off("SAFE5", f"a late copy of {claim.token} was granted after its hold")
                self.granted[claim.token] = now
                if record is not None and record.held(now) and record.token is not None:
                    self.forced.add(record.token)
            case Release(_, token), Released(""):
                self.freed.add(token)
            case Abandon(_, token), _:
                self.abandoned.add(token)
            case ForceRelease(key), True:
                token_before = before.records[key].token
                if token_before is not None:
                    self.forced.add(token_before)
            case _:
                pass

    def _granted(self, key: str, number: int) -> None:
        """Fencing tokens of a key rise for ever, whatever the store forgot in between."""
        if not self._highest.get(key, 0) < number <= MAX_FENCING_TOKEN:
            self._history.break_off("SAFE2", f"{key!r} was granted with {number} after {self._highest.get(key)}")
        self._highest[key] = number


def _settled(state: State, command: Command, *, before: State, now: float) -> State:
    """A key that this command opened stays open, even if the store's clock is set back afterwards."""
    if not isinstance(command, Release | Abandon | ForceRelease):
        return state
    record = state.records.get(command.key)
    if record is None or record is before.records.get(command.key) or record.held(now) or record.closed(now):
        return state
    return state.put(replace(record, token=None, free_at=-math.inf))


def _alike(answer: object, expected: object) -> bool:
    """Equal, up to the rounding of times; an open key may be shown as nothing."""
    if answer == expected:
        return True
    if isinstance(answer, float) and isinstance(expected, float):
        return math.isclose(answer, expected, rel_tol=0.0, abs_tol=_TOLERANCE)
    if isinstance(answer, list) and isinstance(expected, list):
        return len(answer) == len(expected) and all(map(_alike, answer, expected))
    if isinstance(expected, Status) and answer is None:
        return not expected.held
    if type(answer) is not type(expected):
        return False
    if is_dataclass(answer) and not isinstance(answer, type):
        return all(_alike(getattr(answer, name), getattr(expected, name)) for name in _names(type(answer)))
    return False


_NAMES: dict[type, tuple[str, ...]] = {}


def _names(kind: type) -> tuple[str, ...]:
    if kind not in _NAMES:
        _NAMES[kind] = tuple(field.name for field in fields(kind))
    return _NAMES[kind]


def _promise(state: State, command: Command, answer: Outcome | Answer, *, now: float, wall: float) -> str:
    """Which promise an answer outside the contract breaks."""
    match command, answer:
        case _, LeasedError():
            return "S2"
        case Acquire(claim), Held(lease):
            record = state.records.get(claim.key)
            if record is not None and record.held_by(claim.token, now):
                return "SAFE7"
            if state.marked(claim.token, now) or (record is not None and record.token == claim.token):
                return "SAFE5"
            if record is not None and record.held(now) and (claim.owner is None or claim.owner != record.owner):
                return "SAFE1"
            if record is not None and record.closed(now):
                return "SAFE13"
            _, expected = step(state, now, wall, command)
            right = isinstance(expected, Held) and expected.lease.fencing_token == lease.fencing_token
            return "M8" if right else "SAFE2"
        case Acquire(claim), Contended(status):
            record = state.records.get(claim.key)
            if record is None or not record.held(now):
                return "LIVE1" if record is not None and record.token is not None else "SAFE6"
            if record.token == claim.token:
                return "SAFE7"
            if claim.owner is not None and record.owner == claim.owner:
                return "SAFE9"
            return "M11" if status is not None and status.state == "held" else "SAFE6"
        case Renew(key, token), Held():
            record = state.records.get(key)
            if record is None or not record.held_by(token, now):
                return "SAFE5" if record is not None and record.token == token else "SAFE4"
            return "SAFE8"
        case Release(), Released():
            return "SAFE4" if answer else "SAFE11"
        case Renew(key, token) | Look(key, token), Lost():
            record = state.records.get(key)
            return "SAFE6" if record is not None and record.held_by(token, now) else "H2"
        case ForceRelease(), _:
            return "SAFE10"
        case _:
            return "M11"
