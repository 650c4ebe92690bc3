"""etcd driven raw, over a bare socket: two transactions for a pair, and its own lock service for a hand-off."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.addresses import host_and_port
from bench.worker import Run

_ACQUIRE = (
    '{"compare":[{"key":"%s","target":"MOD","mod_revision":"0"}],'
    '"success":[{"request_put":{"key":"%s","value":"%s"}}],"failure":[{"request_range":{"key":"%s"}}]}'
)
_RELEASE = (
    '{"compare":[{"key":"%s","target":"MOD","mod_revision":"%s"}],'
    '"success":[{"request_put":{"key":"%s","value":"%s"}}],"failure":[{"request_range":{"key":"%s"}}]}'
)
_VALUE = '{"token":"%s","owner":"bench","fencingToken":%d,"acquiredAt":%d,"expiresAt":%d}'


def text(data: bytes) -> str:
    """As JSON has bytes."""
    return b64encode(data).decode()


def request(path: str, body: str) -> bytes:
    """A request to the gateway."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def complete(arrived: bytes) -> Any:
    """The object in an answer, or nothing while it is not all there."""
    head, end, body = arrived.partition(b"\r\n\r\n")
    if not end or len(body) < int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0]):
        return None
    return json.loads(body)


class Blocking:
    """A connection for blocking callers."""

    def __init__(self, url: str) -> None:
        self._socket = socket.create_connection(host_and_port(url))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, path: str, body: str) -> Any:
        """Send one request and wait for its answer."""
        self._socket.sendall(request(path, body))
        arrived = b""
        while (found := complete(arrived)) is None:
            arrived += self._socket.recv(65_536)
        return found

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def _value() -> str:
    micros = time.time_ns() // 1000
    return text((_VALUE % (os.urandom(16).hex(), micros, micros, micros + 30_000_000)).encode())


def _acquire(name: str) -> str:
    return _ACQUIRE % (name, name, _value(), name)


def _release(name: str, granted: Any) -> str:
    if not granted.get("succeeded"):
        raise RuntimeError("the key was not free")
    return _RELEASE % (name, granted["header"]["revision"], name, _value(), name)


@contextmanager
def pair(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor of blocking callers."""
    connection = Blocking(url)
    numbers = itertools.count()
    own = os.urandom(4).hex()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            name = text(f"raw/{own}/{number}".encode())
            granted = connection.ask("/v3/kv/txn", _acquire(name))
            connection.ask("/v3/kv/txn", _release(name, granted))

    yield run
    connection.close()


@contextmanager
def pair_async(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor of tasks."""
    numbers = itertools.count()
    own = os.urandom(4).hex()
    with asyncio.Runner() as runner:
        reader, writer = runner.run(_connected(url))

        async def ask(body: str) -> Any:
            writer.write(request("/v3/kv/txn", body))
            arrived = b""
            while (found := complete(arrived)) is None:
                arrived += await reader.read(65_536)
            return found

        async def pairs(count: int) -> None:
            for number in itertools.islice(numbers, count):
                name = text(f"raw-async/{own}/{number}".encode())
                await ask(_release(name, await ask(_acquire(name))))

        yield lambda count: runner.run(pairs(count))
        writer.close()


async def _connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*host_and_port(url))


@contextmanager
def hand_off(directory: Path, *, url: str) -> Iterator[Run]:
    """One side of a hand-off (see `bench.contenders.hand_off`) by etcd's own lock service, under one lease of etcd."""
    connection = Blocking(url)
    lease = connection.ask("/v3/lease/grant", '{"TTL":"600"}')["ID"]
    lock = json.dumps({"name": text(b"raw-hand-off"), "lease": lease})
    held: list[str] = []

    def unlock() -> None:
        connection.ask("/v3/lock/unlock", json.dumps({"key": held.pop()}))

    def run(action: str) -> Any:
        if action == "give":
            began = time.perf_counter()
            unlock()
            return {"began": began}
        held.append(connection.ask("/v3/lock/lock", lock)["key"])
        if action == "hold":
            return None
        at = time.perf_counter()
        unlock()
        return {"held": at}

    yield run
    connection.close()
