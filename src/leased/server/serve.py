"""Runs the service: a socket, uvicorn, an orderly end. What is served, and to whom, is decided elsewhere."""

from __future__ import annotations

import logging
import signal
import socket
import ssl
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from leased.errors import InvalidRequest, StoreNotUsable
from leased.server.app import App
from leased.server.connections import Connections
from leased.server.settings import Settings

_BACKLOG = 2048


class Server(uvicorn.Server):
    """Ends in order: nothing more is granted, waiters are told to ask elsewhere, what has begun is finished."""

    def __init__(self, config: uvicorn.Config, *, drain: Callable[[], None]) -> None:
        """`drain` is called once, first of all, when the end begins."""
        super().__init__(config)
        self._drain = drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal begins the end, which is no failure; a second INT does not wait for what has begun."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then end."""
        self._drain()
        await super().shutdown(sockets)


def listen(settings: Settings) -> socket.socket:
    """The socket of the service; raises `StoreNotUsable` where it cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while attempting")[0]  # which names the address once more
        raise StoreNotUsable(
            f"nothing can listen on {settings.host} port {settings.port}: {why}",
            hint="choose another --port or --host",
        ) from error
    # What it accepts inherits this: asyncio's own loop sets it only where the socket names TCP, and this one does not.
    # Without it the second part of each answer waits 40 ms for the client's word that it has the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address_of(settings: Settings, listening: socket.socket) -> str:
    """The URL of what listens there."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.tls_certificate else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def make_server(app: App, settings: Settings, *, loop: str = "auto") -> Server:
    """A server for that application; `run(sockets=[…])` serves until `should_exit` is set or a signal comes."""
    more: dict[str, Any] = {"http": Connections(settings)}  # anything that makes a protocol will do
    if settings.tls_certificate:
        _check_certificate(settings)
        more |= {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": settings.tls_key or None}
    if settings.tls_client_authority:
        more |= {"ssl_ca_certs": settings.tls_client_authority, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    config = uvicorn.Config(
        app,
        loop=loop,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(settings.idle_timeout),
        timeout_graceful_shutdown=int(settings.drain),
        backlog=_BACKLOG,
        **more,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return Server(config, drain=app.drain)


def _check_certificate(settings: Settings) -> None:
    """Raise `InvalidRequest` for files that TLS could not begin with."""
    named = settings.tls_certificate + (f" with {settings.tls_key}" if settings.tls_key else "")
    try:
        # Without a password given, the library would ask for one on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.tls_certificate, settings.tls_key or None, password=lambda: ""
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise InvalidRequest(
            f"{named} cannot be used as a certificate: {why}",
            hint="name PEM files: --tls-certificate, and the private key by --tls-key unless it is in the same file",
        ) from error
