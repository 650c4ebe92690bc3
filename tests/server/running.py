"""The service in a thread of this process, on a free port, for tests that talk to it over a real socket."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from leased.server.app import App
from leased.server.calls import Route
from leased.server.holds import HoldsKept
from leased.server.principals import Gate
from leased.server.serve import Server, address_of, listen, make_server
from leased.server.service import Service
from leased.server.settings import Settings
from leased.store import Clock, Store

PATIENCE = 20.0

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Running:
    """A service that answers at `url`. What belongs to its loop is touched there only: `call` does that."""

    url: str
    port: int
    service: Service
    server: Server
    loop: asyncio.AbstractEventLoop

    def call(self, function: Callable[[], Any]) -> Any:
        """What a function returns that runs in the service's loop."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(PATIENCE)

    def stop(self) -> None:
        """Begin an orderly end, as a signal would."""
        self.server.should_exit = True


@contextmanager
def running(
    store: str | Store = "memory",
    *,
    gate: Gate | None = None,
    clock: Clock | None = None,
    port: int = 0,
    further: Sequence[Route] = (),
    holds: HoldsKept | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """Run the service over the store of a URL, or a store object for asynchronous callers, while the block runs.

    By default the store is a memory of its own.
    """
    given = None if isinstance(store, str) else store
    url = store if isinstance(store, str) and store != "memory" else f"memory:service-{next(_numbers)}"
    chosen = Settings(store=url, port=port, **settings)
    loop = asyncio.new_event_loop()
    made: list[Service] = []
    began = threading.Event()
    listening = listen(chosen)
    address, number = address_of(chosen, listening), listening.getsockname()[1]
    holder: list[Server] = []

    async def serve() -> None:
        service = Service(chosen, gate=gate, clock=clock, store=given, holds=holds)
        made.append(service)
        server = make_server(App(service, further=further), chosen, loop="asyncio")
        holder.append(server)
        began.set()
        await server.serve(sockets=[listening])

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="service", daemon=True)
    thread.start()
    try:
        assert began.wait(PATIENCE), "the service did not begin"
        yield Running(address, number, made[0], holder[0], loop)
    finally:
        for server in holder:
            server.should_exit = True
        thread.join(PATIENCE)
        listening.close()
        assert not thread.is_alive(), "the service did not end"
        loop.close()
