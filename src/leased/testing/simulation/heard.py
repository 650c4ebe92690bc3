"""A store around a client's store that notes what its engine asks and hears; it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from leased.errors import AccessDenied, LeasedError, StoreUnavailable
from leased.model import Abandon, Assurance, Claim, Contended, Held, Lost, Operation, Released, Renew, Status
from leased.policy import MIN_CALL_TIMEOUT
from leased.store import Bell, Outcome, Store


class Heard:
    """What the engine of one client knows, by token.

    `asking`: claims under way. `unanswered`: an acquire of it may have happened unheard. `unsure`: so may a release.
    `given_back`: it was abandoned, or tried to be. `lost`: the store said that it holds nothing. `denied`: a rule
    refused it. `looked`, by key: when the last refusal was heard by one who waits. `failed(asked_at)` is told of calls
    that had time for an answer and got none.
    """

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], float],
        asks: Callable[[Claim], None],
        renews: Callable[[str], None],
        failed: Callable[[float], None],
        waits: Callable[[Claim], bool],
    ) -> None:
        self._store = store
        self._now = now
        self._asks = asks
        self._renews = renews
        self._failed = failed
        self._waits = waits
        self.asking: dict[str, Claim] = {}
        self.lost: set[str] = set()
        self.denied: set[str] = set()
        self.looked: dict[str, float] = {}
        self.unanswered: set[str] = set()
        self.unsure: set[str] = set()
        self.given_back: set[str] = set()

    @property
    def mode(self) -> Literal["blocking", "async", "any"]:
        """As the store within."""
        return self._store.mode

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        self._asks(claim)
        self.asking[claim.token] = claim
        try:
            with self._noting(self.unanswered, claim.token, timeout=timeout):
                outcome = await self._store.acquire(claim, timeout=timeout)
        finally:
            del self.asking[claim.token]
        if isinstance(outcome, Contended) and self._waits(claim):
            self.looked[claim.key] = self._now()
        return outcome

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        self._renews(token)
        with self._noting(set(), token, timeout=timeout):
            outcome = await self._store.renew(key, token, ttl=ttl, number=number, timeout=timeout)
        if isinstance(outcome, Lost):
            self.lost.add(token)
        return outcome

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        with self._noting(self.unsure, token, timeout=timeout):
            return await self._store.release(key, token, late=late, timeout=timeout)

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        self.given_back.add(token)
        with self._noting(set(), token, timeout=timeout):
            await self._store.abandon(key, token, heard=heard, timeout=timeout)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return await self._store.look(key, token, timeout=timeout)

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""
        return await self._store.status(key, timeout=timeout)

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""
        return await self._store.list(prefix, after=after, limit=limit, timeout=timeout)

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        return await self._store.force_release(key, fencing_token=fencing_token, timeout=timeout)

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`."""
        return await self._store.watch(key, bell)

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`."""
        self.given_back.update(one.token for one in operations if isinstance(one, Abandon))
        for operation in operations:
            if isinstance(operation, Renew):
                self._renews(operation.token)
        with self._noting(set(), "", timeout=timeout):
            outcomes = await self._store.many(operations, timeout=timeout)
        for operation, outcome in zip(operations, outcomes, strict=True):
            if isinstance(operation, Renew) and isinstance(outcome, Lost):
                self.lost.add(operation.token)
        return outcomes

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return self._store.assurance()

    async def close(self) -> None:
        """See `leased.store`."""
        await self._store.close()

    @contextmanager
    def _noting(self, tokens: set[str], token: str, *, timeout: float) -> Iterator[None]:
        """Note the token, unless the store answers or says that nothing happened."""
        asked_at, known = self._now(), token in tokens
        tokens.add(token)
        try:
            yield
        except StoreUnavailable as error:
            if timeout >= MIN_CALL_TIMEOUT:
                self._failed(asked_at)
            if error.applied is False and not known:
                tokens.discard(token)
            raise
        except LeasedError as error:  # refused: nothing was done
            if isinstance(error, AccessDenied):
                self.denied.add(token)
            if not known:
                tokens.discard(token)
            raise
        if not known:
            tokens.discard(token)
