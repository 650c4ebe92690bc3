"""Sends requests to a lock service and brings its answers; it knows what may be repeated, and nothing of locks.

A new connection first asks what the store behind the service gives, unless that was heard a short while ago.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import replace

from leased.errors import LeasedError, StoreUnavailable
from leased.model import Assurance
from leased.stores._http_answers import cut_off, from_service, understand
from leased.stores._http_connection import Connection, Cut, connect_blocking, connect_in_loop, trust_of
from leased.stores._http_strangers import MAY_WANT_TLS
from leased.stores._http_url import Address
from leased.stores._http_wire import Answer, Requests
from leased.stores._loops import running_loop
from leased.stores._pool import Pool, pool_size
from leased.stores._standing import Standing
from leased.targets import Face, Options
from leased.wire import Body, Unreadable, read_assurance

CAPABILITIES = "/v1/capabilities"
MOST_WAITS = 16
"""Claims that the service may keep at the same time, each on a connection of its own, whatever the size of the pool."""

_OF_ITS_STORE = "this is what the store behind the lock service says; all who ask that service exclude each other"
_TRIES = 3
_HEARD_FOR = 5.0
"""Seconds for which what a service gives need not be asked again, however many connections are made meanwhile."""


class Link:
    """The connections of one store to its service.

    What is sent for claims that the service may keep goes over connections of its own, or renewals would wait for them.
    """

    def __init__(self, address: Address, *, face: Face, options: Options) -> None:
        self._address = address
        self._clock = options.clock
        self._requires = options.require is not None
        self._standing = Standing(options, shown=address.shown)
        self._heard_at: float | None = None
        self._unheard: LeasedError | None = None
        self._open = connect_blocking if face == "blocking" else connect_in_loop
        self._trust = trust_of(address)
        self.requests = Requests(address.authority, path=address.path, credential=address.credential)
        loop = running_loop if face == "async" else None
        most = pool_size(options)
        self._calls: Pool[Connection] = Pool(self._connect, clock=options.clock, most=most, loop=loop)
        self._waits: Pool[Connection] = Pool(self._connect, clock=options.clock, most=MOST_WAITS, loop=loop)
        self._permits: deque[None] = deque()
        self._process = 0

    def assurance(self) -> Assurance:
        """What the service said that its store gives."""
        return self._standing.assurance

    def begin_wait(self) -> bool:
        """Whether another claim may be kept by the service now; then `end_wait` has to be called."""
        if self._process != os.getpid():  # what a forked child's parent waits for does not count
            self._process = os.getpid()
            self._permits = deque([None] * MOST_WAITS)
        try:
            self._permits.pop()
        except IndexError:
            return False
        return True

    def end_wait(self) -> None:
        """The claim is kept no longer."""
        self._permits.append(None)

    async def send(
        self, request: bytes, *, seconds: float, harmless: bool = False, grants: bool = False, waits: bool = False
    ) -> Answer:
        """The answer to a request; `StoreUnavailable` where none came.

        `harmless`: it changes nothing, so that it may be sent once more where a connection had been closed meanwhile.
        `grants`: it needs what `require` asks for. `waits`: the service may keep it.
        """
        give_up_at = self._clock.now() + seconds
        pool = self._waits if waits else self._calls
        for tries_left in reversed(range(_TRIES)):
            connection = await pool.take(max(give_up_at - self._clock.now(), 0.0))
            used = connection.used
            try:
                if grants:
                    await self._check(connection, give_up_at)
                left = give_up_at - self._clock.now()
                if left <= 0:
                    raise Cut("the time was over before it was sent", sent=False)
                answer = await connection.exchange(request, seconds=left)
            except Cut as cut:
                pool.drop(connection)
                self._heard_at = None
                may_repeat = not cut.sent or (harmless and used and not cut.begun)
                if may_repeat and tries_left and self._clock.now() < give_up_at:
                    continue
                raise cut_off(cut, self._address) from cut
            except BaseException:
                pool.drop(connection)
                raise
            if answer.keep:
                pool.give(connection)
            else:
                pool.drop(connection)
            return answer
        raise AssertionError  # pragma: no cover (the last try returns or raises)

    def check_open(self) -> None:
        """Raise `StoreNotUsable` once closed."""
        self._calls.check_open()

    def close(self) -> None:
        """Close what is idle, and what is in use once it is given back."""
        self._calls.close()
        self._waits.close()

    async def _check(self, connection: Connection, give_up_at: float) -> None:
        """Raise unless the service gives what `require` asks for, as far as it says what it gives."""
        if self._requires and self._unheard is not None:
            try:
                keep = await self._ask(connection, give_up_at)
            except Cut as cut:
                raise Cut(cut.why, sent=False) from cut
            self._tell_unheard()
            if not keep:
                raise Cut("the service closed the connection", sent=False)
        self._standing.check()

    def _tell_unheard(self) -> None:
        """Raise why the service did not say what it gives, if it did not."""
        if self._unheard is not None:
            raise self._unheard

    async def _connect(self, seconds: float) -> Connection:
        give_up_at = self._clock.now() + seconds
        heard_at, self._heard_at = self._heard_at, None  # a service that is away may come back as another one
        connection: Connection = await self._open(self._address, self._trust, seconds=seconds)
        if heard_at is not None and self._clock.now() - heard_at < _HEARD_FOR:
            self._heard_at = heard_at
            return connection
        try:
            keep = await self._ask(connection, give_up_at)
        except Cut as cut:
            connection.close()
            failure = cut_off(cut, self._address)
            failure.applied = False
            if failure.hint is None and not (self._address.tls or cut.begun or isinstance(cut.__cause__, TimeoutError)):
                failure.hint = MAY_WANT_TLS
            raise failure from cut
        except BaseException:
            connection.close()
            raise
        if keep:
            connection.used = False  # it was not idle yet
            return connection
        connection.close()
        return await self._open(self._address, self._trust, seconds=max(give_up_at - self._clock.now(), 0.0))

    async def _ask(self, connection: Connection, give_up_at: float) -> bool:
        """Ask what the service gives; whether another request may follow on this connection."""
        question = self.requests.get(CAPABILITIES)
        answer = await connection.exchange(question, seconds=max(give_up_at - self._clock.now(), 0.0))
        self._hear(answer)
        return answer.keep

    def _hear(self, answer: Answer) -> None:
        """Take in what the service gives. It need not say; but who is no lock service is sent no claim."""
        try:
            self._standing.read(understand(answer, _read_capabilities, address=self._address))
            self._unheard, self._heard_at = None, self._clock.now()
        except LeasedError as error:
            if isinstance(error, StoreUnavailable):
                error.applied = False
            if not from_service(answer):
                raise
            self._unheard = error


def _read_capabilities(body: Body) -> Assurance:
    found = body.get("assurance")
    if not isinstance(found, dict):
        raise Unreadable("there is no assurance in it")
    gives = read_assurance(found)
    return replace(gives, notes=(_OF_ITS_STORE, *gives.notes))
