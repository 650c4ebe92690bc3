"""The store of one process: records in a dictionary under one mutex. It never waits and survives nothing."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Literal

from leased.clocks import now
from leased.errors import InvalidRequest, StoreNotUsable
from leased.model import (
    Assurance,
    Claim,
    Contended,
    Held,
    Lease,
    Lost,
    LostReason,
    Operation,
    Released,
    Status,
    read_metadata,
)
from leased.policy import REPLAY_WINDOW
from leased.store import Bell, Clock, Outcome, each
from leased.stores._at_rest import Rest, Round, Settled
from leased.stores._sorted_keys import SortedKeys

if TYPE_CHECKING:
    from leased.targets import Face, Options

_SWEEP_EVERY = 32
_SWEEP_STEP = 2 * _SWEEP_EVERY
_SETTLES_AFTER = 10.0
_FREED, _NOT_HOLDER, _EXPIRED = Released(), Released("not_holder"), Released("expired")

_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()
_Ended = Literal["retaken", "force_released", "expired", "released", "abandoned"]


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def _same(kept: bytes | None, token: bytes) -> bool:
    return kept is not None and compare_digest(kept, token)


class _Record:
    """One key, on the store's clock. `token` is `None` once the lease was released or forced."""

    __slots__ = (
        "acquired_at",
        "deadline",
        "expires_at",
        "fencing_token",
        "forced",
        "free_at",
        "late",
        "owner",
        "renewal",
        "terms",
        "token",
        "ttl",
    )

    def __init__(self, claim: Claim, token: bytes, *, fencing_token: int, now: float) -> None:
        self.token: bytes | None = token
        self.owner = claim.owner
        self.terms = claim.terms
        self.fencing_token = fencing_token
        self.renewal = -1  # below 0: not renewed yet, and how often claims were told that it is held
        self.acquired_at = now
        self.deadline = now + claim.terms.max_hold
        self.late = claim.late
        self.forced = False
        self.extend(now, claim.ttl)

    def extend(self, now: float, ttl: float) -> None:
        """Set the expiry from now, cut at the deadline, and with it the instant at which the key opens."""
        self.ttl = ttl
        self.expires_at = min(now + ttl, self.deadline)
        self.free_at = max(self.expires_at + self.terms.lock_delay, self.acquired_at + self.terms.hold_at_least)

    def live(self, now: float) -> bool:
        return self.token is not None and now < self.expires_at


_rest = Rest(_Record, _Record.__slots__)


class MemoryStore:
    """Keeps locks in this process: threads and tasks exclude each other, other processes are not excluded.

    Time comes from `clock`; `offset` seconds are added to it, always 0 except in tests. Nothing grows with history:
    a record goes when its key opens (a lapsed one after the replay window), a mark when the window is over.
    """

    mode: Literal["blocking", "async", "any"] = "any"

    def __init__(self, clock: Clock, *, shared: bool = False) -> None:
        self._shared = shared
        self.offset = 0.0
        self._clock = clock
        self._last_fencing_token = 0
        self._grants = 0
        self._closed = False
        self.forget()
        _stores.add(self)

    def forget(self) -> None:
        """Begin anew, as a forked child does: it holds nothing, and nobody waits in it."""
        self._mutex = threading.Lock()
        self._records: dict[str, _Record | Settled] = {}
        self._round = Round(self._records)
        self._keys = SortedKeys(self._records)
        self._marks: OrderedDict[bytes, tuple[float, _Ended]] = OrderedDict()
        self._bells: dict[str, list[Bell]] = {}

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        token = _digest(claim.token)
        with self._mutex:
            now = self._now()
            record = self._find(claim.key)
            if record is not None:
                if _same(record.token, token) and now < record.expires_at:
                    record.late = record.late or claim.late
                    record.renewal -= record.renewal < 0
                    return Held(self._lease(claim.key, claim.token, record, now))
                if _same(record.token, token) or self._marked(token, now):
                    return Contended(self._status(claim.key, record, now=now, wall=self._wall()), ended=True)
                if record.live(now) and claim.owner is not None and record.owner == claim.owner:
                    self._mark(record.token, "retaken", now)
                elif record.live(now) or now < record.free_at:
                    return Contended(self._status(claim.key, record, now=now, wall=self._wall()))
                elif record.late:
                    self._mark(record.token, "expired", now)
            elif self._marked(token, now):
                return Contended(None, ended=True)
            self._last_fencing_token = max(self._last_fencing_token + 1, int(self._wall() * 1e6))
            if record is None and self._keys.used:
                self._keys.add(claim.key)
            record = _Record(claim, token, fencing_token=self._last_fencing_token, now=now)
            self._records[claim.key] = record
            self._grants += 1
            if self._grants % _SWEEP_EVERY == 0:
                self._sweep(now)
            return Held(self._lease(claim.key, claim.token, record, now))

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        digest = _digest(token)
        with self._mutex:
            now = self._now()
            record = self._find(key)
            if record is None or not _same(record.token, digest) or now >= record.expires_at:
                return Lost(self._lost_reason(record, digest, now))
            if number > max(record.renewal, 0):
                record.renewal = number
                record.extend(now, ttl)
                self._settle(key, record, now)
            return Held(self._lease(key, token, record, now))

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return await self.renew(key, token, ttl=0.0, number=-1, timeout=timeout)

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        digest = _digest(token)
        with self._mutex:
            now = self._now()
            record = self._find(key)
            mine = record is not None and _same(record.token, digest)
            if late or (mine and record is not None and record.late):
                self._mark(digest, "released", now)
            if record is None or not mine:
                return _NOT_HOLDER
            if now >= record.expires_at:
                return _EXPIRED
            self._end(key, record, free_at=record.acquired_at + record.terms.hold_at_least, now=now)
        self._ring(key)
        return _FREED

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        digest = _digest(token)
        with self._mutex:
            now = self._now()
            record = self._find(key)
            holds = record is not None and _same(record.token, digest) and now < record.expires_at
            if holds and record is not None and heard is not None and not 0 < -record.renewal <= heard:
                return
            self._mark(digest, "abandoned", now)
            if record is None or not holds:
                return
            self._end(key, record, free_at=now, now=now)
        self._ring(key)

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        with self._mutex:
            now = self._now()
            record = self._find(key)
            if record is None or fencing_token not in (None, record.fencing_token):
                return False
            if record.live(now):
                self._mark(record.token, "force_released", now)
                record.forced = True
                self._end(key, record, free_at=now + record.terms.lock_delay, now=now)
            elif now < record.free_at and not record.forced:
                if record.late:
                    self._mark(record.token, "expired", now)
                self._end(key, record, free_at=now, now=now)
            else:
                return False
        self._ring(key)
        return True

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""
        with self._mutex:
            now = self._now()
            record = self._find(key)
            return self._status(key, record, now=now, wall=self._wall()) or Status(key)

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`. Keys are sorted for the first page, or once they are many; see `SortedKeys`."""
        with self._mutex:
            now, wall = self._now(), self._wall()
            page: list[Status] = []
            for key in self._keys.page(prefix, after=after):
                record = self._records[key]
                awake = _rest.awake(record) if isinstance(record, tuple) else record
                status = self._status(key, awake, now=now, wall=wall)
                if len(page) >= limit:
                    break
                if status is not None:
                    page.append(status)
            return page

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`."""
        with self._mutex:
            self._now()
            self._bells.setdefault(key, []).append(bell)

        def unwatch() -> None:
            with self._mutex:
                bells = self._bells.get(key, [])
                if bell in bells:
                    bells.remove(bell)
                if not bells:
                    self._bells.pop(key, None)

        return unwatch

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`."""
        return await each(self, operations, timeout=timeout)

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return Assurance(
            exclusive="process",
            early_loss=False,
            durable="nothing survives the process",
            takeover="the store's clock, which counts suspend",
            fence="rises while the wall clock of this host is not set back over a restart of the process",
            notes=("other processes are not excluded", "after a fork the child has a store of its own"),
        )

    async def close(self) -> None:
        """See `leased.store`. A store that the process shares stays: forgetting its leases would end them early."""
        with self._mutex:
            self._closed = not self._shared

    def _now(self) -> float:
        """The store's time, once it is certain that it may be used."""
        if self._closed:
            raise StoreNotUsable("this memory store was closed", hint="connect again")
        return self._clock.now() + self.offset

    def _find(self, key: str) -> _Record | None:
        record = self._records.get(key)
        if isinstance(record, tuple):
            record = self._records[key] = _rest.awake(record)
        return record

    def _settle(self, key: str, record: _Record | Settled, now: float) -> None:
        """Settle a record that has been here for a while: it may stay for long."""
        if not isinstance(record, tuple) and record.acquired_at + _SETTLES_AFTER <= now:
            self._records[key] = _rest.settled(record)

    def _sweep(self, now: float) -> None:
        """Look at some records in turn, more than were granted since the last time: lapsed ones cannot pile up."""
        for key in self._round.some(_SWEEP_STEP):
            record = self._records[key]
            free_at = record[0] if isinstance(record, tuple) else record.free_at
            if free_at + REPLAY_WINDOW > now:
                self._settle(key, record, now)
            else:
                del self._records[key]
        self._keys.tend()
        while self._marks and next(iter(self._marks.values()))[0] <= now:
            self._marks.popitem(last=False)

    def _wall(self) -> float:
        return self._clock.wall() + self.offset

    def _mark(self, token: bytes | None, reason: _Ended, now: float) -> None:
        """Remember for the replay window, from now, that a token has ended. The first reason stands."""
        if token is not None:
            mark = self._marks.pop(token, None)
            self._marks[token] = (now + REPLAY_WINDOW, mark[1] if mark is not None and now < mark[0] else reason)

    def _marked(self, token: bytes, now: float) -> bool:
        mark = self._marks.get(token)
        return mark is not None and now < mark[0]

    def _end(self, key: str, record: _Record, *, free_at: float, now: float) -> None:
        """End the lease; the key stays closed until `free_at`, and without such a time its record goes at once."""
        opens_at = max(now, free_at)  # first: an interrupt may come after a call, and never between what follows
        record.token, record.late, record.free_at = None, False, opens_at
        if opens_at <= now:
            del self._records[key]

    def _ring(self, key: str) -> None:
        if self._bells:
            for bell in tuple(self._bells.get(key, ())):
                bell()

    def _lost_reason(self, record: _Record | None, token: bytes, now: float) -> LostReason:
        if record is not None and _same(record.token, token):
            return "max_hold" if now >= record.deadline else "expired"
        mark = self._marks.get(token)
        if mark is not None and mark[1] in ("retaken", "force_released"):
            return "retaken" if mark[1] == "retaken" else "force_released"
        return "taken" if record is not None and record.live(now) else "expired"

    def _lease(self, key: str, token: str, record: _Record, now: float) -> Lease:
        left = record.expires_at - now
        return Lease(key, token, record.fencing_token, record.ttl, record.owner, left, 0.0, max(record.renewal, 0))

    def _status(self, key: str, record: _Record | None, *, now: float, wall: float) -> Status | None:
        """What anyone may see, or `None` for an open key."""
        if record is None:
            return None
        live = record.live(now)
        if not live and now >= record.free_at:
            return None
        return Status(
            key=key,
            state="held" if live else "closed",
            owner=record.owner if live else None,
            held_by=record.terms.held_by if live else None,
            expires_in=record.expires_at - now if live else None,
            expires_at=wall + record.expires_at - now if live else None,
            free_in=record.free_at - now,
            free_at=wall + record.free_at - now,
            fencing_token=record.fencing_token,
            acquired_at=wall + record.acquired_at - now if live else None,
            metadata=read_metadata(record.terms.metadata) if live else {},
        )


_shared: dict[tuple[str, str, int | None], MemoryStore] = {}
"""The stores of this process by name, namespace and, for a test clock, that clock: who names the same one shares it."""


def open(url: str, *, face: Face, options: Options) -> MemoryStore:  # noqa: A001, ARG001 (as every store module)
    """The store called by this URL: `memory:` is the process's own, `memory:NAME` another one; both faces share it."""
    name = place_of(url)
    if "?" in name:
        raise InvalidRequest("a memory: URL has no parameters of the store's own", hint="remove what follows the ?")
    key = (name, options.namespace, None if options.clock.now is now else id(options.clock))
    store = _shared.get(key)
    if store is None:
        store = _shared.setdefault(key, MemoryStore(options.clock, shared=True))
    return store


def place_of(url: str) -> str:
    """The name that a URL gives its store, however it is spelled."""
    return url.partition(":")[2].strip("/")


def _forget_parents() -> None:
    for store in tuple(_stores):
        store.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
