"""The machine of the store: the real memory store on a clock of its own, which can restart, forget and step."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

from leased.clocks import step
from leased.errors import LeasedError, StoreUnavailable
from leased.model import Acquire, Claim, Held, Operation
from leased.store import Bell, Outcome, one
from leased.stores.memory import MemoryStore
from leased.testing.model import Answer, Command, ForceRelease, ShowList, ShowStatus
from leased.testing.simulation.history import History
from leased.testing.simulation.judge import Judge
from leased.timeline import Timeline, VirtualClock

_TIMEOUT = 1.0
_SWEEPS = 100


@dataclass(frozen=True, slots=True)
class Batch:
    """What a client's `many` sends; `failed` are the places of members whose answer the store keeps to itself."""

    operations: tuple[Operation, ...]
    failed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Watch:
    """What a client's `watch` sends."""

    key: str
    bell: Bell = field(repr=False)


Request = Command | Batch | Watch


class ServerClock(VirtualClock):
    """The store's clock; it shows the past while the store is rebuilt from its journal."""

    __slots__ = ("past",)

    def __init__(self, timeline: Timeline, *, rate: float, zero: float) -> None:
        super().__init__(timeline, rate=rate, zero=zero)
        self.past: tuple[float, float] | None = None

    def now(self) -> float:
        """Seconds of this clock from its zero."""
        return super().now() if self.past is None else self.past[0]

    def wall(self) -> float:
        """Seconds of this clock from its epoch."""
        return super().wall() if self.past is None else self.past[1]


class Server:
    """Executes each request at one instant and tells the judge.

    `wrap` stands between the requests and the real store; tests plant bugs there.
    """

    def __init__(self, timeline: Timeline, history: History, *, clock: ServerClock) -> None:
        self.clock = clock
        self.judge = Judge(history)
        self.down_until = 0.0
        self.store: MemoryStore
        self.changed: Callable[[str], None] = lambda key: None
        self._timeline = timeline
        self._history = history
        self._journal: list[tuple[float, float, Command]] = []
        self._grants: list[int] = []
        self._open()

    @property
    def down(self) -> bool:
        """Whether nothing is answered now."""
        return self._timeline.now < self.down_until

    def handle(self, who: str, request: Request) -> Any:
        """Execute one request of a client; an error is answered as a value."""
        if isinstance(request, Watch):
            return step(self.store.watch(request.key, request.bell))
        if isinstance(request, Batch):
            return self._handle_batch(who, request)
        return self._note(who, request, self._execute(request))

    def restart(self, *, down: float, lost: int) -> None:
        """Stop for `down` seconds; with `lost`, everything since the grant before the last `lost` ones is forgotten."""
        self.down_until = self._timeline.now + down
        keep = len(self._journal) if not lost or not self._grants else self._grants[-min(lost, len(self._grants))]
        self._history.add("store", "restart", f"down {down:.3f} s, keeps {keep} of {len(self._journal)} commands")
        del self._journal[keep:]
        self._grants = [place for place in self._grants if place < keep]
        self.judge.take_back(keep)
        self._open()
        for now, wall, command in self._journal:
            self.clock.past = now, wall
            self._execute(command)
        self.clock.past = None

    def left_over(self, *, watches: bool) -> list[str]:
        """What it still keeps, for the end of a run, after a few grants have swept it: it should be nothing."""
        store = self.store
        for number in range(_SWEEPS):
            claim = Claim("sweep", f"sweep {number}", _TIMEOUT)
            step(store.acquire(claim, timeout=_TIMEOUT))
            step(store.release(claim.key, claim.token, timeout=_TIMEOUT))
        kept: dict[str, Sized] = {"record": store._records, "mark": store._marks}
        if watches:
            kept["watch"] = store._bells
        return [f"{len(things)} of {name}" for name, things in kept.items() if things]

    def set_clock(self, seconds: float) -> None:
        """Step the store's clock."""
        self._history.add("store", "clock step", f"{seconds:+.4f} s")
        self.clock.step(seconds)

    def _open(self) -> None:
        self.store = MemoryStore(self.clock)

    def _handle_batch(self, who: str, batch: Batch) -> list[Outcome]:
        kept = [operation for place, operation in enumerate(batch.operations) if place not in batch.failed]
        outcomes = iter(step(self.store.many(kept, timeout=_TIMEOUT)))
        answers: list[Outcome] = []
        for place, operation in enumerate(batch.operations):
            if place in batch.failed:
                answers.append(StoreUnavailable("this member failed", applied=None))
            else:
                answers.append(self._note(who, operation, next(outcomes)))
        return answers

    def _execute(self, command: Command) -> Outcome | Answer:
        store = self.store
        try:
            match command:
                case ForceRelease(key, number):
                    return step(store.force_release(key, fencing_token=number, timeout=_TIMEOUT))
                case ShowStatus(key):
                    return step(store.status(key, timeout=_TIMEOUT))
                case ShowList(prefix, after, limit):
                    return step(store.list(prefix, after=after, limit=limit, timeout=_TIMEOUT))
                case _:
                    return step(one(store, command, timeout=_TIMEOUT))
        except LeasedError as error:
            return error

    def _note(self, who: str, command: Command, answer: Any) -> Any:
        now, wall = self.clock.now(), self.clock.wall()
        new = isinstance(command, Acquire) and command.claim.token not in self.judge.granted
        if new and isinstance(answer, Held):
            self._grants.append(len(self._journal))
        self._journal.append((now, wall, command))
        self._history.add("store", f"for {who}", command, "->", answer)
        self.judge.saw(command, answer, now=now, wall=wall)
        if not isinstance(command, ShowList):
            self.changed(command.claim.key if isinstance(command, Acquire) else command.key)
        return answer


def operations_of(request: Request) -> Sequence[Operation]:
    """The operations on tokens that a request carries."""
    if isinstance(request, Batch):
        return request.operations
    return () if isinstance(request, Watch | ForceRelease | ShowStatus | ShowList) else (request,)
