"""The two seams, `Store` and `Clock`, with the contract in words: the normative text for whoever writes a store.

**One record per key** carries everything: `key, token (as its SHA-256), owner, fencing_token, renewal, acquired_at,
expires_at, free_at, deadline, ttl, terms, late, forced` (`ttl` as last set). On the store's clock a key is

| state | when |
| --- | --- |
| held | `now < expires_at`, and it was not released, forced or abandoned |
| closed | not held, and `now < free_at` |
| open | otherwise; a record that is still there then says only which token had the last lease |

A key that was released, abandoned or opened stays open even if the store's clock is set back afterwards.

The record of an open key may go at any time, but one that lapsed and is `late` stays until `REPLAY_WINDOW` seconds
after its expiry, so that its token is still refused.

`acquired_at` is the instant of the grant, `deadline = acquired_at + max_hold`; every grant and renewal sets
`expires_at = min(now + ttl, deadline)` and `free_at = max(expires_at + lock_delay, acquired_at + hold_at_least)`.

**Marks** remember ended tokens, with the first reason, until `REPLAY_WINDOW` seconds after they were last marked; they
are looked for by token. A store may look only among the marks of the key that is asked for: a token is for one claim.

**Fencing tokens** rise with every grant of a key, whatever happened in between: `max(previous + 1, wall clock in µs)`,
where `previous` is the last number of the key, or of the whole store.

Each operation is one atomic step. The rows of a table are tried from the top.

| `acquire(claim)` finds | answer | effect |
| --- | --- | --- |
| this token holds the key | `Held`, same fencing token | `late` of the claim is added; it is counted; nothing else |
| a mark of this token, or a lapsed record with it | `Contended(ended=True)` | none: a token gets at most one grant |
| the key held, owners equal and not null | `Held` | new grant; the old token is marked `retaken` |
| the key held, or closed | `Contended(status)` | none |
| the key open | `Held` | new grant; the token of a lapsed record that is `late` is marked `expired` |

| `renew(key, token, ttl, number)` finds | answer | effect |
| --- | --- | --- |
| this token holds the key, `number` above the record's | `Held` | `renewal = number`; expiry **set** from now |
| this token holds the key, `number` not above | `Held` with the record's number | none |
| a lapsed record with this token | `Lost`: `max_hold` if `now >= deadline`, else `expired` | none: nothing is revived |
| a mark `retaken` or `force_released` of this token | `Lost` with that reason | none |
| the key held by another token | `Lost("taken")` | none |
| anything else | `Lost("expired")` | none |

`look(key, token)` answers as `renew` does and never changes anything.

Until its first renewal a record counts how often claims were answered `Held`: the grant is the first. It counts below
zero, in `renewal` (-1 after the grant), which is shown as 0 then; no number of a renewal is below 0.

| `release(key, token, late)` finds | answer | effect |
| --- | --- | --- |
| this token holds the key | `Released()` | `free_at = max(now, acquired_at + hold_at_least)`; the token is forgotten |
| a lapsed record with this token | `Released("expired")` | none: `lock_delay` and `hold_at_least` go on |
| anything else | `Released("not_holder")` | none |

With `late`, or a `late` record, it also marks the token, whatever it found.

`abandon(key, token)`: marks the token, always; if it holds the key, the key opens at once (no `hold_at_least`, no
`lock_delay`). A lapsed record stays as it is. Afterwards this token holds nothing and is never granted. With `heard`
nothing happens, and nothing is marked, if the token holds the key and the count is a higher one, or over: then somebody
else was told that it does. So of several that ask with one token, such as the replicas of a service, each can take back
what it alone can have heard of.

| `force_release(key, fencing_token)` finds | answer | effect |
| --- | --- | --- |
| a number that is not the record's fencing token | `False` | none |
| the key held | `True` | token marked `force_released`; `free_at = now + lock_delay`; `forced` is set |
| the key closed, `forced` | `False` | none: the delay that a forced release started stands |
| the key closed | `True` | the key opens; the token of a lapsed `late` record is marked `expired` |
| the key open | `False` | none |

`status(key)` and `list(...)` show held and closed keys with the record's fencing token, a closed one with nothing
else but when it opens; an open key is `free`. `list` gives keys that begin with `prefix` and come after `after`, in
the order of their UTF-8 bytes, at most `limit` of them: repeated with the last key as `after` until a page is empty it
is complete.

`many(operations)` answers in order, each as if it ran alone; it is not atomic as a whole, and the failure of one member
never changes another's outcome: it stands in its place as the `LeasedError` it would have raised. A failed commit
leaves every member unknown.

`watch(key, bell)`: on return every later release, abandon or forced release of `key` rings `bell`, from any thread. It
is a hint: it may be lost, and may ring for nothing. The answer ends the watch.

**Errors.** `StoreUnavailable` only when there was no answer; its `applied` says whether it may have happened.
Contention is never an error and no error is ever read as contention. What cannot work here is `StoreNotUsable`, at
once. `timeout` is in seconds and bounds the whole call: pool, connect, send and retries.

**Times** are kept at least as long as asked for: a store rounds up to its own resolution.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from leased.errors import LeasedError, StoreUnavailable
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

Outcome: TypeAlias = Held | Contended | Lost | Released | None | LeasedError
"""What a batch answers for one of its members; an error stands for "this one raised it"."""

Bell: TypeAlias = Callable[[], None]
"""Rung by a watch, from any thread; it never waits and never raises."""


class Store(Protocol):
    """Decides who holds a key, on its own clock. The module's text is the contract; `leased.testing` checks it."""

    @property
    def mode(self) -> Literal["blocking", "async", "any"]:
        """Who may call it: blocking callers, an event loop, or (a store that never waits) both."""
        ...

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """Grant the key to this claim, or say who has it."""
        ...

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """Set the expiry to now + ttl if this token holds the key; never create, never revive."""
        ...

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """Free the key if this token holds it."""
        ...

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """Whatever became of this claim: it holds nothing now and is never granted later; with `heard`, unless it holds
        the key and was renewed, or claims with its token were answered `Held` more often than that."""
        ...

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """Whether this token holds the key, with the time left and the renewal number."""
        ...

    async def status(self, key: str, *, timeout: float) -> Status:
        """What anyone may see of the key."""
        ...

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """A page of the held and closed keys that begin with `prefix`, in byte order."""
        ...

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """End the lease, or open the closed key, without its token; with a number, only if it is still that one."""
        ...

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """Ring `bell` on later releases of `key`, until the returned function is called."""
        ...

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """A batch in one step or one round trip."""
        ...

    def assurance(self) -> Assurance:
        """What this store, as configured now, really gives."""
        ...

    async def close(self) -> None:
        """Free connections and threads; a later call raises `StoreNotUsable`."""
        ...


class Signal(Protocol):
    """By which callers of one process wake each other; it stays set until a wait has seen it."""

    def set(self) -> None:
        """Wake the waiter, now or when it waits next; from any thread, never waits, never raises."""
        ...

    async def wait(self, seconds: float) -> bool:
        """Wait for `set` at most so long; true if it was set, and then it no longer is."""
        ...


class Clock(Protocol):
    """Time, sleep, signals, and work that must end whatever becomes of its caller."""

    def now(self) -> float:
        """Monotonic seconds from any zero, counting the time that the machine is suspended."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch, which others may set: for display and fencing tokens only."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let so many seconds pass; 0 lets whoever is ready go first."""
        ...

    def signal(self) -> Signal:
        """A new signal."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> object:
        """Run work to its end whatever becomes of the caller: beside it, or (blocking) here and now."""
        ...


async def one(store: Store, operation: Operation, *, timeout: float) -> Held | Contended | Lost | Released | None:
    """Run a single operation that came as a value, by the store's own method for it."""
    match operation:
        case Acquire(claim):
            return await store.acquire(claim, timeout=timeout)
        case Renew(key, token, ttl, number):
            return await store.renew(key, token, ttl=ttl, number=number, timeout=timeout)
        case Release(key, token, late):
            return await store.release(key, token, late=late, timeout=timeout)
        case Abandon(key, token, heard):
            await store.abandon(key, token, heard=heard, timeout=timeout)
            return None
        case Look(key, token):
            return await store.look(key, token, timeout=timeout)


async def each(store: Store, operations: Sequence[Operation], *, timeout: float) -> list[Outcome]:
    """`many` for a store that has nothing better: one after the other."""
    outcomes: list[Outcome] = []
    for operation in operations:
        try:
            outcomes.append(await one(store, operation, timeout=timeout))
        except LeasedError as error:
            outcomes.append(error)
    return outcomes


def again(error: StoreUnavailable) -> StoreUnavailable:
    """The same failure for another caller: one exception for all would collect the traces of all their threads."""
    return type(error)(error.message, applied=error.applied, hint=error.hint)


def unwatched() -> None:
    """The answer of `watch` for a store that cannot push: there is nothing to end."""
