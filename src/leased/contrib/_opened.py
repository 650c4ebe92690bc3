"""A store that an integration was given: a URL, which is opened on first use, or locks that are open already."""

from __future__ import annotations

from typing import Any, TypeAlias

import leased
from leased import aio
from leased.errors import InvalidRequest

StoreGiven: TypeAlias = str | leased.Locks | aio.Locks


class Opened:
    """The locks of one store for either face. `close` closes what was opened here; what was given is its owner's.

    It has no mutex, which a child could find locked by a thread of its parent's: of two threads that open at once the
    second one takes what the first has opened, for nothing is connected before it is used.
    """

    def __init__(self, store: StoreGiven) -> None:
        self._store = store
        self._own: dict[str, Any] = {}

    def blocking(self) -> leased.Locks:
        """For blocking calls; `InvalidRequest` where locks of the other face were given."""
        if isinstance(self._store, leased.Locks):
            return self._store
        found: leased.Locks | None = self._own.get("blocking")
        return found or self._own.setdefault("blocking", leased.connect(self._url("leased.connect")))

    def asynchronous(self) -> aio.Locks:
        """For asyncio; `InvalidRequest` where locks of the other face were given."""
        if isinstance(self._store, aio.Locks):
            return self._store
        found: aio.Locks | None = self._own.get("asynchronous")
        return found or self._own.setdefault("asynchronous", aio.connect(self._url("leased.aio.connect")))

    def close(self) -> None:
        """Close what was opened here for blocking calls."""
        if "blocking" in self._own:
            self._own["blocking"].close()

    async def aclose(self) -> None:
        """Close what was opened here for either kind of call."""
        self.close()
        if "asynchronous" in self._own:
            await self._own["asynchronous"].close()

    def _url(self, way: str) -> str:
        if isinstance(self._store, str):
            return self._store
        raise InvalidRequest("the store is of the other face", hint=f"give a URL, or use {way}()")
