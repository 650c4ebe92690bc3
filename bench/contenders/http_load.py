"""Connections that ask a lock service one operation a request, as fast as it answers, with no client library."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.addresses import host_and_port
from bench.worker import Run

_HEAD = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_OK = b"HTTP/1.1 200"
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Connection(asyncio.Protocol):
    """Takes and frees keys of its own, one after the other; the time of each request is kept."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, name: int, credential: bytes) -> None:
        self._loop = loop
        self._name = name
        self._credential = credential
        self._numbers = itertools.count()
        self._requests: Iterator[bytes] = iter(())
        self._buffer = b""
        self._sent_at = 0.0
        self.done: asyncio.Future[None] = loop.create_future()
        self.times: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio asks of a protocol."""
        self.transport = transport

    def begin(self, pairs: int) -> None:
        """Send the first of so many pairs of requests; `done` is there after the last answer."""
        self.done, self.times = self._loop.create_future(), []
        self._requests = self._pairs(pairs)
        self._send()

    def data_received(self, data: bytes) -> None:
        """As asyncio asks of a protocol."""
        self._buffer += data
        end = self._buffer.find(_END)
        if end < 0:
            return
        at = self._buffer.index(_LENGTH) + len(_LENGTH)
        whole = end + len(_END) + int(self._buffer[at : self._buffer.index(b"\r\n", at)])
        if len(self._buffer) < whole:
            return
        if not self._buffer.startswith(_OK):
            self.done.set_exception(RuntimeError(f"it answered {self._buffer!r}"))
            return
        self._buffer = self._buffer[whole:]
        self.times.append(self._loop.time() - self._sent_at)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio asks of a protocol."""
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("the service closed the connection"))

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
            return
        self._sent_at = self._loop.time()
        self.transport.write(request)  # type: ignore[attr-defined]

    def _pairs(self, count: int) -> Iterator[bytes]:
        for number in itertools.islice(self._numbers, count):
            key, token = b"key-%d-%d" % (self._name, number), b"%032d" % number
            yield self._request(b"acquire", b'{"key":"%b","token":"%b","ttlMs":30000,"late":false}' % (key, token))
            yield self._request(b"release", b'{"key":"%b","token":"%b","late":false}' % (key, token))

    def _request(self, operation: bytes, body: bytes) -> bytes:
        return _HEAD % (b"/v1/locks/" + operation, self._credential, len(body)) + body


def itself(connection: Connection) -> Connection:
    """What asyncio asks for: a protocol that is there already."""
    return connection


@contextmanager
def connections(directory: Path, *, url: str, clients: int, credential: str = "") -> Iterator[Run]:
    """So many of them, for so many pairs in all; told are the median and the 99th percentile of a request, in ms."""
    place = host_and_port(url)
    header = f"authorization: Bearer {credential}\r\n".encode() if credential else b""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()

        async def connect() -> list[Connection]:
            made = [Connection(loop, name=name, credential=header) for name in range(clients)]
            for one in made:
                await loop.create_connection(partial(itself, one), *place)
            return made

        async def ask(count: int) -> list[float]:
            for one in everyone:
                one.begin(count // clients)
            await asyncio.gather(*(one.done for one in everyone))
            times = sorted(itertools.chain.from_iterable(one.times for one in everyone))
            return [times[len(times) // 2] * 1000.0, times[len(times) * 99 // 100] * 1000.0]

        everyone = runner.run(connect())
        yield lambda count: runner.run(ask(count))
        for one in everyone:
            one.transport.close()
        runner.run(asyncio.sleep(0))


@contextmanager
def connection(directory: Path, *, url: str) -> Iterator[Run]:
    """One of them."""
    with connections(directory, url=url, clients=1) as run:
        yield run
