"""A running store as a place for checks: real time, a namespace of its own, and nothing left behind."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from leased.clocks import BlockingClock, now
from leased.errors import LeasedError
from leased.model import Abandon, Acquire, Claim, Contended, Held, Operation
from leased.policy import MAX_KEY_LENGTH
from leased.store import Outcome, Store
from leased.targets import Target, open_store
from leased.testing.worlds import Face, Place, World

_TIMEOUT = 5.0
_BATCH = 100
_UNIT = 1.0
"""Seconds: short enough to wait for, long enough for a pause of this machine."""


class _Noting:
    """A store that notes what was claimed through it, so that all of it can be given back."""

    def __init__(self, store: Store, claims: list[Claim]) -> None:
        self._store = store
        self._claims = claims

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        self._claims.append(claim)
        return await self._store.acquire(claim, timeout=timeout)

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`."""
        self._claims.extend(operation.claim for operation in operations if isinstance(operation, Acquire))
        return await self._store.many(operations, timeout=timeout)


def live(target: Target, face: Face) -> Place:
    """The store at this URL. Checks that would need its clock moved say that they cannot run here."""
    namespace = f"leased-verify-{secrets.token_hex(6)}"
    if face.name == "async":
        from leased.aio_clock import LoopClock

        target = replace(target, options=replace(target.options, clock=LoopClock()))
    else:
        target = replace(target, options=replace(target.options, clock=BlockingClock()))

    added = len(namespace) + len("::") if target.scheme in ("http", "https") else 0  # there it is a part of the key

    def open_in(name: str) -> Store:
        inside = f"{namespace}:{name}" if name else namespace
        return open_store(replace(target, options=replace(target.options, namespace=inside)), face=face.name)

    def open_world() -> World:
        claims: dict[str, list[Claim]] = {}

        def connect(name: str) -> Store:
            return cast("Store", _Noting(open_in(name), claims.setdefault(name, [])))

        async def give_back() -> None:
            for name, made in claims.items():
                await _give_back(open_in(name), made)

        return World(
            face=face,
            connect=connect,
            now=now,
            unit=_UNIT,
            prefix=f"{secrets.token_hex(4)}/",
            closable=target.scheme != "memory",  # there the data is the process's, and stays for others to use
            longest_key=MAX_KEY_LENGTH - added,
            before_end=give_back,
        )

    return Place(target.shown, face, open_world)


async def _give_back(store: Store, claims: Sequence[Claim]) -> None:
    """Abandon every claim, which opens its key at once, and open what a lapsed or released one left closed."""
    try:
        with suppress(LeasedError):  # a store that is gone is what the check has reported already
            for start in range(0, len(claims), _BATCH):
                batch = [Abandon(claim.key, claim.token) for claim in claims[start : start + _BATCH]]
                await store.many(batch, timeout=_TIMEOUT)
            for status in await store.list("", after="", limit=1000, timeout=_TIMEOUT):
                await store.force_release(status.key, timeout=_TIMEOUT)
    finally:
        await store.close()
