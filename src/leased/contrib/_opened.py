"""A store that an integration was given: a URL, which is opened on first use, or locks that are open already."""

from __future__ import annotations

import threading
from typing import TypeAlias

import leased
from leased import aio
from leased.errors import InvalidRequest

StoreGiven: TypeAlias = str | leased.Locks | aio.Locks


class Opened:
    """The locks of one store for either face. `close` closes what was opened here; what was given is its owner's."""

    def __init__(self, store: StoreGiven) -> None:
        self._store = store
        self._mutex = threading.Lock()
        self._blocking = store if isinstance(store, leased.Locks) else None
        self._asynchronous = store if isinstance(store, aio.Locks) else None

    def blocking(self) -> leased.Locks:
        """For blocking calls; `InvalidRequest` where locks of the other face were given."""
        with self._mutex:
            if self._blocking is None:
                self._blocking = leased.connect(self._url("leased.connect"))
            return self._blocking

    def asynchronous(self) -> aio.Locks:
        """For asyncio; `InvalidRequest` where locks of the other face were given."""
        with self._mutex:
            if self._asynchronous is None:
                self._asynchronous = aio.connect(self._url("leased.aio.connect"))
            return self._asynchronous

    def close(self) -> None:
        """Close what was opened here for blocking calls."""
        if self._blocking is not None and self._blocking is not self._store:
            self._blocking.close()

    async def aclose(self) -> None:
        """Close what was opened here for either kind of call."""
        self.close()
        if self._asynchronous is not None and self._asynchronous is not self._store:
            await self._asynchronous.close()

    def _url(self, way: str) -> str:
        if isinstance(self._store, str):
            return self._store
        raise InvalidRequest("the store is of the other face", hint=f"give a URL, or use {way}()")
