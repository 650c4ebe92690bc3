"""A service and connections that ask it, in one thread: to count what a request executes, not to measure it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import uvicorn

from bench import plain_asgi
from bench.contenders.http_load import Connection, itself
from bench.services import LIMITS, member_key
from bench.worker import Run
from leased.server import gate_memory
from leased.server.access import make_app
from leased.server.serve import listen, make_server
from leased.server.settings import read_settings

_PATIENCE = 20.0
_LONG = 3_600.0
"""Seconds: what is looked up every two seconds would be counted far too often, for counting is slow."""


@contextmanager
def leased(directory: Path, *, clients: int, guarded: bool = False) -> Iterator[Run]:
    """The lock service over memory; `guarded`: it asks for an API key, and counts requests against budgets."""
    credential, registry = "", None
    if guarded:
        registry, credential = member_key(directory)
    settings = read_settings(LIMITS, store="memory:", port=0, registry=registry)
    with listen(settings) as listening, patch.object(gate_memory, "REMEMBERED_FOR", _LONG):
        server = make_server(make_app(settings), settings, loop="asyncio")
        with _asked(server, listening, credential=credential, clients=clients) as run:
            yield run


@contextmanager
def plain(directory: Path, *, clients: int, guarded: bool = False) -> Iterator[Run]:
    """Its floor: the same server with an application that answers the same to everything."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        _asked(uvicorn.Server(plain_asgi.config()), listening, credential="", clients=clients) as run,
    ):
        yield run


@contextmanager
def _asked(server: uvicorn.Server, listening: socket.socket, *, credential: str, clients: int) -> Iterator[Run]:
    header = f"authorization: Bearer {credential}\r\n".encode() if credential else b""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        serving = loop.create_task(server.serve(sockets=[listening]))
        everyone = [Connection(loop, name=number, credential=header) for number in range(clients)]

        async def connect() -> None:
            async with asyncio.timeout(_PATIENCE):
                while not server.started:
                    await asyncio.sleep(0.01)
                for client in everyone:
                    await loop.create_connection(partial(itself, client), *listening.getsockname())

        async def ask(count: int) -> None:
            for client in everyone:
                client.begin(count // clients // 2)  # each pair is two requests
            await asyncio.gather(*(client.done for client in everyone))

        async def end() -> None:
            for client in everyone:
                client.transport.close()
            server.should_exit = True
            await serving

        runner.run(connect())
        yield lambda count: runner.run(ask(count))
        runner.run(end())
