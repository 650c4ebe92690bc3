"""Looks back at what the service answered: which holds there were, and what went on. Never on the way of an answer.

Whoever answers only leaves a note. The notes are read a moment later, many at once, and become counts, the history of
each key and the overview of each project. What cannot be kept is lost and told in the log: no lock is refused for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from leased.errors import AccessDenied, LeasedError, RateLimited, StoreUnavailable, Unauthenticated
from leased.model import (
    Abandon,
    Acquire,
    Claim,
    Contended,
    Held,
    Lease,
    Look,
    Lost,
    Operation,
    Release,
    Released,
    Renew,
)
from leased.server.contention import Contention
from leased.server.holds import End, HoldEnd, HoldsKept, PastHold, Room
from leased.server.metrics import Metrics
from leased.server.outcomes import ACTIONS, WORDS, Outcome
from leased.server.overview import INTERVAL, Count, Overview
from leased.server.settings import Settings
from leased.server.tenancy import key_in, shown_owner

EVERY = 1.0
"""Seconds between two readings of the notes, and two writes of history."""

MOST_NOTES = 100_000
"""Notes that are kept until then; where more come, the oldest are lost."""

MOST_OPEN = 100_000
"""Holds that are watched at once; the end of those that were watched longest is not seen."""

MOST_FOLLOWED = 500
"""Notes that are followed at once. Where more come in a second, only the holds of some keys are, or it would take time
from answering; counted are all."""

MOST_BEGUN = 5_000
"""Holds that are written at once; where more begin in a second, the first are lost."""

_AT_ONCE = 200  # notes between which others may run
_ASKING_AGAIN = 30.0  # seconds after which a claim that was told to ask again is a new one
_AGAIN = "taken again by its owner"
log = logging.getLogger("leased.server.journal")


@dataclass(frozen=True, slots=True)
class Forced:
    """A hold that was ended by force: the one with this number, or whichever there was."""

    key: str
    fencing_token: int | None
    reason: str


Note: TypeAlias = tuple[str, Operation | Forced, Outcome, float]
"""Project, what was asked, what came of it, and when, in seconds since the epoch."""


class _Open:
    """A hold whose end nobody has seen yet. It keeps nothing of the token that others could use."""

    __slots__ = (
        *("began", "end", "ended_at", "fencing_token", "held_by", "key", "mark", "owner", "project", "reason"),
        *("token", "until", "waited", "written"),
    )

    def __init__(self, project: str, lease: Lease, *, at: float) -> None:
        self.project = project
        self.key = lease.key
        self.token = hash(lease.token)
        self.mark = _mark(lease.key, lease.token)
        self.fencing_token = lease.fencing_token
        self.owner = lease.owner
        self.until = at + lease.left
        self.began: float | None = None  # where others have seen that
        self.held_by = ""
        self.waited = 0.0
        self.ended_at: float | None = None
        self.end: End | None = None
        self.reason = ""
        self.written = True

    def past(self) -> PastHold:
        """As it is kept."""
        return PastHold(
            self.project,
            key_in(self.project, self.key),
            self.mark,
            self.fencing_token,
            self.held_by,
            shown_owner(self.owner),
            self.began or 0.0,
            self.waited,
            self.until,
            self.ended_at,
            self.end,
            self.reason,
        )


class Journal:
    """All of one process. `wall` gives seconds since the epoch, `kept` is where history is written, if it is."""

    def __init__(
        self,
        settings: Settings,
        *,
        wall: Callable[[], float],
        metrics: Metrics,
        overview: Overview,
        contention: Contention,
        kept: HoldsKept | None,
    ) -> None:
        self._metrics = metrics
        self.overview = overview
        self.contention = contention
        self.kept = kept if settings.history and settings.history_total else None
        self._room = Room(settings.history, settings.history_total)
        self._wall = wall
        self._notes: deque[Note] = deque(maxlen=MOST_NOTES)
        self.note = self._notes.append
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._held: Counter[str] = Counter()
        self._ends: list[tuple[float, str]] = []  # when which of them ends at the earliest
        self._asking: OrderedDict[str, tuple[float, float]] = OrderedDict()  # since when, and when last
        self._begun: deque[_Open] = deque(maxlen=MOST_BEGUN)
        self._ended: deque[HoldEnd] = deque(maxlen=MOST_BEGUN)
        self._failed = False
        self._rolls_at = wall() + INTERVAL
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._over = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Read notes from now on."""
        if self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._read_on())

    async def close(self) -> None:
        """Read and write what is left."""
        self._over.set()
        if self._reader is not None:
            await self._reader
            await self._catch_up_if_possible()

    def refused(self, project: str, error: LeasedError) -> None:
        """A request of a project was answered with an error."""
        if isinstance(error, StoreUnavailable | Unauthenticated):
            return
        limited = isinstance(error, RateLimited)
        what: Count = "limited" if limited else "denied" if isinstance(error, AccessDenied) else "rejected"
        self.overview.count(project, what)

    async def read(self) -> None:
        """Read all notes that there are."""
        async with self._reading:  # in their order
            notes, left = tuple(self._notes), MOST_FOLLOWED
            self._notes.clear()
            thin = 1 + len(notes) // MOST_FOLLOWED
            for at in range(0, len(notes), _AT_ONCE):
                some = notes[at : at + _AT_ONCE]
                self._count(some)
                chosen = some if thin == 1 else self._choose(some, thin=thin, most=left)
                left -= len(chosen)
                for note in chosen:
                    self._follow(note)
                await asyncio.sleep(0)

    async def catch_up(self) -> None:
        """Read all notes that there are, and write what is to be kept."""
        await self.read()
        now = self._wall()
        self.contention.look(now)
        self._notice_ends(now)
        if self._rolls_at - now > INTERVAL:  # the clock was set back
            self._rolls_at = now
        if now >= self._rolls_at:
            self._rolls_at = max(self._rolls_at, now - INTERVAL) + INTERVAL
            self.overview.roll(now, held=self._held)
        async with self._writing:  # an end that overtook its begin would be lost
            await self._write()

    async def _read_on(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), EVERY)
            await self._catch_up_if_possible()

    async def _catch_up_if_possible(self) -> None:
        try:
            await self.catch_up()
        except Exception:
            log.exception("what was done with locks could not be noted")

    def _count(self, some: Sequence[Note]) -> None:
        projects, operations, outcomes, _ = zip(*some, strict=True)
        came = Counter(zip(projects, map(type, operations), map(type, outcomes), strict=True))
        for (project, kind, outcome), number in came.items():
            if kind is Forced:
                self.overview.count(project, "forced", number=number)
            elif outcome is not Released:
                self._metrics.count(ACTIONS[kind], WORDS[outcome], number=number)
            if kind is Acquire:
                self.overview.count(project, "acquired" if outcome is Held else "contended", number=number)
        vain = [one.claim.key for _, one, outcome, _ in some if type(outcome) is Contended and type(one) is Acquire]
        if vain:
            self.contention.count(Counter(vain), at=some[-1][3])
        reasons = Counter([outcome.reason for outcome in outcomes if type(outcome) is Released])
        for reason, number in reasons.items():
            self._metrics.count("release", reason or "released", number=number)

    def _choose(self, some: Sequence[Note], *, thin: int, most: int) -> Sequence[Note]:
        """Of many notes those of one in so many keys, and of those that are watched; of no others anything is known."""
        watched = self._open
        chosen: list[Note] = []
        for note in some:
            operation = note[1]
            key = operation.claim.key if isinstance(operation, Acquire) else operation.key
            if key in watched or not hash(key) % thin:
                if len(chosen) < most:
                    chosen.append(note)
                elif key in watched:
                    self._forget(watched[key])
        self.overview.skips = True
        return chosen

    def _follow(self, note: Note) -> None:
        project, operation, outcome, at = note
        if isinstance(operation, Acquire):
            if isinstance(outcome, Held):
                self._granted(project, operation.claim, outcome.lease, at=at)
            elif isinstance(outcome, Contended) and outcome.waited > 0 and operation.claim.late:
                self._asks_again(operation.claim, outcome.waited, at=at)
        elif isinstance(operation, Forced):
            self._forced(project, operation, at=at)
        elif isinstance(operation, Release):
            if isinstance(outcome, Released) and outcome.reason != "not_holder":
                self._ended_with(project, operation, end="expired" if outcome.reason else "released", at=at)
        elif isinstance(operation, Renew | Look):
            if isinstance(outcome, Held):
                self._goes_on(project, outcome.lease, at=at)
            elif isinstance(outcome, Lost) and outcome.reason == "expired":
                self._ended_with(project, operation, end="expired", at=at)
        elif operation.heard is None and self._known(operation) is not None:  # else the store may have spared it
            self._ended_with(project, operation, end="abandoned", at=at)

    def _known(self, operation: Renew | Look | Release | Abandon) -> _Open | None:
        """The hold that this token proves, if it is watched."""
        found = self._open.get(operation.key)
        return found if found is not None and found.token == hash(operation.token) else None

    def _granted(self, project: str, claim: Claim, lease: Lease, *, at: float) -> None:
        before = self._open.get(lease.key)
        if before is not None:
            if before.token == hash(lease.token):  # told once more
                before.until = at + lease.left
                return
            if before.until <= at:
                self._end(before, at=before.until, end="expired")
            else:
                again = lease.owner is not None and lease.owner == before.owner
                self._end(before, at=at, end="released", reason=_AGAIN if again else "")
        waited = lease.waited
        if self._asking and claim.late:
            waited = max(waited, at - self._asking.pop(_mark(claim.key, claim.token), (at, at))[0])
        self.overview.waited(project, waited)
        one = _Open(project, lease, at=at)
        one.began = at - max(lease.ttl - lease.left, 0.0)
        one.held_by = claim.terms.held_by
        one.waited = waited
        if self.kept is not None:
            one.written = False
            self._begun.append(one)
        self._watch(one)

    def _goes_on(self, project: str, lease: Lease, *, at: float) -> None:
        """A lease is held: one that was granted elsewhere is watched from here on, too."""
        found = self._open.get(lease.key)
        if found is not None and found.token == hash(lease.token):
            found.until = at + lease.left
        elif found is not None and found.fencing_token < lease.fencing_token:
            self._end(found, at=min(at, found.until), end="expired" if found.until <= at else "released")
            self._watch(_Open(project, lease, at=at))
        elif found is None:
            self._watch(_Open(project, lease, at=at))

    def _ended_with(self, project: str, operation: Renew | Look | Release | Abandon, *, end: End, at: float) -> None:
        """The hold of a token ended, whoever has seen its begin."""
        found = self._known(operation)
        if found is not None:
            self._end(found, at=min(at, found.until) if end == "expired" else at, end=end)
        elif self.kept is not None and end != "expired":  # it was over by now: when, its last renewal has said
            key = key_in(project, operation.key)
            self._ended.append(HoldEnd(project, key, _mark(operation.key, operation.token), 0, at, end))

    def _forced(self, project: str, forced: Forced, *, at: float) -> None:
        found, number = self._open.get(forced.key), forced.fencing_token
        if found is not None and number in (None, found.fencing_token):
            self._end(found, at=at, end="force_released", reason=forced.reason)
        elif number is not None and self.kept is not None:
            key = key_in(project, forced.key)
            self._ended.append(HoldEnd(project, key, "", number, at, "force_released", forced.reason))

    def _watch(self, one: _Open) -> _Open:
        self._open[one.key] = one
        self._held[one.project] += 1
        if len(self._open) > MOST_OPEN:
            self._forget(next(iter(self._open.values())))
        heapq.heappush(self._ends, (one.until, one.key))
        if len(self._ends) > 2 * len(self._open) + _AT_ONCE:  # most are of holds that have ended
            self._ends = [(held.until, key) for key, held in self._open.items()]
            heapq.heapify(self._ends)
        return one

    def _forget(self, one: _Open) -> None:
        del self._open[one.key]
        self._held[one.project] -= 1
        if not self._held[one.project]:
            del self._held[one.project]

    def _end(self, one: _Open, *, at: float, end: End, reason: str = "") -> None:
        self._forget(one)
        if one.began is not None:
            self.overview.ended(one.project, held=max(at - one.began, 0.0))
        one.ended_at, one.end, one.reason = at, end, reason
        if one.written and self.kept is not None:
            key = key_in(one.project, one.key)
            self._ended.append(HoldEnd(one.project, key, one.mark, one.fencing_token, at, end, reason))

    def _notice_ends(self, now: float) -> None:
        """Leases run out unseen; those that were renewed meanwhile are looked at again when they would."""
        while self._ends and self._ends[0][0] <= now:
            key = heapq.heappop(self._ends)[1]
            found = self._open.get(key)
            if found is not None and found.until > now:
                heapq.heappush(self._ends, (found.until, key))
            elif found is not None:
                self._end(found, at=found.until, end="expired")

    def _asks_again(self, claim: Claim, waited: float, *, at: float) -> None:
        """Remember since when it waits: a long wait takes several requests."""
        while self._asking and (len(self._asking) >= MOST_BEGUN or self._oldest() < at - _ASKING_AGAIN):
            self._asking.popitem(last=False)
        mark = _mark(claim.key, claim.token)
        since, _ = self._asking.pop(mark, (at - waited, at))
        self._asking[mark] = since, at

    def _oldest(self) -> float:
        return next(iter(self._asking.values()))[1]

    async def _write(self) -> None:
        if self.kept is None or not (self._begun or self._ended):
            return
        begun = [one.past() for one in self._begun]
        ended = tuple(self._ended)
        for one in self._begun:
            one.written = True
        self._begun.clear()
        self._ended.clear()
        try:
            await self.kept.write_holds(begun, ended, room=self._room)
            self._failed = False
        except LeasedError as error:
            if not self._failed:
                log.warning("the history of holds is not written until the registry takes it: %s", error.message)
            self._failed = True


def _mark(key: str, token: str) -> str:
    """By which a hold is known wherever history is kept. Nobody can make the token of it."""
    return hashlib.sha256(f"{key}\0{token}".encode(errors="surrogatepass")).hexdigest()[:24]
