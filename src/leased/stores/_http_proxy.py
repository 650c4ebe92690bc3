"""The way to a lock service through a proxy that the environment names. It knows nothing of what passes through."""

from __future__ import annotations

import os
import socket
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from leased.clocks import now
from leased.errors import InvalidRequest, StoreUnavailable
from leased.stores._http_url import Address
from leased.stores._http_wire import NotHttp, Reading

_READ = 65_536
_LEAST = 0.001
_PORT = 3128


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where a proxy is, and who asks it; `login` is a secret."""

    host: str
    port: int
    login: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """As it may stand in a message."""
        return f"the proxy {self.host}:{self.port}"


def proxy_to(address: Address) -> Proxy | None:
    """The proxy for this service, from `https_proxy`, `http_proxy`, `all_proxy` and `no_proxy`; never to loopback."""
    if address.direct or address.loopback or not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib import request  # it takes longer to load than all else that a store needs

    proxies = request.getproxies_environment()
    named = proxies.get("https" if address.tls else "http") or proxies.get("all")
    place = f"{address.host}:{address.port}"
    if not named or request.proxy_bypass_environment(place, proxies):  # type: ignore[attr-defined]
        return None
    parts = urlsplit("")
    port = 0
    with suppress(ValueError):
        parts = urlsplit(named if "://" in named else f"http://{named}")
        port = parts.port or _PORT
    host = parts.hostname
    if host is None or not port or parts.scheme != "http":
        raise InvalidRequest(
            "the environment names a proxy that is not http://HOST:PORT", hint="see https_proxy, or set no_proxy"
        )
    login = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(host, port, login)


def tunnel(dialed: socket.socket, proxy: Proxy, *, address: Address, give_up_at: float) -> None:
    """Have the proxy connect to the service; from then on the socket leads there. Raises `StoreUnavailable`."""
    asking = _Asking(proxy, address)
    dialed.settimeout(max(give_up_at - now(), _LEAST))
    dialed.sendall(asking.request)
    while not asking.done:
        dialed.settimeout(max(give_up_at - now(), _LEAST))
        asking.read(dialed.recv(_READ))
    dialed.settimeout(0.0)


async def tunnel_in_loop(dialed: socket.socket, proxy: Proxy, *, address: Address) -> None:
    """As `tunnel`, from a task, which bounds the time."""
    import asyncio

    loop = asyncio.get_running_loop()
    asking = _Asking(proxy, address)
    await loop.sock_sendall(dialed, asking.request)
    while not asking.done:
        asking.read(await loop.sock_recv(dialed, _READ))


class _Asking:
    """One request for a tunnel, and the head of its answer."""

    def __init__(self, proxy: Proxy, address: Address) -> None:
        host = f"[{address.host}]" if ":" in address.host else address.host
        place = f"{host}:{address.port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if proxy.login is not None:
            lines.append(f"Proxy-Authorization: Basic {b64encode(proxy.login.encode()).decode('ascii')}")
        self.request = "".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii")
        self.done = False
        self._proxy = proxy
        self._reading = Reading()

    def read(self, arrived: bytes) -> None:
        """Read on; raises `StoreUnavailable` for anything but a way that is open."""
        if not arrived:
            raise self._no_way("closed the connection")
        try:
            self._reading.feed(arrived)
        except NotHttp as error:
            raise self._no_way(f"answered nothing that can be understood: {error}") from error
        status = self._reading.status
        if status and not 200 <= status < 300:
            hint = "the proxy's URL needs http://USER:PASSWORD@HOST" if status == 407 else None
            raise self._no_way(f"answered with status {status}", hint=hint)
        self.done = status != 0

    def _no_way(self, why: str, *, hint: str | None = None) -> StoreUnavailable:
        return StoreUnavailable(f"{self._proxy} {why}", applied=False, hint=hint)
