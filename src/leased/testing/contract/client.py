"""How checks ask a store and judge its answers; no property of stores is stated here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from leased.model import Claim, Contended, Held, Lease, Lost, Operation, Released, Status, Terms
from leased.store import Bell, Outcome, Store
from leased.testing.worlds import World

Check: TypeAlias = Callable[[World], Coroutine[Any, Any, None]]
"""One property of a store; it raises `ContractBroken` where the store lacks it. Its docstring states the property."""

_C = TypeVar("_C", bound=Check)

TIMEOUT = 5.0
"""Seconds each call of a check may take."""


class ContractBroken(AssertionError):
    """The store did what the contract forbids, or not what it promises."""


def moves_time(check: _C) -> _C:
    """Mark a check that lets more time pass than anyone would wait for on a live store."""
    check.moves_time = True  # type: ignore[attr-defined]  # functions may carry marks
    return check


def expect(condition: object, message: str) -> None:
    """Raise `ContractBroken` with the message unless the condition is true."""
    if not condition:
        raise ContractBroken(message)


def equal(found: object, wanted: object, *, what: str) -> None:
    """Raise `ContractBroken` unless both are equal."""
    expect(found == wanted, f"{what}: expected {wanted!r}, found {found!r}")


def new_claim(
    key: str, *, ttl: float, owner: str | None = None, late: bool = False, terms: Terms | None = None
) -> Claim:
    """A claim with a token of its own."""
    return Claim(key, secrets.token_hex(16), ttl, owner=owner, late=late, terms=terms or Terms(held_by="check@host:1"))


@dataclass(frozen=True, slots=True)
class Client:
    """A store as checks call it: no timeouts to repeat, and answers of the wrong kind are breaches."""

    store: Store

    async def ask(self, claim: Claim) -> Held | Contended:
        """What the store answers to a claim."""
        return await self.store.acquire(claim, timeout=TIMEOUT)

    async def granted(self, claim: Claim) -> Lease:
        """The lease of a claim that must be granted."""
        answer = await self.ask(claim)
        expect(isinstance(answer, Held), f"a claim on {claim.key!r} should have been granted: {answer!r}")
        return answer.lease if isinstance(answer, Held) else _never()

    async def refused(self, claim: Claim) -> Contended:
        """The answer to a claim that must be refused, though not because its token has ended."""
        answer = await self.ask(claim)
        refused = isinstance(answer, Contended) and not answer.ended
        expect(refused, f"a claim on {claim.key!r} should have been refused: {answer!r}")
        return answer if isinstance(answer, Contended) else _never()

    async def ended(self, claim: Claim) -> None:
        """See that a claim is refused because its token had its grant already."""
        answer = await self.ask(claim)
        ended = isinstance(answer, Contended) and answer.ended
        expect(ended, f"a token that has ended got another answer than `ended` on {claim.key!r}: {answer!r}")

    async def renew(self, lease: Claim | Lease, *, ttl: float, number: int) -> Held | Lost:
        """What the store answers to a renewal."""
        return await self.store.renew(lease.key, lease.token, ttl=ttl, number=number, timeout=TIMEOUT)

    async def renewed(self, lease: Claim | Lease, *, ttl: float, number: int) -> Lease:
        """The lease after a renewal that must work, or that must be answered though it changes nothing."""
        answer = await self.renew(lease, ttl=ttl, number=number)
        expect(isinstance(answer, Held), f"the holder of {lease.key!r} should have been answered `Held`: {answer!r}")
        return answer.lease if isinstance(answer, Held) else _never()

    async def look(self, lease: Claim | Lease) -> Held | Lost:
        """What the store knows of this token."""
        return await self.store.look(lease.key, lease.token, timeout=TIMEOUT)

    async def lost(self, lease: Claim | Lease, *, reason: str) -> None:
        """See that both a look and a renewal say that the lease is lost, and why."""
        for answer in (await self.look(lease), await self.renew(lease, ttl=lease.ttl, number=1_000)):
            lost = isinstance(answer, Lost) and answer.reason == reason
            expect(lost, f"the lease of {lease.key!r} is over, expected Lost({reason!r}): {answer!r}")

    async def holds(self, lease: Claim | Lease) -> Lease:
        """The lease that this token must have now."""
        answer = await self.look(lease)
        expect(isinstance(answer, Held), f"this token should still hold {lease.key!r}: {answer!r}")
        return answer.lease if isinstance(answer, Held) else _never()

    async def release(self, lease: Claim | Lease, *, late: bool = False) -> Released:
        """What the store answers to a release."""
        return await self.store.release(lease.key, lease.token, late=late, timeout=TIMEOUT)

    async def freed(self, lease: Claim | Lease, *, late: bool = False) -> None:
        """Release a lease that must be there to be released."""
        equal(await self.release(lease, late=late), Released(), what="release of a live lease")

    async def abandon(self, claim: Claim | Lease, *, heard: int | None = None) -> None:
        """Abandon a claim."""
        await self.store.abandon(claim.key, claim.token, heard=heard, timeout=TIMEOUT)

    async def force(self, key: str, *, fencing_token: int | None = None) -> bool:
        """Whether a forced release ended or opened anything."""
        return await self.store.force_release(key, fencing_token=fencing_token, timeout=TIMEOUT)

    async def status(self, key: str) -> Status:
        """What anyone may see of the key."""
        return await self.store.status(key, timeout=TIMEOUT)

    async def state(self, key: str) -> str:
        """Whether the key is free, held or closed."""
        return (await self.status(key)).state

    async def page(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[Status]:
        """One page of the list."""
        return await self.store.list(prefix, after=after, limit=limit, timeout=TIMEOUT)

    async def listed(self, prefix: str, *, limit: int = 1000) -> list[str]:
        """All keys of the list, page by page until one is empty."""
        keys: list[str] = []
        while page := await self.page(prefix, after=keys[-1] if keys else "", limit=limit):
            expect(len(page) <= limit, f"a page of at most {limit} has {len(page)} keys")
            expect(not keys or page[0].key.encode() > keys[-1].encode(), "a page begins where the last one ended")
            keys += [status.key for status in page]
        return keys

    async def many(self, *operations: Operation) -> Sequence[Outcome]:
        """What the store answers to a batch."""
        return await self.store.many(operations, timeout=TIMEOUT)

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """Have `bell` rung on later releases of the key."""
        return await self.store.watch(key, bell)


def _never() -> Any:
    """Where `expect` has raised already; for type checkers only."""
    raise AssertionError("unreachable")
