"""Redis driven raw: scripts over a bare socket or one multiplexed connection, with nothing around them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections import deque
from typing import Any, cast

import hiredis

from bench.addresses import host_and_port

TTL_MS = 30_000
CHANNEL = b"bench:free"

ACQUIRE = """
local time = redis.call('TIME')
local fencing = string.format('%.0f', time[1] * 1000000 + time[2])
if not redis.call('SET', KEYS[1], ARGV[1] .. fencing .. ARGV[2], 'NX', 'PX', ARGV[3]) then return 0 end
return fencing
"""
_OURS = "if string.sub(redis.call('GET', KEYS[1]) or '', 1, 32) ~= ARGV[1] then return 0 end\n"
RENEW = _OURS + "return redis.call('PEXPIRE', KEYS[1], ARGV[2])"
RELEASE = _OURS + "return redis.call('DEL', KEYS[1])"
TELL = RELEASE.replace("return redis.call('DEL'", "redis.call('PUBLISH', ARGV[2], KEYS[1])\nreturn redis.call('DEL'")


def packed(*words: bytes) -> bytes:
    """A command as it travels."""
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))


def _script(text: str, *, words: int) -> tuple[bytes, bytes]:
    """How the script is loaded, and how a call of it begins: with one key, and so many words in all."""
    name = hashlib.sha1(text.encode()).hexdigest().encode()
    begin = b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n1\r\n" % (words, name)
    return packed(b"SCRIPT", b"LOAD", text.encode()), begin


_LOAD_ACQUIRE, _ACQUIRE = _script(ACQUIRE, words=7)
_LOAD_RENEW, _RENEW = _script(RENEW, words=6)
_LOAD_RELEASE, _RELEASE = _script(RELEASE, words=5)
_LOAD_TELL, _TELL = _script(TELL, words=6)
LOADS = (_LOAD_ACQUIRE, _LOAD_RENEW, _LOAD_RELEASE, _LOAD_TELL)


def new_token() -> bytes:
    """A token, as text."""
    return os.urandom(16).hex().encode()


def acquire(key: bytes, token: bytes) -> bytes:
    """The call that takes a key."""
    return b"%b$%d\r\n%b\r\n$32\r\n%b\r\n$5\r\nbench\r\n$5\r\n%d\r\n" % (_ACQUIRE, len(key), key, token, TTL_MS)


def renew(key: bytes, token: bytes) -> bytes:
    """The call that sets the expiry anew."""
    return b"%b$%d\r\n%b\r\n$32\r\n%b\r\n$5\r\n%d\r\n" % (_RENEW, len(key), key, token, TTL_MS)


def release(key: bytes, token: bytes) -> bytes:
    """The call that frees a key."""
    return b"%b$%d\r\n%b\r\n$32\r\n%b\r\n" % (_RELEASE, len(key), key, token)


def tell(key: bytes, token: bytes) -> bytes:
    """The call that frees a key, and tells so on the channel."""
    return b"%b$%d\r\n%b\r\n$32\r\n%b\r\n$10\r\n%b\r\n" % (_TELL, len(key), key, token, CHANNEL)


def checked(answer: Any) -> Any:
    """The answer, which must be neither an error nor a refusal."""
    if isinstance(answer, Exception):
        raise answer
    if answer == 0:
        raise RuntimeError("a key that nobody else wants was refused")
    return answer


class Blocking:
    """A bare socket: one command, one answer."""

    def __init__(self, url: str) -> None:
        self._socket = socket.create_connection(host_and_port(url))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        for load in LOADS:
            self.ask(load)

    def ask(self, command: bytes) -> Any:
        """Send a command and wait for its answer."""
        self._socket.sendall(command)
        return self.read()

    def read(self) -> Any:
        """Wait for the next answer, or whatever the server tells."""
        while (answer := self._reader.gets()) is False:
            received = self._socket.recv(65536)
            if not received:
                raise ConnectionError("the server has closed the connection")
            self._reader.feed(received)
        return checked(answer)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Multiplexed(asyncio.Protocol):
    """One connection for all tasks of a loop: answers come in the order of the commands."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._joined: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It can be used."""
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answers have come."""
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not False:
            self._waiting.popleft().set_result(answer)

    def ask(self, command: bytes) -> asyncio.Future[Any]:
        """Send a command at once; the future is its answer."""
        self._transport.write(command)
        return self._expect()

    def ask_joined(self, command: bytes) -> asyncio.Future[Any]:
        """Send a command together with all others of this turn of the loop."""
        if not self._joined:
            self._loop.call_soon(self._flush)
        self._joined.append(command)
        return self._expect()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def _expect(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(future)
        return future

    def _flush(self) -> None:
        self._transport.write(b"".join(self._joined))
        self._joined.clear()


async def multiplexed(url: str) -> Multiplexed:
    """A connection that knows the scripts."""
    host, port = host_and_port(url)
    _, connection = await asyncio.get_running_loop().create_connection(Multiplexed, host, port)
    for load in LOADS:
        checked(await connection.ask(load))
    return connection
