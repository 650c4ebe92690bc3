"""Sends operations to DynamoDB and brings its answers; it knows which errors mean what, and nothing of locks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leased.checks import shown
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._cas_clock import ClientClock, read_date
from leased.stores._dynamodb_account import Account
from leased.stores._dynamodb_url import Table
from leased.stores._http_connection import Connection, Cut, Trust, connect_blocking, connect_in_loop, trust_of
from leased.stores._http_wire import Answer, read_json
from leased.stores._loops import running_loop
from leased.stores._pool import Pool, pool_size
from leased.stores._senseless import SENSELESS
from leased.targets import Face, Options

_THROTTLED = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottledException",
        "ThrottlingException",
    }
)
_NOT_ALLOWED = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)
_STRANGE = "is it DynamoDB that answers there?"
_FIRST_NAP, _LONGEST_NAP = 0.05, 1.0


class Refused(Exception):
    """DynamoDB answered an operation with an error that has a meaning to whoever asked: its `kind`, and the `body`."""

    def __init__(self, kind: str, body: dict[str, Any]) -> None:
        super().__init__(kind)
        self.kind = kind
        self.body = body


@contextmanager
def reading(where: object) -> Iterator[None]:
    """While an answer is taken apart: `StoreUnavailable` for one that is not of the form which it must have."""
    try:
        yield
    except SENSELESS as error:
        raise StoreUnavailable(f"{where} answered what makes no sense", hint=_STRANGE) from error


class Link:
    """The connections of one store to DynamoDB.

    What was throttled was not done, and is asked again after a while, as long as the caller has time.
    """

    def __init__(self, table: Table, *, face: Face, options: Options, wall: ClientClock) -> None:
        self._table = table
        self._clock = options.clock
        self._wall = wall
        self._account = Account(table, options.clock)
        self._trust: Trust | None = None
        self._open = connect_blocking if face == "blocking" else connect_in_loop
        loop = running_loop if face == "async" else None
        self._pool: Pool[Connection] = Pool(self._connect, clock=options.clock, most=pool_size(options), loop=loop)

    async def call(
        self, operation: str, given: dict[str, Any], *, timeout: float, reads: bool = False
    ) -> dict[str, Any]:
        """The answer of an operation; `reads`: it changes nothing, so it may be sent again where no answer came.

        Raises `Refused` for errors that are for whoever asked, `StoreUnavailable` and `StoreNotUsable` for the others.
        """
        give_up_at = self._clock.now() + timeout
        body = json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode()
        attempt = 0
        while True:
            try:
                return await self._once(operation, body, give_up_at=give_up_at)
            except StoreNotUsable:
                raise
            except StoreUnavailable as error:
                nap = min(_LONGEST_NAP, _FIRST_NAP * 2**attempt) * random.uniform(0.5, 1.0)
                may_repeat = error.applied is False or reads
                if not may_repeat or self._clock.now() + nap >= give_up_at:
                    if reads:
                        error.applied = False
                    raise
            await self._clock.sleep(nap)
            attempt += 1

    def check_open(self) -> None:
        """Raise `StoreNotUsable` once closed."""
        self._pool.check_open()

    def close(self) -> None:
        """Close what is idle, and what is in use once it is given back."""
        self._pool.close()

    async def _once(self, operation: str, body: bytes, *, give_up_at: float) -> dict[str, Any]:
        connection = await self._pool.take(max(give_up_at - self._clock.now(), 0.0))
        try:
            left = give_up_at - self._clock.now()
            await self._account.prepare(left)
            request = self._account.request(operation, body)
            asked_at = self._clock.now()
            answer = await connection.exchange(request, seconds=max(give_up_at - asked_at, 0.0))
        except Cut as cut:
            self._pool.drop(connection)
            raise StoreUnavailable(f"{self._table}: {cut.why}", applied=None if cut.sent else False) from cut
        except BaseException:
            self._pool.drop(connection)
            raise
        (self._pool.give if answer.keep else self._pool.drop)(connection)
        read_date(self._wall, answer.date, asked_at=asked_at)
        return self._understood(answer, operation)

    def _understood(self, answer: Answer, operation: str) -> dict[str, Any]:
        try:
            body = read_json(answer.body)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise StoreUnavailable(
                f"{self._table} answered {operation} with HTTP status {answer.status} and no JSON object",
                hint=_STRANGE,
            )
        if answer.status == 200:
            return body
        kind = str(body.get("__type", "")).rpartition("#")[2]
        message = shown(str(body.get("message") or body.get("Message") or kind or answer.status))
        if kind in _THROTTLED:
            raise StoreUnavailable(
                f"{self._table} is throttled: {message}", applied=False, hint="give the table more capacity"
            )
        if kind in _NOT_ALLOWED or answer.status in (401, 403):
            raise StoreNotUsable(f"{self._table} refuses {operation}: {message}", hint=_hint_of(kind, operation))
        if answer.status >= 500 or not kind:
            raise StoreUnavailable(f"{self._table} could not do {operation}: {message}", applied=None)
        raise Refused(kind, body)

    async def _connect(self, seconds: float) -> Connection:
        give_up_at = self._clock.now() + seconds
        address = await self._account.prepare(seconds)
        if self._trust is None:
            self._trust = trust_of(address)
        return await self._open(address, self._trust, seconds=max(give_up_at - self._clock.now(), 0.0))


def _hint_of(kind: str, operation: str) -> str:
    if kind == "AccessDeniedException":
        return f"allow dynamodb:{operation} on the table, and on nothing else"
    if kind == "InvalidSignatureException":
        return "are the secret and the region right, and is this machine's clock?"
    return "see which credentials are in use: aws sts get-caller-identity"
