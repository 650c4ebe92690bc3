"""One connection of the driver for NATS, on one event loop: questions and their answers. It knows nothing of keys.

The driver is never let to connect again by itself: what it would keep back and send later belongs to callers who have
long given up. A connection that broke is done with, and so is every question on it that had no answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import select
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from leased.clocks import now
from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.stores._drivers import driver
from leased.stores._loops import close_without_loop, read_little
from leased.stores._nats_url import Address, check_proof, trust_of

_PROBE = 1.0
_LONG = 3600
_LEAST = 0.05
_PING_EVERY = 20.0
_LOOKS = 10
_ASK_AGAIN = 0.5
_NO_RESPONDERS = "503"
_chance = random.SystemRandom()  # also threads of ours connect, which must not disturb what a caller has seeded


class Question(NamedTuple):
    """A message that is answered by one message. `harmless`: it changes nothing."""

    subject: str
    payload: bytes = b""
    headers: Mapping[str, str] | None = None
    harmless: bool = False


class Answer(NamedTuple):
    """What came back; `nobody` listens to the subject of the question, which then did nothing at all."""

    data: bytes
    nobody: bool = False


Told = Callable[[str, str, Mapping[str, str], bytes], None]
"""Called with the subject, reply subject, headers and data of each message of a subscription."""


class Connection:
    """Made by `connect`. All methods are for the loop on which it was made."""

    bucket: Any = None
    """What those who use it know of the bucket that it leads to."""

    on_close: Callable[[], None] = staticmethod(lambda: None)
    """Called, on its loop, when it is closed or broke; never waits, never raises."""

    def __init__(self, address: Address) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._address = address
        self._client = driver("nats.aio.client", extra="nats").Client()
        self._inbox = f"{address.inbox}.{secrets.token_hex(11)}"
        self._waiting: dict[str, tuple[Question, asyncio.Future[Answer]]] = {}
        self._number = 0
        self._heard_at = now()
        self._probe: asyncio.Task[None] | None = None
        self._pong: asyncio.Task[None] | None = None
        self._problem = ""
        self._telling: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int, *, seconds: float) -> None:
        """Connect to that server. Every error of the driver ends it, and what was begun is to be closed then."""
        address = self._address
        check_proof(address)
        shown_host = f"[{host}]" if ":" in host else host
        await self._client.connect(
            servers=[f"{'tls' if address.tls else 'nats'}://{shown_host}:{port}"],
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=seconds,
            ping_interval=_PING_EVERY,
            name="leased",
            tls=trust_of(address),
            tls_hostname=host if address.tls else None,
            error_cb=self._complain,
            closed_cb=self._end_all,
            inbox_prefix=address.inbox,
            flusher_queue_size=0,  # so that publishing never waits, and never swallows a cancellation
            pending_size=0,
            user_credentials=address.credentials,
            nkeys_seed=address.nkey,
            **self._login(),
        )
        self._check_tls()
        for writer in self._writers():
            read_little(writer.transport)
        await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)

    async def alive(self) -> bool:
        """Whether it still works, as far as is known here: what the server has done to it meanwhile is looked at."""
        for _ in range(_LOOKS):
            if self.closed or not self._client.is_connected:
                return False
            if not any(_readable(writer) for writer in self._writers()[:1]):
                return True
            await asyncio.sleep(0)
        return not any(writer.is_closing() for writer in self._writers())

    async def ask(self, questions: Sequence[Question], *, seconds: float) -> list[Answer | LeasedError]:
        """Send all at once; what came of each within the time. What is harmless is sent again while nobody answers:
        a member that leads no more, or not yet, says nothing at all."""
        asked_at = now()
        futures: dict[str, asyncio.Future[Answer]] = {}
        outcomes: list[asyncio.Future[Answer]] = []
        try:
            for question in questions:
                self._number += 1
                token = str(self._number)
                futures[token] = future = self.loop.create_future()
                outcomes.append(future)
                self._waiting[token] = question, future
                await self._send(question, future, reply=f"{self._inbox}.{token}")
            await self._wait(futures, until=asked_at + seconds)
        finally:
            for token, future in futures.items():
                self._waiting.pop(token, None)
                if future.done():
                    future.exception()  # a caller that is cancelled does not look, and asyncio would complain
        if self._heard_at < asked_at and not self.closed and self._probe is None:
            self._probe = self.loop.create_task(self._look_for_life())
        return [self._outcome(question, future, seconds) for question, future in zip(questions, outcomes, strict=True)]

    def tell(self, subject: str) -> None:
        """Send an empty message that nobody answers, soon."""
        telling = self.loop.create_task(self._tell(subject))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell(self, subject: str) -> None:
        with contextlib.suppress(Exception):
            await self._client.publish(subject, b"")

    async def subscribe(self, subject: str, told: Told) -> None:
        """Hand each message to `told`, in order."""

        async def heard(message: Any) -> None:
            self._heard_at = now()
            told(message.subject, message.reply, message.headers or {}, message.data)

        await self._client.subscribe(subject, cb=heard)

    def new_subject(self) -> str:
        """One that nobody else listens to."""
        return f"{self._address.inbox}.{secrets.token_hex(11)}"

    def close(self) -> None:
        """End it here and now: what is still to be sent is not, for its server may be paused. The driver tidies up."""
        if not self.closed:
            self._fail_all()
        for writer in self._writers():
            writer.transport.abort()
        if self._ending is None:
            self._ending = self.loop.create_task(self._close_driver())

    def abandon(self) -> None:
        """Its loop has ended: close what is still open of it."""
        self.closed = True
        for writer in self._writers():
            close_without_loop(writer.transport)

    async def _wait(self, futures: Mapping[str, asyncio.Future[Answer]], *, until: float) -> None:
        """Until all are answered, or the time is over."""
        pause = _ASK_AGAIN
        while True:
            left = max(until - now(), 0.0)
            _, open_ = await asyncio.wait(futures.values(), timeout=min(pause, left))
            if not open_ or pause >= left:
                return
            pause *= 2
            for token in [token for token, future in futures.items() if not future.done()]:
                question, future = self._waiting.get(token, (None, None))
                if question is not None and future is not None and question.harmless:
                    await self._send(question, future, reply=f"{self._inbox}.{token}")

    async def _send(self, question: Question, future: asyncio.Future[Answer], *, reply: str) -> None:
        try:
            if self.closed:
                raise ConnectionResetError("it was closed")
            headers = None if question.headers is None else dict(question.headers)
            await self._client.publish(question.subject, question.payload, reply=reply, headers=headers)
        except Exception as error:  # noqa: BLE001 - whatever keeps the driver from sending, nothing was sent
            if not future.done():
                future.set_exception(StoreUnavailable(f"{self._address}: not sent: {error}", applied=False))

    def _outcome(self, question: Question, future: asyncio.Future[Answer], seconds: float) -> Answer | LeasedError:
        applied = False if question.harmless else None
        if not future.done():
            future.cancel()
            return StoreUnavailable(f"no answer from {self._address} within {seconds:.3g} s", applied=applied)
        problem = future.exception()
        if problem is None:
            return future.result()
        if isinstance(problem, LeasedError):
            return problem
        return StoreUnavailable(f"{self._address}: the connection broke: {problem}", applied=applied)

    def _login(self) -> dict[str, Callable[[], str]]:
        address = self._address
        if address.user is None:
            return {}
        if address.password is None:
            return {"token": lambda: self._secret(address.user or "")}
        return {"user": lambda: address.user or "", "password": lambda: self._secret(address.password or "")}

    def _secret(self, text: str) -> str:
        """Asked for just before it is sent: where TLS is wanted, not without it."""
        self._check_tls()
        return text

    def _check_tls(self) -> None:
        """The driver goes on in clear text where a server offers nothing else."""
        if self._address.tls and not any(writer.get_extra_info("ssl_object") for writer in self._writers()):
            raise StoreNotUsable(
                f"{self._address} offers no TLS", hint="write nats://, or give the server a certificate"
            )

    def _writers(self) -> list[Any]:
        transport = getattr(self._client, "_transport", None)
        found = (getattr(transport, name, None) for name in ("_io_writer", "_bare_io_writer"))
        return [writer for writer in found if writer is not None]

    async def _answered(self, message: Any) -> None:
        self._heard_at = now()
        _, future = self._waiting.pop(message.subject.rpartition(".")[2], (None, None))
        if future is not None and not future.done():
            nobody = not message.data and (message.headers or {}).get("Status") == _NO_RESPONDERS
            future.set_result(Answer(message.data, nobody))

    async def _complain(self, error: Exception) -> None:
        """What the driver would write into its log. A subject that is not allowed is never answered."""
        self._problem = str(error)
        if "permissions violation" not in self._problem.lower():
            return
        for question, future in list(self._waiting.values()):
            if f'"{question.subject}"'.lower() in self._problem.lower() and not future.done():
                future.set_exception(
                    StoreNotUsable(
                        f"{self._address} does not let this user use {question.subject}",
                        hint="see what a user needs in the page of this store",
                    )
                )

    async def _end_all(self) -> None:
        self._fail_all()

    def _fail_all(self) -> None:
        self.closed = True
        waiting, self._waiting = self._waiting, {}
        for _, future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError(self._problem or "it was closed"))
        self.on_close()

    async def _look_for_life(self) -> None:
        """Nothing was heard for a while: a server that does not even answer a ping is given up."""
        # Cancelled only once the driver is closed: it logs a late answer to a question that was given up as an error.
        self._pong = self.loop.create_task(self._client.flush(timeout=_LONG))
        self._pong.add_done_callback(_seen)
        try:
            await asyncio.wait([self._pong], timeout=_PROBE)
            problem = self._pong.exception() if self._pong.done() else f"no answer within {_PROBE:g} s"
            if problem is None:
                self._heard_at = now()
            else:
                self._problem = f"no sign of life: {problem}"
                self.close()
        finally:
            self._probe = None

    async def _close_driver(self) -> None:
        with contextlib.suppress(Exception):
            await self._client.close()
        if self._pong is not None:
            self._pong.cancel()


def _seen(task: asyncio.Task[None]) -> None:
    """Its failure may come when nobody waits any more; asyncio must not complain."""
    if not task.cancelled():
        task.exception()


def _readable(writer: Any) -> bool:
    """Whether something waits to be read, be it the end; also of what is closed already."""
    try:
        polling = select.poll()
        polling.register(writer.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(polling.poll(0))
    except (OSError, ValueError, AttributeError):
        return True


async def connect(
    address: Address, *, seconds: float, meet: Callable[[Connection, float], Awaitable[None]]
) -> Connection:
    """A connection to any of the servers that answers and whom `meet` finds good; they share the time.

    `meet` is called with what is left of it.
    """
    until = now() + seconds
    problem: LeasedError = StoreUnavailable(f"no answer from {address} within {seconds:.3g} s", applied=False)
    servers = _chance.sample(address.servers, len(address.servers))
    for tried, (host, port) in enumerate(servers):
        share = max((until - now()) / (len(servers) - tried), _LEAST)
        connection = Connection(address)
        try:
            async with asyncio.timeout(share):
                await connection.open(host, port, seconds=share)
                await meet(connection, share)
        except BaseException as error:
            connection.close()
            if not isinstance(error, Exception):
                raise
            problem = _told(error, address)
            if isinstance(problem, StoreNotUsable):
                raise problem from None if problem is error else error
        else:
            return connection
    raise problem


def _told(error: Exception, address: Address) -> LeasedError:
    """How a failure to connect is told."""
    if isinstance(error, LeasedError):
        return error
    text = str(error).strip() or type(error).__name__
    if "authorization" in text.lower():
        return StoreNotUsable(f"{address} refuses these credentials: {text}", hint="see the user in the URL")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"no answer from {address}", applied=False)
    if isinstance(error, OSError | asyncio.TimeoutError | asyncio.IncompleteReadError) or "nats:" in text:
        hint = "see that a server runs there; check hosts and ports of the URL"
        return StoreUnavailable(f"cannot connect to {address}: {text}", applied=False, hint=hint)
    return StoreNotUsable(f"{address} cannot be used: {text}")
