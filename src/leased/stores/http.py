"""The store behind a lock service: each operation is one request to it, and the service's store decides."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar, cast
from urllib.parse import quote

from leased.errors import InvalidRequest, LeasedError, StoreUnavailable
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
from leased.policy import MAX_FENCING_TOKEN, MAX_LIST_PAGE
from leased.store import Bell, Outcome, again, unwatched
from leased.stores._drivers import driver
from leased.stores._http_answers import understand
from leased.stores._http_link import Link
from leased.stores._http_names import Names
from leased.stores._http_url import Address, place_of, read_address
from leased.wire import (
    PREFIX,
    Body,
    Unreadable,
    name_of,
    read_forced,
    read_status,
    write_force_release,
    write_operation,
)
from leased.wire_batch import MOST_OPERATIONS, read_outcomes, read_page, write_member

if TYPE_CHECKING:
    from leased.targets import Face, Options

__all__ = ["HttpStore", "open", "place_of"]

LONGEST_WAIT = 25.0
"""Seconds the service may keep a claim with one request: less than what lies between commonly allows to be silent."""

_SPARED = 0.25
"""Of a wait, as a share and in seconds, what is left for the answer to come back: the smaller of the two. A place in
the service's line lasts as long as one request, so few of them are better."""
_SHORTEST_WAIT = 0.05
_MOST_BATCH = 60_000
"""Bytes of a batch; the service takes a little more."""

_T = TypeVar("_T")


class HttpStore:
    """Keeps locks by a lock service; see `leased.store` for what it promises.

    A namespace is the beginning of all its keys there. A claim may wait at the service, on a connection that no other
    call needs; where too many do already it is answered at once.
    """

    def __init__(self, address: Address, *, face: Face, options: Options) -> None:
        self._mode: Literal["blocking", "async"] = face
        self._address = address
        self._clock = options.clock
        self._requires = options.require is not None
        self._names = Names(options.namespace)
        self._link = Link(address, face=face, options=options)

    @property
    def mode(self) -> Literal["blocking", "async", "any"]:
        """See `leased.store`."""
        return self._mode

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`. With `claim.wait` the service may keep it, and the call may take that much longer, but no
        longer than that wait."""
        wait = min(claim.wait - min(_SPARED, claim.wait * _SPARED), LONGEST_WAIT)
        if wait < _SHORTEST_WAIT or not self._link.begin_wait():
            return cast("Held | Contended", await self._ask(Acquire(claim), timeout=timeout))
        try:
            seconds = min(wait + timeout, max(claim.wait, timeout))
            return cast("Held | Contended", await self._ask(Acquire(claim), timeout=seconds, wait=wait))
        finally:
            self._link.end_wait()

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return cast("Held | Lost", await self._ask(Renew(key, token, ttl, number), timeout=timeout))

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        return cast("Released", await self._ask(Release(key, token, late), timeout=timeout))

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        await self._ask(Abandon(key, token, heard), timeout=timeout)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        return cast("Held | Lost", await self._ask(Look(key, token), timeout=timeout))

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""

        def read(body: Body) -> Status:
            found = self._names.status(read_status(body))
            if found.key != key:
                raise Unreadable("it is about another key")
            return found

        name = quote(self._names.inside(key), safe="")
        return await self._get(f"{PREFIX}status?key={name}", read, timeout=timeout)

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`."""
        asked = {"prefix": self._names.beginning(prefix), "limit": str(min(limit, MAX_LIST_PAGE))}
        if after:
            asked["after"] = self._names.beginning(after)
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items())

        def read(body: Body) -> builtins.list[Status]:
            return [self._names.status(status) for status in read_page(body)]

        return await self._get(f"{PREFIX.rstrip('/')}?{query}", read, timeout=timeout)

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        if fencing_token is not None and not 0 < fencing_token <= MAX_FENCING_TOKEN:
            return False  # no lease has such a number, and the service refuses to hear of it
        body = _packed(write_force_release(self._names.inside(key), fencing_token))
        return await self._post("force-release", body, read_forced, timeout=timeout)

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`. Nothing is pushed: whoever waits does so at the service."""
        self._link.check_open()
        return unwatched

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`: one request, or as many as their size needs, one after the other."""
        give_up_at = self._clock.now() + timeout
        outcomes: builtins.list[Outcome] = [None] * len(operations)
        members: builtins.list[_Member] = []
        for place, operation in enumerate(operations):
            try:
                members.append((place, operation, write_member(self._names.moved(operation))))
            except InvalidRequest as error:
                outcomes[place] = error
        for number, (batch, text) in enumerate(_batches(members) if members else ()):
            try:
                found = await self._send_batch(batch, give_up_at, text=text)
            except LeasedError as error:
                if not number:
                    raise
                found = [again(error) if isinstance(error, StoreUnavailable) else error for _ in batch]
            for (place, _, _), outcome in zip(batch, found, strict=True):
                outcomes[place] = outcome
        return outcomes

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return self._link.assurance()

    async def close(self) -> None:
        """See `leased.store`."""
        self._link.close()

    async def _ask(
        self, operation: Operation, *, timeout: float, wait: float = 0.0
    ) -> Held | Contended | Lost | Released | None:
        """One operation, by the path that has its name."""
        return await self._post(
            name_of(operation),
            _packed(write_operation(self._names.moved(operation), wait=wait)),
            lambda body: self._names.outcome(operation, body),
            timeout=timeout,
            harmless=isinstance(operation, Look),
            grants=isinstance(operation, Acquire),
            waits=wait > 0,
        )

    async def _send_batch(self, members: Sequence[_Member], give_up_at: float, *, text: bytes) -> _Outcomes:
        try:
            return await self._send_members(members, give_up_at, text=text)
        except LeasedError as error:
            others = [member for member in members if not isinstance(member[1], Acquire)]
            unsure = isinstance(error, StoreUnavailable) and error.applied is not False
            if not self._requires or unsure or len(others) in (0, len(members)):
                raise
            problem = error
        # Where the service gives less than grants need, what was held must still end.
        found = iter(await self._send_members(others, give_up_at, text=_batch_of(others)))
        return [problem if isinstance(operation, Acquire) else next(found) for _, operation, _ in members]

    async def _send_members(self, members: Sequence[_Member], give_up_at: float, *, text: bytes) -> _Outcomes:
        operations = [operation for _, operation, _ in members]
        return await self._post(
            "batch",
            text,
            lambda body: read_outcomes(operations, body, read=self._names.outcome),
            timeout=max(give_up_at - self._clock.now(), 0.0),
            grants=any(isinstance(operation, Acquire) for operation in operations),
        )

    async def _get(self, target: str, read: Callable[[Body], _T], *, timeout: float) -> _T:
        request = self._link.requests.get(target)
        answer = await self._link.send(request, seconds=timeout, harmless=True)
        return understand(answer, read, address=self._address)

    async def _post(
        self,
        name: str,
        body: bytes,
        read: Callable[[Body], _T],
        *,
        timeout: float,
        harmless: bool = False,
        grants: bool = False,
        waits: bool = False,
    ) -> _T:
        request = self._link.requests.post(PREFIX + name, body)
        answer = await self._link.send(request, seconds=timeout, harmless=harmless, grants=grants, waits=waits)
        return understand(answer, read, address=self._address)


_Member = tuple[int, Operation, Body]
"""An operation of a batch: its place there, itself, and how it is asked for."""

_Outcomes = list[Outcome]


def open(url: str, *, face: Face, options: Options) -> HttpStore:  # noqa: A001 (as every store module)
    """The store behind the service that the URL names; nothing is opened yet. `InvalidRequest` for a wrong URL."""
    address = read_address(url, options)
    driver("httptools", extra="http")
    return HttpStore(address, face=face, options=options)


def _batches(members: Sequence[_Member]) -> Iterator[tuple[Sequence[_Member], bytes]]:
    """The members in their order, in parts that the service takes, each with its text."""
    text = _batch_of(members)
    if len(members) <= 1 or (len(text) <= _MOST_BATCH and len(members) <= MOST_OPERATIONS):
        yield members, text
        return
    half = len(members) // 2
    yield from _batches(members[:half])
    yield from _batches(members[half:])


def _batch_of(members: Sequence[_Member]) -> bytes:
    return _packed({"operations": [body for _, _, body in members]})


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _packed(body: Body) -> bytes:
    return _encode(body).encode()
