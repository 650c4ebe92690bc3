"""One server on which services come and go, for tests that need hundreds of them, one after the other.

How a server begins and ends is no matter of these tests: each end would take uvicorn's two pauses of 0.1 s.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from leased.server.app import App
from leased.server.calls import Receive, Send
from leased.server.serve import Server, address_of, listen, make_server
from leased.server.service import Service
from leased.server.settings import Settings
from leased.store import Store
from tests.server.running import PATIENCE


class Stage:
    """Listens from its beginning until it is closed; what is asked meanwhile, the service that is on answers."""

    def __init__(self) -> None:
        self._settings = Settings(store="memory:stage", port=0)
        self._listening = listen(self._settings)
        self.url = address_of(self._settings, self._listening)
        self._app: App | None = None
        self._loop = asyncio.new_event_loop()
        self._server: Server | None = None
        self._began = threading.Event()
        work = self._serve()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(work,), name="stage", daemon=True)
        self._thread.start()
        assert self._began.wait(PATIENCE), "the server did not begin"

    @contextmanager
    def playing(self, store: Store) -> Iterator[None]:
        """A service of its own over this store, which is for asynchronous callers, while the block runs."""
        service = asyncio.run_coroutine_threadsafe(self._open(store), self._loop).result(PATIENCE)
        try:
            yield
        finally:
            self._app = None
            asyncio.run_coroutine_threadsafe(service.close(), self._loop).result(PATIENCE)

    def close(self) -> None:
        """End the server, and listen no more."""
        if self._server:
            self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._listening.close()
        assert not self._thread.is_alive(), "the server did not end"
        self._loop.close()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Hand a request to the service that is on; the server's own life is nobody else's."""
        if scope["type"] == "lifespan":
            for what in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{what}.complete"})
        else:
            assert self._app is not None, f"{scope['path']} was asked for while no service is on"
            await self._app(scope, receive, send)

    def drain(self) -> None:
        """Nothing waits here that a service would not have sent away at its end."""

    async def _open(self, store: Store) -> Service:
        service = Service(self._settings, store=store)
        self._app = App(service)
        return service

    async def _serve(self) -> None:
        self._server = make_server(cast(App, self), self._settings, loop="asyncio")
        self._began.set()
        await self._server.serve(sockets=[self._listening])
