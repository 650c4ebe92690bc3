"""Acquires that wait: each in the line of its key, for as long as somebody listens, and given back when nobody does.

A wait outlives the request that began it by a moment, so that a client who is told to ask again finds its place kept.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from leased import engine
from leased.env import Env
from leased.errors import LeasedError, RateLimited, StoreNotUsable, StoreUnavailable
from leased.model import Claim, Contended, Held, Status
from leased.policy import FOREVER, call_timeout
from leased.server.calls import Disconnected, Receive, has_gone, until_gone
from leased.server.copies import Copies
from leased.server.settings import Settings
from leased.server.tenancy import project_of
from leased.server.troubles import ServiceUnavailable
from leased.store import Clock, Store

if TYPE_CHECKING:
    from leased.hold import Hold

RETRY_AFTER = 1.0
"""Seconds after which it is worth asking again where no line had room, or the service was about to end."""


class _Heard:
    """The store of one wait: it keeps what was last said to the claim, and ends the wait between two questions."""

    def __init__(self, store: Store, clock: Clock, *, claim: Claim, copies: Copies) -> None:
        self._store = store
        self._clock = clock
        self._claim = claim
        self._copies = copies
        self.outcome: Held | Contended | None = None
        self.asked_at = 0.0
        self.asking = False
        self.retiring = False
        self.task: asyncio.Task[Hold | Contended] | None = None

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `Store`."""
        if self.retiring:  # woken before its end came: it does not ask again
            raise shutting_down()
        asked_at = self._clock.now()
        self.asking, self.outcome = True, None
        try:
            outcome = await self._store.acquire(claim, timeout=timeout)
            self.asked_at, self.outcome = asked_at, outcome
            self._copies.hear(self._claim, outcome)
            return outcome
        finally:
            self.asking = False
            self._go_on()

    def _go_on(self) -> None:
        """Not if the wait is to end: a grant ends it by itself, anything else is where it stops."""
        if self.retiring and not isinstance(self.outcome, Held) and self.task is not None:
            # Not at once: a task that cancels itself and then ends without another wait loses what it returns.
            asyncio.get_running_loop().call_soon(self.task.cancel)

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `Store`; but copies of the claim may still be answered, so that it is only noted."""
        self._copies.owe(self._claim)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Wait:
    """One claim in the line, and the requests that listen to what becomes of it."""

    __slots__ = (
        *("began", "claim", "counts", "ends", "heard", "linger", "listeners", "minted", "settled", "task", "who"),
    )

    def __init__(self, claim: Claim, *, who: str, heard: _Heard, began: float, ends: float, minted: bool) -> None:
        self.claim = claim
        self.minted = minted
        self.began = began
        self.ends = ends  # where that is never, when nobody listens any more
        self.who = who
        self.heard = heard
        self.listeners: set[asyncio.Future[None]] = set()
        self.linger: asyncio.TimerHandle | None = None
        self.counts = True  # as one of the copies of its claim
        self.settled = False  # what it won was told to somebody, or is handed back
        self.task: asyncio.Task[Hold | Contended]

    def retire(self) -> None:
        """End it before its next question; the one that is on its way is answered first, and then its grant counts."""
        self.heard.retiring = True
        if not self.heard.asking:
            self.task.cancel()

    def hold(self) -> Hold | None:
        """What it has won."""
        if not self.task.done() or self.task.cancelled() or self.task.exception() is not None:
            return None
        won = self.task.result()
        return None if isinstance(won, Contended) else won

    def may_hold(self) -> bool:
        """Whether it ended without anybody knowing what the store did last."""
        error = self.task.exception() if self.task.done() and not self.task.cancelled() else None
        return isinstance(error, StoreUnavailable) and error.applied is not False


class Waiter(NamedTuple):
    """A claim that waits: for how many seconds, and how many more at the most, if that is known."""

    claim: Claim
    waited: float
    left: float | None


class Waiting:
    """All waits of this process."""

    def __init__(self, store: Store, env: Env, settings: Settings) -> None:
        self._store = store
        self._env = env
        self._settings = settings
        self._waits: dict[tuple[str, str], _Wait] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # of these, and of those that others have replaced
        self._each: dict[str, int] = {}
        self._draining = False
        self.copies = Copies(store, env)

    def __len__(self) -> int:
        """How many claims wait."""
        return len(self._waits)

    def by_project(self) -> Counter[str]:
        """How many of each project."""
        return Counter(project_of(key) for key, _ in self._waits)

    def by_key(self) -> Counter[str]:
        """How many for each stored key."""
        return Counter(key for key, _ in self._waits)

    def of(self, key: str) -> list[Waiter]:
        """Who waits for a stored key, in order."""
        now = self._env.clock.now()
        return [
            Waiter(one.claim, now - one.began, None if one.ends == FOREVER else max(0.0, one.ends - now))
            for (named, _), one in self._waits.items()
            if named == key and not one.task.done()
        ]

    async def acquire(
        self, claim: Claim, *, wait: float, who: str, receive: Receive, minted: bool = False
    ) -> Held | Contended:
        """Wait for the key, but no longer than one slice. `who` counts for the limits, the empty name only in total.
        `minted`: the token was made here, and nobody else knows it.

        Raises `Disconnected` once the client has gone (then nothing is held for it), `RateLimited` where no more can
        wait, and `StoreUnavailable` if the service is about to end or the store was the last word.
        """
        await self.copies.begin(claim, minted=minted)
        outcome: Held | Contended | None = None
        try:
            outcome = await self._wait(claim, wait=wait, who=who, receive=receive)
            return outcome
        finally:
            self.copies.end(claim, outcome)

    async def _wait(self, claim: Claim, *, wait: float, who: str, receive: Receive) -> Held | Contended:
        env, most = self._env, self._settings.max_wait_slice
        began, until = env.clock.now(), asyncio.get_running_loop().time() + min(wait, most)
        goes_on = wait >= most  # who may be kept no longer than that is about to come back for the rest
        found, unsure = self._find(claim), False
        if found is None and not env.lines.waiting(claim.key):
            outcome, unsure = await self._try(claim, wait=wait, receive=receive)
            if outcome is not None:
                return outcome
            found = self._find(claim)  # a copy of it may have come meanwhile
        if found is None:
            left = FOREVER if goes_on else wait - (env.clock.now() - began)
            try:
                found = self._begin(claim, wait=left, who=who, unsure=unsure)
            except LeasedError as error:
                if unsure and isinstance(error, StoreUnavailable) and not has_gone(receive):
                    error.applied = None  # whoever brought the token asks again with it
                elif unsure:
                    self.copies.owe(claim)
                raise
        await self._listen(found, receive, until=until if goes_on or found.ends == FOREVER else None, goes_on=goes_on)
        return await self._answer(found, began=began)

    def drain(self) -> None:
        """Let nobody wait any more: claims that are being asked are answered, all others told to ask elsewhere."""
        self._draining = True
        for wait in tuple(self._waits.values()):
            wait.retire()

    async def settle(self, seconds: float) -> None:
        """After `drain`: wait at most so long until what is asked is answered, and what nobody wants is handed back."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (working := self._working()) and (left := until - loop.time()) > 0:
            await asyncio.wait(working, timeout=left)
            await asyncio.sleep(0)  # a grant that nobody wants is handed back by what its end calls

    def _working(self) -> set[asyncio.Task[Any]]:
        return self._tasks | self.copies.handing_back()

    def _find(self, claim: Claim) -> _Wait | None:
        """The wait that has begun for this claim already, if it can go on."""
        found = self._waits.get((claim.key, claim.token))
        if found is None:
            return None
        if found.claim != claim:
            self._give_up(found)
            return None
        if found.heard.retiring and not self._draining:
            if not found.heard.asking:
                return None
            found.heard.retiring = False
        return found

    async def _try(self, claim: Claim, *, wait: float, receive: Receive) -> tuple[Held | Contended | None, bool]:
        """Ask at once where nobody waits before this claim. Without an outcome it has to stand in line after all; then
        this also says whether the store may have granted it all the same."""
        env = self._env
        try:
            outcome = await self._store.acquire(claim, timeout=call_timeout(env.timeout, wait=wait, left=wait))
        except StoreNotUsable:
            raise
        except StoreUnavailable as error:
            return None, error.applied is not False
        if isinstance(outcome, Contended):
            return (outcome if outcome.ended else None), False
        self.copies.hear(claim, outcome)
        if has_gone(receive):
            self.copies.owe(claim)
            raise Disconnected
        return outcome, False

    def _begin(self, claim: Claim, *, wait: float, who: str, unsure: bool) -> _Wait:
        if self._draining:
            raise shutting_down()
        settings = self._settings
        if len(self._waits) >= settings.max_waiters or (who and self._each.get(who, 0) >= settings.max_waiters_each):
            most = settings.max_waiters if len(self._waits) >= settings.max_waiters else settings.max_waiters_each
            raise RateLimited(f"{most} claims wait already, and no more can", retry_after=RETRY_AFTER)
        heard = _Heard(self._store, self._env.clock, claim=claim, copies=self.copies)
        minted = self.copies.minted(claim)
        now = self._env.clock.now()
        new = _Wait(claim, who=who, heard=heard, began=now, ends=now + wait, minted=minted)
        asking = self._ask(heard, claim, wait=max(wait, 0.001), unsure=unsure)
        heard.task = new.task = asyncio.get_running_loop().create_task(asking)
        self._tasks.add(new.task)
        self._waits[claim.key, claim.token] = new
        self.copies.join(claim)
        self._each[who] = self._each.get(who, 0) + 1
        new.task.add_done_callback(lambda _: self._ended(new))
        return new

    async def _ask(self, heard: _Heard, claim: Claim, *, wait: float, unsure: bool) -> Hold | Contended:
        """Ask in turn. `unsure`: an earlier copy may still be granted, and is taken back unless this one is."""
        lost = unsure
        try:
            won = await engine.acquire(cast("Store", heard), self._env, claim, wait=wait, brought=True)
            lost = unsure and isinstance(won, Contended)
        except LeasedError as error:
            if unsure and isinstance(error, StoreUnavailable):
                error.applied = None  # the last copy may have had no effect, but the first may have
            lost = False  # whoever brought the token asks again with it
            raise
        finally:
            if lost:
                self.copies.owe(claim)
        return won

    async def _listen(self, wait: _Wait, receive: Receive, *, until: float | None, goes_on: bool) -> None:
        """Until the wait is over, the client has gone, or its time has passed; its place is kept if it `goes_on`."""
        if wait.linger is not None:
            wait.linger.cancel()
            wait.linger = None
        if wait.task.done():
            if has_gone(receive):
                if not wait.listeners and not wait.settled:
                    self._give_up(wait)
                raise Disconnected
            return
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        wait.listeners.add(woken)
        gone = loop.create_task(until_gone(receive))
        gone.add_done_callback(lambda _: _wake(woken))
        timer = None if until is None else loop.call_at(until, _wake, woken)
        left = True
        try:
            await woken
            left = has_gone(receive)  # now, not when the grant woke us: turns have passed since
        finally:
            gone.cancel()
            if timer is not None:
                timer.cancel()
            wait.listeners.discard(woken)
            over = left or (not goes_on and not wait.task.done())
            if not wait.listeners and over and not wait.settled:
                self._give_up(wait)
            elif not wait.listeners and not wait.task.done():
                wait.linger = loop.call_later(self._settings.wait_linger, self._give_up, wait)
        if left:
            raise Disconnected

    def _ended(self, wait: _Wait) -> None:
        """The engine has finished with it: tell who listens, or keep what it won for the moment it has left."""
        self._tasks.discard(wait.task)
        left = self._each[wait.who] - 1
        if left:
            self._each[wait.who] = left
        else:
            del self._each[wait.who]
        for woken in wait.listeners:
            _wake(woken)
        alone = wait.heard.retiring and not wait.listeners
        if alone:
            self._forget(wait)
        elif wait.hold() is None:
            self._take_out(wait)  # whoever listens is told of it, unless all of them vanish before
        self._count_out(wait)

    def _give_up(self, wait: _Wait) -> None:
        """Nobody listens to it any more: what it has won, or wins yet, is handed back."""
        if wait.task.done():
            self._forget(wait)
        else:
            wait.retire()

    def _forget(self, wait: _Wait) -> None:
        """It is over, and nobody was told of what it won, or may have won."""
        hold = wait.hold()
        if not wait.settled and (hold is not None or wait.may_hold()):
            wait.settled = True
            if hold is not None:
                hold.end("released")
                self._env.lines.block_ended(hold.key, hold.owner, hold=hold)
            self.copies.owe(wait.claim, minted=wait.minted)
        self._take_out(wait)

    def _take_out(self, wait: _Wait) -> None:
        key = wait.claim.key, wait.claim.token
        if self._waits.get(key) is wait:  # else another copy has begun anew
            del self._waits[key]
        self._count_out(wait)

    def _count_out(self, wait: _Wait) -> None:
        """It asks no more, and nobody will be told of what it won."""
        if wait.counts and wait.task.done() and self._waits.get((wait.claim.key, wait.claim.token)) is not wait:
            wait.counts = False
            self.copies.end(wait.claim, None)

    async def _answer(self, wait: _Wait, *, began: float) -> Held | Contended:
        clock = self._env.clock
        if not wait.task.done():
            seen: Status | None = None
            with suppress(LeasedError):  # whom one waits for is only shown
                seen = await self._store.status(wait.claim.key, timeout=self._env.timeout)
            return Contended(seen, waited=clock.now() - began)
        wait.settled = True
        self._take_out(wait)
        if wait.task.cancelled():
            raise shutting_down()
        won, outcome, now = wait.task.result(), wait.heard.outcome, clock.now()
        if isinstance(won, Contended):
            ended = isinstance(outcome, Contended) and outcome.ended
            return Contended(won.status, ended, waited=now - began)
        lease = cast("Held", outcome).lease
        # A store that waited itself counts from its grant on: `waited` of it went by before there was a lease.
        left = min(lease.left, max(lease.waited + lease.left - (now - wait.heard.asked_at), 0.0))
        return Held(replace(lease, left=left, waited=now - began))


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def shutting_down() -> ServiceUnavailable:
    """What those are told whose claim was not granted, because the service ends."""
    error = ServiceUnavailable("the service is shutting down", applied=False, hint="ask again: another one may answer")
    error.retry_after = RETRY_AFTER
    return error
