"""The asyncio face: the same names and parameters as `leased`, the same engine, awaited. It adds no lock logic."""

from __future__ import annotations

import asyncio
import builtins
import functools
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from leased import engine
from leased.aio_clock import LoopClock
from leased.aio_handle import Handle, Scope, run_hook
from leased.aio_lock import Lock
from leased.checks import Duration, check_fencing_token, check_key, check_limit, check_prefix
from leased.client import Client, PerProcess, make_target, reconnecting
from leased.clocks import BlockingClock
from leased.context import current, current_fencing_token, owner_scope
from leased.default import default_url
from leased.errors import InvalidRequest, LockNotHeld
from leased.handle import read_dump
from leased.hold import Hold, lost_error
from leased.keeper import Keeper
from leased.model import Assurance, Claim, Lost, Status
from leased.observe import Observer, keeping
from leased.policy import (
    CLOCK_MARGIN,
    DEFAULT_MAX_HOLD,
    DEFAULT_TTL,
    FOREVER,
    MAX_LIST_PAGE,
    OPERATION_TIMEOUT,
    SKEW_MARGIN,
)
from leased.recipe import check_token, make_recipe
from leased.scope import RunResult
from leased.store import Clock, Store
from leased.targets import Target

__all__ = [
    "FOREVER",
    "Handle",
    "Lock",
    "Locks",
    "RunResult",
    "Scope",
    "connect",
    "current",
    "current_fencing_token",
    "get_default",
    "lock",
    "owner_scope",
    "set_default",
    "using_default",
]


class Locks:
    """The locks of one store. It opens nothing before first use; tasks of any loop may share it, and each process has
    its own connection: a forked child begins anew and holds nothing of its parent's."""

    def __init__(self, target: Target, *, store: Store | None) -> None:
        self._target = target
        self._store = store
        self._opening = PerProcess(functools.partial(_open, target, store))
        self._client = self._opening.get
        self._opening.get()

    def lock(
        self,
        key: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        wait: Duration = 0,
        owner: str | None = None,
        renew: bool | None = None,
        enforce: bool = False,
        if_lost: Literal["raise", "return"] = "raise",
        max_hold: Duration = DEFAULT_MAX_HOLD,
        hold_at_least: Duration = 0,
        lock_delay: Duration = 0,
        metadata: Mapping[str, Any] | None = None,
        retry_delay: Duration | None = None,
        name: str | None = None,
    ) -> Lock:
        """A recipe for locking `key`; it holds nothing and asks nobody. Durations are seconds, `timedelta` or text.

        `ttl`: how long a lease lasts unless renewed. `wait`: how long to wait for it. `owner`: whoever presents the
        same one takes the lease over. `renew`: by default blocks renew, bare handles do not. `enforce`: a fixed lease
        whose body is interrupted at its end. `if_lost`: what a block does that succeeded under a lost lease.
        `max_hold`: the end that renewals cannot move. `hold_at_least`: the key stays closed until that age.
        `lock_delay`: it stays closed so long after a lease that ended without release. `metadata`: at most 1 KiB, shown
        to anyone. `retry_delay`: between polls. `name`: a label for metrics. Raises `InvalidRequest`.
        """
        check_key(key)
        recipe = make_recipe(
            margin=self._target.options.clock_margin,
            ttl=ttl,
            wait=wait,
            owner=owner,
            renew=renew,
            enforce=enforce,
            if_lost=if_lost,
            max_hold=max_hold,
            hold_at_least=hold_at_least,
            lock_delay=lock_delay,
            metadata=metadata,
            retry_delay=retry_delay,
            name=name,
        )
        return Lock(self._itself, recipe, key=key)

    async def status(self, key: str) -> Status:
        """What anyone may see of a key: advice, not a test."""
        client = self._client()
        return await client.store.status(check_key(key), timeout=client.env.timeout)

    async def list(self, prefix: str = "", *, limit: int | None = None) -> builtins.list[Status]:
        """All held and closed keys that begin with `prefix`, in the order of their bytes; with `limit` no more than the
        first so many, for which no more is asked of the store."""
        client, prefix, most = self._client(), check_prefix(prefix), check_limit(limit)
        found: list[Status] = []
        page: list[Status] | None = None
        while (page is None or page) and (most is None or len(found) < most):
            after = page[-1].key if page else ""
            size = MAX_LIST_PAGE if most is None else min(MAX_LIST_PAGE, most - len(found))
            page = await client.store.list(prefix, after=after, limit=size, timeout=client.env.timeout)
            found += page
        return found

    async def force_release(self, key: str, fencing_token: int | None = None) -> bool:
        """End a lease, or open a closed key, without its token. True if something was ended.

        It breaks exclusion where nothing checks fencing tokens. With a number it acts only if that is still the holder,
        or the last one of a closed key, so that a late repeat cannot hit the successor.
        """
        client, number = self._client(), check_fencing_token(fencing_token)
        done = await client.store.force_release(check_key(key), fencing_token=number, timeout=client.env.timeout)
        if done:
            client.env.lines.released(key)
            client.env.tell("force_released", key, data={"fencing_token": fencing_token})
        return done

    async def abandon(self, key: str, token: str) -> None:
        """Whatever became of a claim with this token: it holds nothing now and is never granted later."""
        client = self._client()
        await client.store.abandon(check_key(key), check_token(token), timeout=client.env.timeout)
        client.env.lines.released(key)

    async def restore(self, text: str, *, renew: bool = False) -> Handle:
        """The handle of a lease that was dumped or handed over, after asking the store once: with the true remaining
        time, and renewed only when asked. Raises `LockNotHeld` when the lease is over."""
        client = self._client()
        claim = Claim(ttl=DEFAULT_TTL, **read_dump(text))
        outcome = await engine.restore(client.store, client.env, claim)
        if isinstance(outcome, Lost):
            error = lost_error(claim.key, outcome.reason)
            raise LockNotHeld(error.message, key=claim.key, reason=outcome.reason, hint="acquire it anew")
        client.remember(outcome, renewing=renew)
        return Handle(client, outcome, None, scoped=False)

    @property
    def assurance(self) -> Assurance:
        """What this store, as configured now, really gives."""
        return self._client().store.assurance()

    async def close(self) -> None:
        """Grant and renew nothing any more. Nothing is released under a block that still runs, and a bare handle can
        still be released: such handles are lost (`closed`) at their deadlines, and the store goes after the last."""
        store = self._opening.close()
        if store is not None:
            await store.close()

    async def __aenter__(self) -> Locks:
        """Itself; the block closes it."""
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Close."""
        await self.close()

    def __repr__(self) -> str:
        """The store, without secrets."""
        return f"<leased locks on {self._target.shown}>"

    def __reduce__(self) -> Any:
        """By its URL and options, unless those hold a secret or the store is an object of this process."""
        return _reconnect, reconnecting(self._target, self._store)

    def _itself(self) -> Locks:
        return self


def connect(
    url: str | Store,
    *,
    timeout: Duration = OPERATION_TIMEOUT,
    namespace: str = "",
    clock_margin: float = CLOCK_MARGIN,
    skew_margin: Duration = SKEW_MARGIN,
    takeover: Literal["margin", "observe"] = "margin",
    require: str | None = None,
    observer: Observer | None = None,
    clock: Clock | None = None,
) -> Locks:
    """The locks of the store at this URL; nothing is opened before first use. A URL may carry the same options as
    `leased_…` parameters.

    `timeout`: seconds a call to the store may take (5). `namespace`: separates installations on one server.
    `clock_margin`: the share of each lease given up for clock rates (0.02). `skew_margin`, `takeover`: for stores
    without a clock to ask (1 s, "margin"). `require`: the least exclusivity; less is refused with `StoreNotUsable`.
    `observer` gets every event. `clock` is for tests. Raises `InvalidRequest` for options that cannot work.
    """
    given = {
        "timeout": timeout,
        "namespace": namespace,
        "clock_margin": clock_margin,
        "skew_margin": skew_margin,
        "takeover": takeover,
        "require": require,
    }
    target = make_target(url, clock=_for_loop(clock), observer=observer, given=given)
    return Locks(target, store=None if isinstance(url, str) else url)


def _for_loop(clock: Clock | None) -> Clock:
    """A clock that suspends tasks instead of blocking their loop; a movable one knows its own."""
    if isinstance(clock, BlockingClock):
        raise InvalidRequest("a BlockingClock would block the event loop", hint="leave clock out")
    for_loop = getattr(clock, "for_loop", None)
    return for_loop() if for_loop is not None else clock or LoopClock()


def _open(target: Target, store: Store | None) -> Client:
    client = Client(target, face="async", store=store, run_hook=run_hook)
    keepers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Keeper] = weakref.WeakKeyDictionary()

    def keep(hold: Hold, *, renewing: bool) -> None:
        loop = asyncio.get_running_loop()
        keeper = keepers.get(loop)
        if keeper is None:
            keeper = keepers[loop] = Keeper(client.store, client.env)
            client.notice_ends()  # of leases that were kept in a loop that is gone
        if keeper.add(hold, renewing=renewing):
            client.env.clock.start(_run(keeper))

    def stop_keeping() -> None:
        for keeper in tuple(keepers.values()):
            keeper.close()

    client.keep = keep
    client.closers.append(stop_keeping)
    return client


async def _run(keeper: Keeper) -> None:
    keeping(KeyboardInterrupt, SystemExit)  # with which the loop ends anyway
    await keeper.run()


def _reconnect(url: str, given: dict[str, Any]) -> Locks:
    return connect(url, **given)


_default_mutex = threading.Lock()
_default: Locks | None = None


def _forget_parents() -> None:
    global _default_mutex
    _default_mutex = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)


def get_default() -> Locks:
    """The locks that `leased.aio.lock(...)` uses, made on first use from `LEASED_URL`, else in memory."""
    global _default
    with _default_mutex:
        if _default is None:
            _default = connect(default_url())
        return _default


def set_default(locks: Locks | None) -> None:
    """Let `leased.aio.lock(...)` use these locks from now on, also through earlier recipes; `None`: as at the start."""
    global _default
    with _default_mutex:
        _default = locks


@contextmanager
def using_default(locks: Locks) -> Iterator[Locks]:
    """Let `leased.aio.lock(...)` use these locks inside the block, for instance for one test."""
    before = _default
    set_default(locks)
    try:
        yield locks
    finally:
        set_default(before)


def lock(
    key: str,
    *,
    ttl: Duration = DEFAULT_TTL,
    wait: Duration = 0,
    owner: str | None = None,
    renew: bool | None = None,
    enforce: bool = False,
    if_lost: Literal["raise", "return"] = "raise",
    max_hold: Duration = DEFAULT_MAX_HOLD,
    hold_at_least: Duration = 0,
    lock_delay: Duration = 0,
    metadata: Mapping[str, Any] | None = None,
    retry_delay: Duration | None = None,
    name: str | None = None,
) -> Lock:
    """A recipe as `Locks.lock` makes it, on the process default: `LEASED_URL`, else the memory store."""
    check_key(key)
    recipe = make_recipe(
        margin=CLOCK_MARGIN,
        ttl=ttl,
        wait=wait,
        owner=owner,
        renew=renew,
        enforce=enforce,
        if_lost=if_lost,
        max_hold=max_hold,
        hold_at_least=hold_at_least,
        lock_delay=lock_delay,
        metadata=metadata,
        retry_delay=retry_delay,
        name=name,
    )
    return Lock(get_default, recipe, key=key)
