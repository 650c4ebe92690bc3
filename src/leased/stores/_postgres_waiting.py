"""How a blocking caller or an event loop waits for a connection to PostgreSQL. It sends nothing and reads no answer."""

from __future__ import annotations

import asyncio
import math
import select
from typing import Any, Protocol

from leased.clocks import now
from leased.stores._alarm import Alarm


class Answers(Protocol):
    """What one connection waits with, for one exchange at a time; all of these end at the instant `until`."""

    async def sent(self, until: float) -> None:
        """Wait until all that is to be sent has left, or raise `TimeoutError`."""
        ...

    async def ready(self, until: float) -> None:
        """Wait until the next result can be got without waiting, or raise `TimeoutError`."""
        ...

    def silent(self) -> bool:
        """Whether nothing has come unasked: the end of the connection, or news of it."""
        ...

    def close(self) -> None:
        """Before the connection is closed; also after its loop has ended."""
        ...


class Waiting(Protocol):
    """How a face waits for a server."""

    async def may_go_on(self, socket: int, *, writing: bool, seconds: float) -> bool:
        """While connecting: wait until there is something to read (or room to write); false if the time is up."""
        ...

    async def begin(self, start: Any, address: bytes, *, seconds: float) -> Any:
        """Run what may look up a name; `TimeoutError` where the time is up and can be kept."""
        ...

    def answers(self, connection: Any) -> Answers:
        """For a connection that has been made."""
        ...


class BlockingWaiting:
    """Blocks the thread."""

    async def may_go_on(self, socket: int, *, writing: bool, seconds: float) -> bool:
        """See `Waiting`."""
        poll = select.poll()
        poll.register(socket, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
        return bool(poll.poll(math.ceil(seconds * 1000.0)))

    async def begin(self, start: Any, address: bytes, *, seconds: float) -> Any:
        """See `Waiting`. How long a name is looked up is for the system to say (`timeout` in resolv.conf)."""
        return start(address)

    def answers(self, connection: Any) -> Answers:
        """See `Waiting`."""
        return _BlockingAnswers(connection)


class LoopWaiting:
    """Suspends the task."""

    async def may_go_on(self, socket: int, *, writing: bool, seconds: float) -> bool:
        """See `Waiting`."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bool] = loop.create_future()
        late = loop.call_later(seconds, _expire, found)
        loop.add_reader(socket, _settle, found)
        if writing:
            loop.add_writer(socket, _settle, found)
        try:
            return await found
        finally:
            late.cancel()
            loop.remove_reader(socket)
            if writing:
                loop.remove_writer(socket)

    async def begin(self, start: Any, address: bytes, *, seconds: float) -> Any:
        """See `Waiting`. Looking up a name blocks, so a thread does it."""
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().run_in_executor(None, start, address)

    def answers(self, connection: Any) -> Answers:
        """See `Waiting`."""
        return _LoopAnswers(connection)


class _BlockingAnswers:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(connection.socket, select.POLLIN)

    async def sent(self, until: float) -> None:
        connection = self._connection
        poll = select.poll()
        poll.register(connection.socket, select.POLLIN | select.POLLOUT)
        while connection.flush():
            self._wait(poll, until)
            connection.consume_input()  # the server may be as full of answers as we are of questions

    async def ready(self, until: float) -> None:
        connection = self._connection
        while connection.is_busy():
            self._wait(self._poll, until)
            connection.consume_input()

    def silent(self) -> bool:
        return not self._poll.poll(0)

    def close(self) -> None:
        pass

    def _wait(self, poll: select.poll, until: float) -> None:
        if not poll.poll(max(0, math.ceil((until - now()) * 1000.0))):
            raise TimeoutError


class _LoopAnswers:
    """Reads where the loop says that there is something, so that a task wakes up only for a whole result.

    The loop watches the socket from the first exchange to the last: to say so for each would cost more than the rest.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket: int = connection.socket
        self._loop = asyncio.get_running_loop()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._watched = False
        self._found: asyncio.Future[bool] | None = None  # what the task waits for: true, or false if the time is up
        self._error: Exception | None = None
        self._alarm = Alarm(self._late)

    async def sent(self, until: float) -> None:
        while self._connection.flush():
            self._loop.add_writer(self._socket, self._write)
            try:
                await self._wait(until)
            finally:
                self._loop.remove_writer(self._socket)

    async def ready(self, until: float) -> None:
        while self._connection.is_busy():
            await self._wait(until)

    def silent(self) -> bool:
        return not self._poll.poll(0)

    def close(self) -> None:
        self._alarm.close()
        self._watch_no_more()

    async def _wait(self, until: float) -> None:
        if self._error is not None:
            raise self._error
        if not self._watched:
            self._loop.add_reader(self._socket, self._read)
            self._watched = True
        self._alarm.set(until)
        self._found = self._loop.create_future()
        try:
            in_time = await self._found
        finally:
            self._found = None
            self._alarm.rest()
        if self._error is not None:
            raise self._error
        if not in_time:
            raise TimeoutError

    def _read(self) -> None:
        """There is something to read."""
        if self._found is None:  # nobody has asked: `silent` will see it; do not be called for it again and again
            self._watch_no_more()
            return
        try:
            self._connection.consume_input()
            if self._connection.is_busy():
                return
        except Exception as error:  # noqa: BLE001 - it is the task's
            self._error = error
            self._watch_no_more()  # at once: the socket is closed, and its number may soon be another one's
        _settle(self._found)

    def _write(self) -> None:
        """There is room for more."""
        if self._found is not None:
            _settle(self._found)

    def _late(self) -> None:
        if self._found is not None:
            _expire(self._found)

    def _watch_no_more(self) -> None:
        if self._watched and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._watched = False


def _settle(found: asyncio.Future[bool]) -> None:
    if not found.done():
        found.set_result(True)


def _expire(found: asyncio.Future[bool]) -> None:
    if not found.done():
        found.set_result(False)
