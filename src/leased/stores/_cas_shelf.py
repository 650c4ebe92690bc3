"""What a key-value server must offer to be a store: one value a key, compared and set. It knows nothing of leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from leased.errors import StoreUnavailable

Version: TypeAlias = int | str
"""By which the server tells two writes of a key apart; no two writes of a key ever share one."""

Changed: TypeAlias = Callable[[bytes | None], None]
"""Called by a watch with what now stands for the key, `None` for nothing; it never waits and never raises."""


class Found(NamedTuple):
    """What stands for a key; without a version there is nothing."""

    version: Version | None = None
    value: bytes = b""


NOTHING = Found()
"""What is found for a key that nobody has written, or whose value is gone."""


class Put(NamedTuple):
    """A value to be set if the key still has that version (`None`: nothing there).

    From `forget_at` on, in seconds since the epoch, nobody needs it any more.
    """

    key: str
    value: bytes
    version: Version | None
    forget_at: float


class Written(NamedTuple):
    """The value stands, under this version."""

    version: Version


class Beaten(NamedTuple):
    """Somebody else wrote the key before; `found` is what stands there, where the server said so."""

    found: Found | None = None


class Old(Protocol):
    """How a server that forgets nothing by itself is asked for what may be forgotten."""

    async def __call__(
        self, before: float, *, begin: str, limit: int, timeout: float
    ) -> tuple[list[tuple[str, Found]], str]:
        """Keys last written before that time, in seconds since the epoch, among them perhaps some that are younger; at
        most `limit`. And where the next call shall begin: behind what was looked at, empty for the beginning."""
        ...


class Shelf(Protocol):
    """The keys of one namespace on one server. Reads see every write that was answered before they were asked.

    Every method ends within `timeout` seconds and raises `StoreUnavailable` (with what is known of the effect) or
    `StoreNotUsable`. A write is never sent a second time, for that could beat itself. Each answer that tells the
    server's time is passed on to the clock of the store.
    """

    async def get(self, keys: Sequence[str], *, timeout: float) -> Sequence[Found]:
        """What stands for each of these keys."""
        ...

    async def put(self, puts: Sequence[Put], *, timeout: float) -> Sequence[Written | Beaten | StoreUnavailable]:
        """Set each value if its key still has its version; one outcome each, in order. The keys differ."""
        ...

    async def page(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[tuple[str, Found]]:
        """Keys that begin with `prefix` and come after `after`, in the order of their UTF-8 bytes, at most `limit`."""
        ...

    async def remove(self, keys: Sequence[tuple[str, Version]], *, timeout: float) -> None:
        """Take away each key that still has its version. Some may be gone where it fails, or ends for lack of time."""
        ...

    async def watch(self, key: str, changed: Changed) -> Callable[[], None]:
        """Call `changed` after each later write or removal of the key, until the returned function is called."""
        ...

    def close(self) -> None:
        """Free connections and threads; a later call raises `StoreNotUsable`."""
        ...
