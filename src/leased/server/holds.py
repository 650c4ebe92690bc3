"""Holds that were: values, where they are kept, and a memory of them. Nothing here decides about a lock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

End = Literal["released", "force_released", "expired", "abandoned"]
"""How a hold came to its end."""


class PastHold(NamedTuple):
    """One hold of a key, as its grant and its end were seen here; instants are in seconds since the epoch.

    `mark` tells it from all others, and nothing of its token. `until` is when it ends if nobody renews or ends it;
    `waited` is in seconds. `end` is `None` as long as nobody has seen one.
    """

    project: str
    key: str
    mark: str
    fencing_token: int
    held_by: str
    owner: str | None
    acquired_at: float
    waited: float
    until: float
    ended_at: float | None = None
    end: End | None = None
    reason: str = ""

    def ended(self, one: HoldEnd) -> PastHold:
        """The same after this end, unless a better one is known: that a lease ran out is only supposed, by whoever saw
        no renewal."""
        if self.end is None or (self.end == "expired" and (one.end != "expired" or one.at > (self.ended_at or 0.0))):
            return self._replace(ended_at=one.at, end=one.end, reason=one.reason)
        return self


class HoldEnd(NamedTuple):
    """The end of a hold that began elsewhere, or before: of the one with this mark, or else this fencing token."""

    project: str
    key: str
    mark: str
    fencing_token: int
    at: float
    end: End
    reason: str = ""

    def is_of(self, hold: PastHold) -> bool:
        """Whether it is the end of that one."""
        return hold.mark == self.mark if self.mark else hold.fencing_token == self.fencing_token


@dataclass(frozen=True, slots=True)
class Room:
    """How many holds are kept: of each key, and in all."""

    each: int
    total: int


class Surplus:
    """When the oldest of all holds have to make room. To find them takes time linear in the room: it is done at first,
    and then after each hundredth of it that was written here, so that a hold costs the same in any room. Meanwhile
    there may be as many more than there is room for.
    """

    def __init__(self) -> None:
        self._more: int | None = None

    def due(self, more: int, *, room: Room) -> bool:
        """Whether they have to, now that so many more holds are written."""
        self._more = None if self._more is None else self._more + more
        return self._more is None or self._more >= max(1, room.total // 100)

    def gone(self) -> None:
        """They have made room."""
        self._more = 0


@runtime_checkable
class HoldsKept(Protocol):
    """Where holds are kept. Raises `StoreUnavailable` where there was no answer."""

    async def write_holds(self, begun: Sequence[PastHold], ended: Sequence[HoldEnd], *, room: Room) -> None:
        """Keep holds, and ends of those that are kept; the oldest make room."""
        ...

    async def holds(self, project: str, key: str, *, limit: int) -> Sequence[PastHold]:
        """The last holds of a key, the newest first."""
        ...


class OwnHolds:
    """See `HoldsKept`: in the memory of this process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], list[PastHold]] = OrderedDict()
        self.total = 0

    async def write_holds(self, begun: Sequence[PastHold], ended: Sequence[HoldEnd], *, room: Room) -> None:
        """See `HoldsKept`."""
        for hold in begun:
            place = hold.project, hold.key
            found = self._kept.setdefault(place, [])
            if found and found[-1].mark == hold.mark:
                continue
            found.append(hold)
            self.total += 1
            self._kept.move_to_end(place)
            if len(found) > room.each:
                del found[0]
                self.total -= 1
        for one in ended:
            found = self._kept.get((one.project, one.key), [])
            found[:] = [hold.ended(one) if one.is_of(hold) else hold for hold in found]
        while self.total > room.total:
            self.total -= len(self._kept.popitem(last=False)[1])

    async def holds(self, project: str, key: str, *, limit: int) -> Sequence[PastHold]:
        """See `HoldsKept`."""
        return self._kept.get((project, key), [])[::-1][:limit]
