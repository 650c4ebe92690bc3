"""One store as one process has opened it for one face: what its locks and handles share. It holds no lock logic."""

from __future__ import annotations

import atexit
import os
import random
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from leased.checks import check_ttl, shown
from leased.engine import lose
from leased.env import Env
from leased.errors import InvalidRequest, StoreNotUsable
from leased.hold import Hold, Hook
from leased.observe import ENDS, Event, Observer, log
from leased.policy import min_ttl
from leased.queue import Lines
from leased.recipe import mint
from leased.store import Clock, Store
from leased.targets import Face, Options, Target, check_assurance, lines_of, open_store, read_url

_LOOK_AT = 128


class Keep(Protocol):
    """Notices a hold's loss, and renews it if `renewing`."""

    def __call__(self, hold: Hold, *, renewing: bool) -> None:
        """Keep this hold."""
        ...


class Client:
    """The store, the environment of the engine, and which blocks and bare handles are alive."""

    keep: Keep
    """Set by the face: how it keeps holds, by a thread or by a task of the running loop."""

    def __init__(
        self,
        target: Target,
        *,
        face: Face,
        store: Store | None,
        run_hook: Callable[[Hook], None],
    ) -> None:
        options = target.options
        self.store = open_store(target, face=face) if store is None else store
        self.env = Env(
            clock=options.clock,
            chance=random.Random(),
            mint=mint,
            lines=lines_of(target) if store is None else _lines_of_store(store),
            timeout=options.timeout,
            margin=options.clock_margin,
            observer=None if options.observer is None else self._observe(options.observer),
            run_hook=run_hook,
        )
        self.shown = target.shown
        self._least_ttl = min_ttl(options.clock_margin)
        self.closers: list[Callable[[], None]] = []
        self.blocks: set[Hold] = set()
        self.bare: set[weakref.ref[Hold]] = set()
        self._watched: dict[tuple[str, int], Hold] = {}  # bare ones whose end an observer is to be told
        self._look_at = _LOOK_AT
        check_assurance(self.store.assurance(), options.require, shown_url=target.shown)
        _clients.add(self)

    def check_open(self) -> None:
        """Raise `StoreNotUsable` once closed: nothing is granted any more."""
        if self.env.closed:
            raise StoreNotUsable(f"the locks on {self.shown} were closed", hint="connect again")

    def check_fits(self, ttl: float) -> None:
        """Raise `InvalidRequest` for a ttl that this clock margin would halve: a recipe may be older than its store."""
        if ttl < self._least_ttl:
            check_ttl(ttl, margin=self.env.margin)

    def remember(self, hold: Hold, *, renewing: bool) -> None:
        """This hold is that of a bare handle, kept if it is to be renewed. One that is forgotten is gone; where an
        observer wants to know its end, that is waited for."""
        bare = self.bare
        bare.add(weakref.ref(hold, bare.discard))
        if self.env.observer is not None:
            self._watch(hold)
        if renewing or self.env.observer is not None:
            self.keep(hold, renewing=renewing)

    def living(self) -> list[Hold]:
        """The holds of all blocks and bare handles; others may come and go meanwhile."""
        while True:
            try:
                bare = list(self.bare)
                handles = [hold for reference in bare if (hold := reference()) is not None and not hold.forgotten]
                return [*self.blocks, *handles]
            except RuntimeError:
                continue  # another thread has added one just now

    def _watch(self, hold: Hold) -> None:
        watched = self._watched
        watched[hold.key, hold.fencing_token] = hold
        if len(watched) >= self._look_at:
            self.notice_ends()
            self._look_at = max(_LOOK_AT, 2 * len(watched))

    def notice_ends(self) -> None:
        """Tell the ends of bare handles' leases that nobody noticed: the loops that kept them may be gone."""
        now = self.env.clock.now()
        for one in list(self._watched.values()):
            reason = one.lost_reason(now)
            if reason is not None:
                lose(self.env, one, reason)
                self._watched.pop((one.key, one.fencing_token), None)

    def _observe(self, observer: Observer) -> Observer:
        """The observer, and our own: a bare hold whose end is told needs to be watched no longer."""

        def tell(event: Event) -> None:
            if event.name in ENDS:
                self._watched.pop((event.key, event.data["fencing_token"]), None)
            observer(event)

        return tell

    def close(self) -> bool:
        """Grant nothing any more; what still runs is lost (`closed`) at its deadline. True if the store can go now."""
        self.env.closed = True
        self.notice_ends()
        for hold in self.living():
            hold.last_reason = "closed"
        for stop_keeping in self.closers:
            stop_keeping()
        return self.may_go()

    def may_go(self) -> bool:
        """Whether it was closed and nothing lives any more that will need the store for its release."""
        if not self.env.closed or self.blocks:
            return False
        now = self.env.clock.now()
        return not any(hold.ended is None and hold.remaining(now) > 0 for hold in self.living())


class PerProcess:
    """Opens a client on first use, once per process: a forked child begins anew, and what it inherited is kept
    referenced but neither used nor closed."""

    def __init__(self, open_client: Callable[[], Client]) -> None:
        self._open_client = open_client
        self._inherited: list[Client] = []
        self._mutex = threading.Lock()
        self._client: Client | None = None
        _openings.add(self)

    def get(self) -> Client:
        """The client of this process; raises `StoreNotUsable` once it was closed."""
        client = self._client
        if client is None:
            with self._mutex:
                client = self._client or self._open_client()
                self._client = client
        if client.env.closed:
            client.check_open()
        return client

    def close(self) -> Store | None:
        """Grant nothing any more; the store, if it can be closed now."""
        client = self._client
        if client is None or client.env.closed or not client.close():
            return None
        return client.store

    def begin_anew(self) -> None:
        """In a forked child: forget the parent's client, but do not let it go."""
        if self._client is not None:
            self._inherited.append(self._client)
        self._mutex, self._client = threading.Lock(), None


_openings: weakref.WeakSet[PerProcess] = weakref.WeakSet()
_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_store_lines: weakref.WeakKeyDictionary[Store, Lines] = weakref.WeakKeyDictionary()


def make_target(url: str | Store, *, clock: Clock, observer: Observer | None, given: dict[str, Any]) -> Target:
    """What `connect` was given, checked. A store object takes the place of a URL, for tests and stores of one's own."""
    options = Options(clock, observer=observer)
    if isinstance(url, str):
        return read_url(url, options, **given)
    if not callable(getattr(url, "acquire", None)):
        raise InvalidRequest(f"a store is named by a URL, not {shown(url)}", hint="such as 'sqlite:locks.db'")
    return replace(read_url("memory:", options, **given), shown=f"a {type(url).__name__}")


def reconnecting(target: Target, store: Store | None) -> tuple[str, dict[str, Any]]:
    """What a pickled `Locks` consists of: its URL and options. A store object and a URL with a secret are refused."""
    if store is not None or "@" in target.url or "?" in target.url:
        raise TypeError(
            f"the locks on {target.shown} cannot be pickled: what it takes to connect is a secret or an object of this "
            "process; call connect() where the copy is needed"
        )
    names = ("timeout", "namespace", "clock_margin", "skew_margin", "takeover", "require")
    return target.url, {name: getattr(target.options, name) for name in names}


def _lines_of_store(store: Store) -> Lines:
    lines = _store_lines.get(store)
    if lines is None:
        lines = _store_lines.setdefault(store, Lines())
    return lines


def _say_what_is_left() -> None:
    """At exit: leases that nobody released end by themselves, after their ttl; say so once."""
    left = [hold for client in _clients for hold in client.living() if hold.remaining(client.env.clock.now()) > 0]
    for hold in left:
        hold.end("closed")
    if left:
        log.warning("the program ends with %d lease(s) not released, such as on %r", len(left), left[0].key)


def _forget_parents() -> None:
    _clients.clear()
    _store_lines.clear()
    for opening in tuple(_openings):
        opening.begin_anew()


atexit.register(_say_what_is_left)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
