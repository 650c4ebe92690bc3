"""The store contract over compare-and-set: read, decide by the rules, write if nobody else has. It has no protocol."""

from __future__ import annotations

import builtins
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, cast

from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.model import (
    Abandon,
    Acquire,
    Assurance,
    Claim,
    Contended,
    Held,
    Look,
    Lost,
    Operation,
    Release,
    Released,
    Renew,
    Status,
)
from leased.store import Bell, Clock, Outcome, again
from leased.stores import _cas_record as values
from leased.stores import _sql_rules as rules
from leased.stores._cas_clock import ClientClock
from leased.stores._cas_record import Kept
from leased.stores._cas_shelf import NOTHING, Beaten, Found, Old, Put, Shelf, Written
from leased.stores._cas_sight import Own, Sight, Watcher, with_left
from leased.stores._sql_record import RETENTION, SECOND, digest_of
from leased.stores._sql_rules import Effect
from leased.stores._sql_session import key_of, settled, token_of
from leased.stores._standing import Standing
from leased.targets import Options

_T = TypeVar("_T")
_MOST_REMEMBERED = 4096
_SWEEP_EVERY = 512  # writes; seldom, for it costs whoever waits for the answer
_SWEEP_SELDOM = 4 * _SWEEP_EVERY  # while there is nothing to remove
_SWEEP_PAGE = 2 * _SWEEP_EVERY  # and more than can have been added since
_SWEEP_AFTER = 3_600.0
_SWEEP_TIME = 0.5
_LONGEST_NAP = 0.05


_NOTHING_KEPT = Kept()
_NOTHING_FOUND = NOTHING, _NOTHING_KEPT


class _Step:
    """One operation on its way: what it decides, what stands for its key as far as is known, and what came of it."""

    answer: Any = None
    own: Own | None = None
    settled = False
    asked_at = 0.0

    def __init__(
        self, key: str, token: str | None, *, decide: Callable[[Sight], tuple[Any, Effect | None]], grants: bool = False
    ) -> None:
        self.key = key
        self.token = None if token is None else digest_of(token)
        self.decide = decide
        self.grants = grants
        self.found: Found | None = None
        self.kept: Kept | None = None  # what the value of that says, where this process has written it
        self.after = _NOTHING_KEPT  # what the value to be written says
        self.guessed = False  # what was found is from memory: only a write proves it

    def settle(self, answer: Any) -> None:
        """It has come to its end."""
        self.answer, self.settled = answer, True


class CasStore:
    """Keeps the record of each key and the marks of its ended tokens in one value on a shelf.

    What was last seen of a key is remembered: a write that is bound to that version is right if it succeeds, and costs
    no reading. Nothing is answered from memory.
    """

    def __init__(
        self, shelf: Shelf, *, mode: Literal["blocking", "async"], wall: ClientClock, options: Options,
        standing: Standing, old: Old | None = None,
    ) -> None:  # fmt: skip
        """With `old`, records that nobody needs are removed from here, as the server does not forget by itself."""
        self._shelf = shelf
        self._mode: Literal["blocking", "async"] = mode
        self._clock: Clock = options.clock
        self._wall = wall
        self._standing = standing
        self._watcher = Watcher(options.clock, wall, options=options)
        self._remembered: OrderedDict[str, tuple[Found, Kept | None]] = OrderedDict()
        self._old = old
        self._sweep_every = _SWEEP_EVERY
        self._until_sweep = random.randint(1, _SWEEP_EVERY)  # also programs that end after a few calls sweep
        self._sweep_from = ""
        self._swept_at: float | None = None

    @property
    def offset(self) -> float:
        """Seconds added to the wall clock, always 0 except in tests."""
        return self._wall.offset

    @offset.setter
    def offset(self, seconds: float) -> None:
        self._wall.offset = seconds

    @property
    def mode(self) -> Literal["blocking", "async", "any"]:
        """See `leased.store`."""
        return self._mode

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        return cast("Held | Contended", await self._one(self._step_of(Acquire(claim)), timeout))

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`. Lost, too, if the wall clock was set since the lease was last written."""
        return cast("Held | Lost", await self._one(self._step_of(Renew(key, token, ttl, number)), timeout))

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        return cast("Released", await self._one(self._step_of(Release(key, token, late)), timeout))

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        await self._one(self._step_of(Abandon(key, token, heard)), timeout)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return cast("Held | Lost", await self._one(self._step_of(Look(key, token)), timeout))

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""
        step = _Step(key, None, decide=lambda seen: (rules.status(seen, key=key), None))
        return cast("Status", await self._one(step, timeout))

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        step = _Step(key, None, decide=partial(rules.force_release, fencing_token=fencing_token))
        return cast("bool", await self._one(step, timeout))

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""
        until = self._clock.now() + timeout
        shown: builtins.list[Status] = []
        while len(shown) < limit:
            most = limit - len(shown)
            left = max(until - self._clock.now(), 0.0)
            page = await self._shelf.page(prefix, after=after, limit=most, timeout=left)
            for key, found in page:
                seen = self._watcher.sight(key, values.read(key, found.value), version=found.version, token=None)
                status = rules.status(seen, key=key)
                shown += [status] if status.held else []
            if len(page) < most:
                break
            after = page[-1][0]
        return shown

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`."""

        def changed(value: bytes | None) -> None:
            if value is None or _opens(key, value):
                bell()

        return await self._shelf.watch(key, changed)

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`. The second operation on a key waits for the first."""
        until = self._clock.now() + timeout
        steps = [self._step_of(operation) for operation in operations]
        rest = steps
        while rest:
            first: dict[str, _Step] = {}
            for step in rest:
                first.setdefault(step.key, step)
            turn = builtins.list(first.values())
            await self._settle(turn, until=until)
            rest = [step for step in rest if not step.settled]
        return [step.answer for step in steps]

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return self._standing.assurance

    async def close(self) -> None:
        """See `leased.store`."""
        self._shelf.close()

    def _step_of(self, operation: Operation) -> _Step:
        decide: Callable[[Sight], tuple[Any, Effect | None]] = partial(settled, operation)
        if isinstance(operation, Renew | Look):
            decide = self._unless_doubted(decide, operation.token)
        key, token = key_of(operation), token_of(operation)
        return _Step(key, token, decide=decide, grants=isinstance(operation, Acquire))

    def _unless_doubted(
        self, decide: Callable[[Sight], tuple[_T, Effect | None]], token: str
    ) -> Callable[[Sight], tuple[_T | Lost, Effect | None]]:
        digest = digest_of(token)

        def decided(seen: Sight) -> tuple[_T | Lost, Effect | None]:
            answer, effect = decide(seen)
            if isinstance(answer, Held) and self._watcher.doubted(digest):
                return Lost("expired"), None
            return answer, effect

        return decided

    async def _one(self, step: _Step, timeout: float) -> Any:
        await self._settle([step], until=self._clock.now() + timeout)
        if isinstance(step.answer, LeasedError):
            raise step.answer
        return step.answer

    async def _settle(self, steps: builtins.list[_Step], *, until: float) -> None:
        """Bring all to their end; their keys differ. Whatever fails stands in the place of the answers."""
        asked_at = self._clock.now()
        for step in steps:
            step.asked_at = asked_at
            # Without a memory of it a new key is the usual case; only writes may guess.
            (step.found, step.kept), step.guessed = self._remembered.get(step.key, _NOTHING_FOUND), True
        attempt = 0
        while steps:
            left = until - self._clock.now()
            try:
                if left <= 0:
                    raise StoreUnavailable("others wrote the key again and again until the time-out", applied=False)
                beaten = await (self._try(steps[0], until) if len(steps) == 1 else self._try_all(steps, until))
            except LeasedError as error:
                for step in steps:
                    if not step.settled:
                        step.settle(again(error) if isinstance(error, StoreUnavailable) else error)
                return
            if beaten:
                await self._clock.sleep(min(_LONGEST_NAP, 0.001 * 2**attempt, left) * random.random())
                attempt += 1
            steps = [step for step in steps if not step.settled]
        if self._old is not None and self._due():
            await self._sweep(self._old)

    async def _try(self, step: _Step, until: float) -> bool:
        """Read what is not known, decide, and write. True if somebody else was faster with a key that had been read."""
        if step.found is None:
            (step.found,), step.kept = await self._shelf.get((step.key,), timeout=self._left(until)), None
            step.guessed = False
        put = self._decide(step)
        if put is None:
            return False
        self._until_sweep -= 1
        (result,) = await self._shelf.put((put,), timeout=self._left(until))
        return self._take(step, put, result)

    async def _try_all(self, steps: builtins.list[_Step], until: float) -> bool:
        """The same for several, which are read at once and written at once."""
        unread = [step for step in steps if step.found is None]
        if unread:
            keys = [step.key for step in unread]
            for step, found in zip(unread, await self._shelf.get(keys, timeout=self._left(until)), strict=True):
                step.found, step.kept, step.guessed = found, None, False
        puts = [(step, put) for step in steps if (put := self._decide(step)) is not None]
        if not puts:
            return False
        self._until_sweep -= len(puts)
        results = await self._shelf.put([put for _, put in puts], timeout=self._left(until))
        beaten = [self._take(step, put, result) for (step, put), result in zip(puts, results, strict=True)]
        return any(beaten)

    def _take(self, step: _Step, put: Put, result: Written | Beaten | StoreUnavailable) -> bool:
        """Note what came of a write, as `_try` tells it."""
        if isinstance(result, Written):
            self._remember(step.key, Found(result.version, put.value), step.after)
            if step.token is not None and step.own is not None:
                self._watcher.wrote(step.token, step.own)
            self._finish(step)
            return False
        if isinstance(result, Beaten):
            beaten = not step.guessed
            self._remember(step.key, result.found)
            step.found, step.kept, step.guessed = result.found, None, False
            return beaten
        self._remember(step.key, None)
        step.settle(result)
        return False

    def _decide(self, step: _Step) -> Put | None:
        """What is to be written for a step; `None` where it is settled, or has to be read first."""
        found = step.found or NOTHING
        try:
            if step.grants:
                self._standing.check()
            kept = step.kept
            if kept is None:
                kept = values.read(step.key, found.value) if found.version is not None else _NOTHING_KEPT
            seen = self._watcher.sight(step.key, kept, version=found.version, token=step.token)
            step.answer, effect = step.decide(seen)
        except StoreNotUsable as error:
            step.settle(error)
            return None
        if effect is None:
            if step.guessed:
                step.found = None
            else:
                self._remember(step.key, found, kept)
                self._finish(step)
            return None
        record = effect.record
        before = seen.record
        renewed = before is None or before.token != record.token or record.renewal > max(before.renewal, 0)
        leased = renewed and record.token is not None and record.token == step.token
        step.own = self._watcher.lease_of((record.expires_at - seen.now) / SECOND) if leased else None
        step.after = after = kept.after(effect, now=seen.now)
        return Put(step.key, values.write(after), found.version, after.forget_at)

    def _finish(self, step: _Step) -> None:
        """The answer of a step stands."""
        answer = step.answer
        if step.token is not None:
            if isinstance(answer, Held):
                believed = self._watcher.believed(answer, token=step.token, asked_at=step.asked_at)
                # A grant that came too late stays one, with nothing left: whoever asked hands it back.
                spent = step.grants and isinstance(believed, Lost)
                answer = with_left(answer, 0.0) if spent else believed
            elif not isinstance(answer, Lost) or not self._watcher.doubted(step.token):  # what is doubted stays so
                self._watcher.forget(step.token)
        step.settle(answer)

    def _remember(self, key: str, found: Found | None, kept: Kept | None = None) -> None:
        self._remembered.pop(key, None)
        if found is not None and found.version is not None:
            self._remembered[key] = found, kept
            if len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)

    def _left(self, until: float) -> float:
        return max(until - self._clock.now(), 0.0)

    def _due(self) -> bool:
        """Whether it is time to sweep: after so many writes, or after an hour."""
        at = self._wall.micros() / SECOND
        if self._swept_at is None:
            self._swept_at = at
        if self._until_sweep > 0 and at - self._swept_at < _SWEEP_AFTER:
            return False
        self._until_sweep, self._swept_at = self._sweep_every, at
        return True

    async def _sweep(self, old: Old) -> None:
        """Remove some of what nobody needs any more. One that fails or takes too long costs nobody his answer."""
        until, now = self._clock.now() + _SWEEP_TIME, self._wall.micros() / SECOND
        try:
            before = now - RETENTION / SECOND
            page, self._sweep_from = await old(before, begin=self._sweep_from, limit=_SWEEP_PAGE, timeout=_SWEEP_TIME)
            self._sweep_every = min(2 * self._sweep_every, _SWEEP_SELDOM)
            gone = [(key, found.version) for key, found in page if found.version is not None and _over(key, found, now)]
            if gone:
                self._sweep_every = _SWEEP_EVERY
                await self._shelf.remove(gone, timeout=self._left(until))
        except LeasedError:
            return


def _over(key: str, found: Found, now: float) -> bool:
    """Whether nobody needs it any more; what cannot be read is left to whoever can."""
    try:
        return not values.needed(found.value, now) and values.read(key, found.value).forget_at <= now
    except StoreNotUsable:
        return False


def _opens(key: str, value: bytes) -> bool:
    """Whether a value says that nobody holds the key."""
    try:
        record = values.read(key, value).record
    except StoreNotUsable:
        return False
    return record is None or record.token is None
