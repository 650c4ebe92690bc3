"""The line of local waiters per key: only the front one asks the store. It never grants anything itself."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from leased.errors import LeasedError
from leased.model import Claim, Status
from leased.policy import POLL_MAX
from leased.store import Clock, Store

_CANCEL_TICK = 0.05
_CANCEL_LOOK = 2.0
_SHORTEST_NAP = 0.001


class Line:
    """Those who wait for one key in this process, in order of arrival, and what is known of its holder."""

    __slots__ = ("places", "seen", "unwatch", "watching")

    def __init__(self) -> None:
        self.places: deque[Place] = deque()
        self.seen: Status | None = None
        self.watching = False
        self.unwatch: Callable[[], None] | None = None


class Lines:
    """All lines of one store in this process, and the owners whose blocks are running or whose claims are asked.

    Threads and tasks of any loop may share it: the mutex guards the data and is never held over an `await`.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._lines: dict[str, Line] = {}
        self._reserved: dict[tuple[str, str], object] = {}  # by a place that asks, or a hold whose block runs

    def released(self, key: str) -> None:
        """A lease on this key ended here, or a bell says so: wake whoever is first."""
        if self._lines:
            with self._mutex:
                line = self._lines.get(key)
                if line is not None:
                    self._wake_front(line)

    def block_began(self, key: str, owner: str | None, *, hold: object) -> None:
        """A block begins under a hold that was bare until now: other claims of its owner stay out from here on."""
        if owner is not None:
            with self._mutex:
                self._reserved.setdefault((key, owner), hold)

    def block_ended(self, key: str, owner: str | None, *, hold: object) -> None:
        """The block that ran under this hold was left: other claims of its owner may be asked again."""
        if owner is not None:
            with self._mutex:
                if self._reserved.get((key, owner)) is hold:
                    self._free(key, owner)

    def waiting(self, key: str) -> int:
        """How many wait for this key in this process."""
        with self._mutex:
            line = self._lines.get(key)
            return len(line.places) if line is not None else 0

    def _free(self, key: str, owner: str) -> None:
        """The owner may ask again. Those who wait are told first: after an interrupt in between, this comes again."""
        if key in self._lines:
            for place in self._lines[key].places:
                if place.owner == owner:
                    place.signal.set()
        self._reserved.pop((key, owner), None)

    def _barred(self, place: Place) -> bool:
        """Whether another claim of the same owner is being asked, or its block runs, in this process."""
        return place.owner is not None and self._reserved.get((place.key, place.owner), place) is not place

    def _front(self, line: Line) -> Place | None:
        """Who may ask: the first that is not barred, so that nobody waits behind a block that has lost its lease."""
        return next((place for place in line.places if not self._barred(place)), None)

    def _wake_front(self, line: Line) -> None:
        front = self._front(line)
        if front is not None:
            front.signal.set()


class Place:
    """Where one claim stands: outside the line, unless it joins that. `leave` must follow, whatever happens."""

    called = False
    _line: Line | None = None
    _reserves = False
    _block: object | None = None  # for which the owner was reserved last

    def __init__(
        self,
        lines: Lines,
        claim: Claim,
        *,
        clock: Clock,
        waiting: bool,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self.key = claim.key
        self.owner = claim.owner
        self._lines = lines
        self._clock = clock
        self._cancelled = cancelled
        if waiting:
            self.signal = clock.signal()

    @property
    def seen(self) -> Status | None:
        """What the line knows of the holder."""
        return self._line.seen if self._line is not None else None

    def join(self) -> None:
        """Stand in the line, as whoever waits. `leave` undoes as much of it as was done before an interrupt."""
        lines = self._lines
        with lines._mutex:
            line = self._line = lines._lines.get(self.key) or Line()
            lines._lines[self.key] = line
            line.places.append(self)
            self._call(line)

    async def turn(self, give_up_at: float) -> bool:
        """Wait until this claim may ask the store; false when that did not come in time, or was cancelled."""
        while not self.may_ask():
            left = give_up_at - self._clock.now()
            if left <= 0 or self._line is None or self.given_up():
                return False
            await self._wait(min(left, POLL_MAX))
        return True

    async def rest(self, store: Store, status: Status | None, *, nap: float, left: float, least: float = 0.0) -> None:
        """Until the next attempt: a signal, a bell, the holder's expiry, or the nap, but for at least so many seconds;
        the first one starts the watch."""
        line = self._line
        if line is None:  # a single try: it has no time to rest
            return
        now = self._clock.now()
        until, not_before = now + min(nap, left), now + min(least, left)
        self.called = False
        if status is not None:
            self._note(line, status)
            if status.free_in is not None:
                until = min(until, now + status.free_in)
        until = max(until, not_before)
        if not line.watching:
            line.watching = True
            self._clock.start(self._watch(store, line))
        while (nap := until - self._clock.now()) > 0 and not self.given_up():
            if await self._wait(max(nap, _SHORTEST_NAP)) and self._clock.now() >= not_before:
                return

    def patience(self, left: float) -> float:
        """How long the store may keep this claim in a line of its own: where the caller's event may end the wait, that
        is looked at in between."""
        return max(left, 0.0) if self._cancelled is None else min(max(left, 0.0), _CANCEL_LOOK)

    def given_up(self) -> bool:
        """Whether the caller's own event ended the wait."""
        return self._cancelled is not None and self._cancelled()

    def leave(self, *, block_of: object | None = None) -> None:
        """Leave the line, and let the next one ask. `block_of`: the hold whose block begins: its owner stays out."""
        lines, line = self._lines, self._line
        if line is None:
            if self._reserves:
                with lines._mutex:
                    self._end_reserving(block_of)
            return
        with lines._mutex:
            front = lines._front(line) in (self, None)  # before its own block bars it
            self._end_reserving(block_of)
            if self in line.places:
                line.places.remove(self)
            if not line.places:
                lines._lines.pop(self.key, None)
            elif front:
                lines._wake_front(line)
        if not line.places and line.unwatch is not None:
            line.unwatch()
        self._line = None

    def _end_reserving(self, block_of: object | None) -> None:
        """The claim is asked no more; the owner stays reserved for a block. The mutex is held."""
        if self._reserves and self.owner is not None:
            found = self._lines._reserved.get((self.key, self.owner))
            if block_of is not None:
                self._block = block_of  # noted first, for an interrupt may follow
                self._lines._reserved[self.key, self.owner] = block_of
            elif found is self or (found is not None and found is self._block):  # else it was freed before an interrupt
                self._lines._free(self.key, self.owner)
                self._reserves = False

    def may_ask(self) -> bool:
        """Whether this claim may ask the store now; if so, other claims of its owner may not until it leaves."""
        lines, line, owner = self._lines, self._line, self.owner
        if line is None and owner is None:
            return True
        with lines._mutex:
            if line is not None and not self.called and lines._front(line) is not self:
                return False
            if owner is not None:
                if lines._reserved.get((self.key, owner), self) is not self:
                    return False
                lines._reserved[self.key, owner] = self  # with no call before it is noted, for an interrupt follows one
                self._reserves = True
            return True

    async def _wait(self, seconds: float) -> bool:
        if self._cancelled is not None:
            seconds = min(seconds, _CANCEL_TICK)
        return await self.signal.wait(seconds)

    async def _watch(self, store: Store, line: Line) -> None:
        """Watch for the whole line, then let the front ask again: it sees what was released before the watch began.

        A watch that fails or hangs neither ends nor prolongs a wait: polling goes on beside it.
        """
        unwatch: Callable[[], None] | None = None
        try:
            with suppress(LeasedError):
                unwatch = await store.watch(self.key, lambda: self._lines.released(self.key))
        finally:
            with self._lines._mutex:
                gone = not line.places
                line.watching = unwatch is not None
                line.unwatch = unwatch
        if gone and unwatch is not None:
            unwatch()
        elif unwatch is not None:
            self._lines.released(self.key)

    def _note(self, line: Line, status: Status) -> None:
        with self._lines._mutex:
            line.seen = status
            self._call(line)

    def _call(self, line: Line) -> None:
        """Let those ask at once whose owner is the holder's: they take over instead of waiting."""
        owner = line.seen.owner if line.seen is not None else None
        for place in line.places if owner is not None else ():
            if place.owner == owner and not place.called:
                place.called = True
                place.signal.set()
