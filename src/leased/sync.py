"""The blocking face: the engine stepped in the caller's thread. It adds no lock logic of its own."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from leased import engine
from leased.checks import Duration, check_fencing_token, check_key, check_limit, check_prefix
from leased.client import Client, PerProcess, make_target, reconnecting
from leased.clocks import BlockingClock, step
from leased.errors import LockNotHeld
from leased.handle import read_dump
from leased.hold import Hold, lost_error
from leased.hooks import run_hook
from leased.keeper import Keeper
from leased.model import Assurance, Claim, Lost, Status
from leased.observe import Observer
from leased.policy import CLOCK_MARGIN, DEFAULT_MAX_HOLD, DEFAULT_TTL, MAX_LIST_PAGE, OPERATION_TIMEOUT, SKEW_MARGIN
from leased.recipe import check_token, make_recipe
from leased.store import Clock, Store
from leased.sync_handle import Handle
from leased.sync_lock import Lock
from leased.targets import Target
from leased.threads import KeeperClock, Workers, start_keeper


class Locks:
    """The locks of one store. It opens nothing before first use; threads may share it, and each process has its own
    connection: a forked child begins anew and holds nothing of its parent's."""

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

    def status(self, key: str) -> Status:
        """What anyone may see of a key: advice, not a test."""
        client = self._client()
        return step(client.store.status(check_key(key), timeout=client.env.timeout))

    def list(self, prefix: str = "", *, limit: int | None = None) -> builtins.list[Status]:
        """All held and closed keys that begin with `prefix`, in the order of their bytes; with `limit` no more than the
        first so many, for which no more is asked of the store."""
        client, prefix, most = self._client(), check_prefix(prefix), check_limit(limit)
        found: list[Status] = []
        page: list[Status] | None = None
        while (page is None or page) and (most is None or len(found) < most):
            after = page[-1].key if page else ""
            size = MAX_LIST_PAGE if most is None else min(MAX_LIST_PAGE, most - len(found))
            page = step(client.store.list(prefix, after=after, limit=size, timeout=client.env.timeout))
            found += page
        return found

    def force_release(self, key: str, fencing_token: int | None = None) -> bool:
        """End a lease, or open a closed key, without its token. True if something was ended.

        It breaks exclusion where nothing checks fencing tokens. With a number it acts only if that is still the holder,
        or the last one of a closed key, so that a late repeat cannot hit the successor.
        """
        client, number = self._client(), check_fencing_token(fencing_token)
        done = step(client.store.force_release(check_key(key), fencing_token=number, timeout=client.env.timeout))
        if done:
            client.env.lines.released(key)
            client.env.tell("force_released", key, data={"fencing_token": fencing_token})
        return done

    def abandon(self, key: str, token: str) -> None:
        """Whatever became of a claim with this token: it holds nothing now and is never granted later."""
        client = self._client()
        step(client.store.abandon(check_key(key), check_token(token), timeout=client.env.timeout))
        client.env.lines.released(key)

    def restore(self, text: str, *, renew: bool = False) -> Handle:
        """The handle of a lease that was dumped or handed over, after asking the store once: with the true remaining
        time, and renewed only when asked. Raises `LockNotHeld` when the lease is over."""
        client = self._client()
        claim = Claim(ttl=DEFAULT_TTL, **read_dump(text))
        outcome = step(engine.restore(client.store, client.env, claim))
        if isinstance(outcome, Lost):
            error = lost_error(claim.key, outcome.reason)
            raise LockNotHeld(error.message, key=claim.key, reason=outcome.reason, hint="acquire it anew")
        client.remember(outcome, renewing=renew)
        return Handle(client, outcome, None, scoped=False)

    @property
    def assurance(self) -> Assurance:
        """What this store, as configured now, really gives."""
        return self._client().store.assurance()

    def close(self) -> None:
        """Grant and renew nothing any more. Nothing is released under a block that still runs, and a bare handle can
        still be released: such handles are lost (`closed`) at their deadlines, and the store goes after the last."""
        store = self._opening.close()
        if store is not None:
            step(store.close())

    def __enter__(self) -> Locks:
        """Itself; the block closes it."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close."""
        self.close()

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
    target = make_target(url, clock=clock or BlockingClock(), observer=observer, given=given)
    return Locks(target, store=None if isinstance(url, str) else url)


def _open(target: Target, store: Store | None) -> Client:
    client = Client(target, face="blocking", store=store, run_hook=run_hook)
    workers = Workers()
    keeper = Keeper(client.store, replace(client.env, clock=KeeperClock(client.env.clock, workers)))

    def keep(hold: Hold, *, renewing: bool) -> None:
        if keeper.add(hold, renewing=renewing):
            start_keeper(keeper)

    client.keep = keep
    client.closers += [keeper.close, workers.close]
    return client


def _reconnect(url: str, given: dict[str, Any]) -> Locks:
    return connect(url, **given)
