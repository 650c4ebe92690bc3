"""From any caller to a bucket: one connection per event loop, made when needed; blocking callers share one loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from leased.clocks import now
from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.store import again
from leased.stores import _nats_bucket as buckets
from leased.stores._cas_clock import ClientClock
from leased.stores._forks import follow_forks, keep_forever
from leased.stores._nats_bucket import Bucket
from leased.stores._nats_connection import Answer, Connection, Question, connect
from leased.stores._nats_thread import blocking_loop
from leased.stores._nats_url import Address
from leased.stores._senseless import SENSELESS
from leased.stores._standing import Standing
from leased.targets import Face, Options

_T = TypeVar("_T")
_DIAL_AT_LEAST = 1.0
_INFO_EVERY = 1.0
_log = logging.getLogger("leased")


class Link:
    """Asks questions of one bucket. Each answer that tells the time goes to the clock, settings to the standing."""

    def __init__(
        self, address: Address, *, face: Face, options: Options, wall: ClientClock, standing: Standing
    ) -> None:
        self.address = address
        self._face = face
        self._options = options
        self._wall = wall
        self._standing = standing
        self._connections: dict[asyncio.AbstractEventLoop, Connection] = {}
        self._dials: dict[asyncio.AbstractEventLoop, asyncio.Task[Connection]] = {}
        self._info_at = 0.0
        self._made = ""
        self._closed = False
        follow_forks(self)

    @property
    def unknown(self) -> bool:
        """Whether something is required of the bucket, and it was not asked yet."""
        return self._options.require is not None and not self._standing.assurance.known

    def check_open(self) -> None:
        """Raise `StoreNotUsable` once it was closed."""
        if self._closed:
            raise StoreNotUsable("these locks were closed", hint="connect again")

    async def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Do the work on an event loop: the caller's, or that of blocking callers, for whom this blocks."""
        self.check_open()
        if self._face == "async":
            return await work()
        return blocking_loop.run(work)

    async def ready(self, *, seconds: float) -> Connection:
        """On the loop: a connection that leads to the bucket, which is made where it is missing."""
        until = now() + seconds
        connection = await self._connected(seconds)
        if connection.bucket is None:
            await self._meet(connection, max(until - now(), 0.0))
        return connection

    async def ask(
        self, connection: Connection, questions: Sequence[Question], *, seconds: float
    ) -> list[Answer | LeasedError]:
        """On the loop: what came of each question. Now and then the settings and the time are asked for, too."""
        self.check_open()
        asked_at = self._options.clock.now()
        if asked_at < self._info_at + _INFO_EVERY:
            return await connection.ask(questions, seconds=seconds)
        self._info_at = asked_at
        info = buckets.ask_info(self.address)
        *answers, told = await connection.ask([*questions, info], seconds=seconds)
        if isinstance(told, Answer):
            try:
                self._take(connection, buckets.read_answer(told, self.address), asked_at=asked_at)
            except StoreNotUsable:
                connection.bucket = None  # who asks next is told
            except LeasedError:
                self._info_at = 0.0
        return answers

    def close(self) -> None:
        """Close all connections; those of blocking callers are told to."""
        self._closed = True
        for loop, connection in list(self._connections.items()):
            self._drop(loop, connection)
        self._connections.clear()
        for loop, dial in list(self._dials.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(dial.cancel)
        self._dials.clear()

    def before_fork(self) -> None:
        """See `leased.stores._forks`."""

    def after_fork_in_parent(self) -> None:
        """See `leased.stores._forks`."""

    def after_fork_in_child(self) -> None:
        """See `leased.stores._forks`. Connections are the parent's: neither used nor closed."""
        if self._connections or self._dials:
            keep_forever((dict(self._connections), dict(self._dials)))
        self._connections, self._dials = {}, {}

    async def _connected(self, seconds: float) -> Connection:
        loop = asyncio.get_running_loop()
        found = self._connections.get(loop)
        if found is not None and await found.alive():
            return found
        if found is not None and self._connections.get(loop) is found:
            del self._connections[loop]
            found.close()
        self._forget_ended()
        until = now() + seconds
        joined = await self._dialed(loop, seconds=seconds, join=True)
        if isinstance(joined, StoreUnavailable):  # what was begun for others may have failed for a reason of then
            joined = await self._dialed(loop, seconds=max(until - now(), 0.0), join=False)
        if isinstance(joined, StoreUnavailable):
            raise again(joined)
        return joined

    async def _dialed(
        self, loop: asyncio.AbstractEventLoop, *, seconds: float, join: bool
    ) -> Connection | StoreUnavailable:
        """What came of connecting; with `join` a failure of one that others had begun is given back, not raised."""
        dial = self._dials.get(loop)
        own = dial is None or dial.done()
        if dial is None or dial.done():
            dial = self._dials[loop] = loop.create_task(self._dial(loop, max(seconds, _DIAL_AT_LEAST)))
            dial.add_done_callback(_seen)
        await asyncio.wait([dial], timeout=max(seconds, 0.0))
        if not dial.done():
            raise StoreUnavailable(f"no answer from {self.address} within {seconds:.3g} s", applied=False)
        if dial.cancelled():
            raise StoreUnavailable(f"{self.address}: connecting was given up", applied=False)
        problem = dial.exception()
        if problem is None:
            return dial.result()
        if isinstance(problem, StoreUnavailable) and not own and join:
            return problem
        raise again(problem) if isinstance(problem, StoreUnavailable) else problem

    async def _dial(self, loop: asyncio.AbstractEventLoop, seconds: float) -> Connection:
        """Whoever asked first may give up before it is done; who comes then has it."""
        try:
            connection = await connect(self.address, seconds=seconds, meet=self._meet)
        finally:
            self._dials.pop(loop, None)
        if self._closed:
            connection.close()
            raise StoreNotUsable("these locks were closed", hint="connect again")
        self._connections[loop] = connection
        if self._face == "blocking":
            blocking_loop.follow(connection)
        return connection

    async def _meet(self, connection: Connection, seconds: float) -> None:
        """Learn what the bucket is, and make it where there is none."""
        until = now() + seconds
        found: dict[str, Any] = {}
        for question in (
            buckets.ask_info(self.address),
            buckets.ask_create(self.address, first=int(self._options.clock.wall() * 1e6)),
            buckets.ask_info(self.address),
        ):
            asked_at = self._options.clock.now()
            (answer,) = await connection.ask([question], seconds=max(until - now(), 0.0))
            found = buckets.read_answer(answer, self.address)
            self._take(connection, found, asked_at=asked_at)
            if connection.bucket is not None:
                return
        raise buckets.refused(found.get("error", {}), self.address)

    def _take(self, connection: Connection, found: dict[str, Any], *, asked_at: float) -> None:
        code = buckets.error_code(found)
        if code:
            connection.bucket = None
            if code not in buckets.EXPECTED:
                raise buckets.refused(found["error"], self.address)
            return
        try:
            bucket: Bucket = buckets.read_bucket(found, self.address)
            self._standing.read(buckets.read_assurance(found, self.address, options=self._options))
            at = buckets.read_time(found["ts"]) if "ts" in found else None
        except SENSELESS as error:
            raise buckets.senseless(self.address) from error
        if at is not None:
            self._wall.read(at, at, asked_at=asked_at)
        if self._made and bucket.created != self._made:
            _log.warning("%s: the bucket was deleted and made anew: leases from before are lost", self.address)
        self._made = bucket.created
        connection.bucket = bucket

    def _forget_ended(self) -> None:
        """Loops that have ended, and connections that are closed."""
        for loop, connection in list(self._connections.items()):
            if loop.is_closed() or connection.closed:
                self._connections.pop(loop, None)
                self._drop(loop, connection)
        for loop in [loop for loop in self._dials if loop.is_closed()]:
            del self._dials[loop]

    def _drop(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        if asyncio._get_running_loop() is loop:
            connection.close()
            return
        try:
            loop.call_soon_threadsafe(connection.close)
        except RuntimeError:
            connection.abandon()


def _seen(dial: asyncio.Task[Connection]) -> None:
    """Its failure is told to whoever still waits; where nobody does, asyncio must not complain."""
    if not dial.cancelled():
        dial.exception()
