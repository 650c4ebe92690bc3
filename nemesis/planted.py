"""Broken clients and stores that a run must convict: what the judge is worth. Nothing here is ever used unasked."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

from leased.hold import Hold
from leased.model import Assurance, Claim, Contended, Held, Lease, Lost, Released
from leased.targets import Options, open_store, read_url


class _Around:
    """A store around another one; a bug below replaces one of its answers."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _ReusesFencingTokens(_Around):
    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        outcome: Held | Contended = await self._store.acquire(claim, timeout=timeout)
        if isinstance(outcome, Held):
            coarse = outcome.lease.fencing_token // 10_000_000 * 10_000_000
            return Held(replace(outcome.lease, fencing_token=coarse))
        return outcome


class _ReleasesAnybody(_Around):
    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        await self._store.force_release(key, fencing_token=None, timeout=timeout)
        return Released()


class _Revives(_Around):
    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        outcome: Held | Lost = await self._store.renew(key, token, ttl=ttl, number=number, timeout=timeout)
        if isinstance(outcome, Lost):
            return Held(Lease(key, token, 1, ttl, owner=None, left=ttl, renewal=number))
        return outcome


class _PromisesTooMuch(_Around):
    def assurance(self) -> Assurance:
        found: Assurance = self._store.assurance()
        return replace(found, exclusive="primary", early_loss=False)


class _Forgets(_Around):
    """A shared store that drops one grant in four, as one would that answers before it has written."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._grants = 0

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        outcome: Held | Contended = await self._store.acquire(claim, timeout=timeout)
        if isinstance(outcome, Held):
            self._grants += 1
            if self._grants % 4 == 0:
                await self._store.abandon(claim.key, claim.token, timeout=timeout)
        return outcome


class _AnswersTwice(_Around):
    """The same request once more is a new one."""

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        fresh = replace(claim, token=secrets.token_hex(16))
        outcome: Held | Contended = await self._store.acquire(fresh, timeout=timeout)
        return outcome


class _NeverExpires(_Around):
    """A lease lasts a minute, whatever the holder was told: a dead holder blocks the key."""

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        outcome: Held | Contended = await self._store.acquire(replace(claim, ttl=60.0), timeout=timeout)
        if isinstance(outcome, Held):
            return Held(replace(outcome.lease, ttl=claim.ttl, left=min(outcome.lease.left, claim.ttl)))
        return outcome


class _TellsTooMuchTime(_Around):
    """The store ends a lease after half of what it tells."""

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        outcome: Held | Contended = await self._store.acquire(replace(claim, ttl=claim.ttl / 2), timeout=timeout)
        if isinstance(outcome, Held):
            return Held(replace(outcome.lease, ttl=claim.ttl, left=claim.ttl))
        return outcome


class _KeepsReleased(_Around):
    """A release is said to be done, and is not."""

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        return Released()


_STORES: dict[str, Callable[[Any], Any]] = {
    "reuses-fencing-tokens": _ReusesFencingTokens,
    "releases-anybody": _ReleasesAnybody,
    "revives": _Revives,
    "forgets": _Forgets,
    "promises-too-much": _PromisesTooMuch,
    "answers-twice": _AnswersTwice,
    "never-expires": _NeverExpires,
    "tells-too-much-time": _TellsTooMuchTime,
    "keeps-released": _KeepsReleased,
}
BUGS = (*_STORES, "ignores-loss")
"""Their names."""

ON = {"promises-too-much": "redis-memory"}
"""The scenario that brings a bug to light, where `redis-workers` does not."""


def connect(face: ModuleType, url: str, *, bug: str, timeout: float, observer: Callable[[Any], None]) -> Any:
    """The locks at a URL, of a client that has this bug (none: an empty name)."""
    if bug == "ignores-loss":
        Hold.lost_reason = lambda self, now: None  # type: ignore[method-assign]
    if bug not in _STORES:
        return face.connect(url, timeout=timeout, observer=observer)
    from leased.aio_clock import LoopClock
    from leased.clocks import BlockingClock

    is_async = face.__name__ == "leased.aio"
    target = read_url(url, Options(LoopClock() if is_async else BlockingClock()), timeout=timeout)
    store = _STORES[bug](open_store(target, face="async" if is_async else "blocking"))
    return face.connect(store, timeout=timeout, observer=observer)
