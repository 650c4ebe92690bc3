"""The lock service as a process of its own, as users start it: `leased serve`. It keeps locks in a file of its own."""

from __future__ import annotations

import http.client
import ssl
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.servers import certificates
from tests.servers.process import Place, Recipe, Server

PATIENCE = 5.0
SOURCES = Path(__file__).parents[2] / "src"


def start(
    *,
    store: str = "",
    tls: bool = False,
    client_certificates: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Server:
    """A running service over the store of that URL, else over a file. `settings` are by the names of `Settings`.

    With `client_certificates` it serves only those who show one that the same authority has signed.
    """

    def command(place: Place) -> list[str]:
        kept = store or f"sqlite:{place.data / 'locks.db'}"
        found = [sys.executable, "-m", "leased", "serve", "--store", kept, "--port", str(place.port)]
        if tls:
            found += ["--tls-certificate", str(certificates.certificate_file(place))]
            found += ["--tls-key", str(certificates.key_file(place))]
        if client_certificates:
            found += ["--tls-client-authority", str(certificates.authority_file(place))]
        return found

    def answers(place: Place, _pid: int) -> bool:
        try:
            return _status(place, tls=tls) == http.client.OK
        except OSError:
            return False

    def environment(_: Place) -> dict[str, str]:
        own = {f"LEASED_SERVE_{name.upper()}": value for name, value in (settings or {}).items()}
        return {"PYTHONPATH": str(SOURCES), **own}  # the service of this checkout, whatever is installed

    return Server(
        Recipe(
            "lock-service",
            command=command,
            url=lambda place: f"{'https' if tls else 'http'}://{place.host}:{place.port}",
            answers=answers,
            wall_clock=lambda _: time.time(),
            prepare=certificates.write if tls else lambda _: None,
            environment=environment,
        )
    )


def _status(place: Place, *, tls: bool) -> int:
    """What the service answers when asked whether it runs."""
    connection: http.client.HTTPConnection
    if tls:
        trust = ssl.create_default_context(cafile=certificates.authority_file(place))
        trust.load_cert_chain(certificates.certificate_file(place), certificates.key_file(place))
        connection = http.client.HTTPSConnection(place.host, place.port, timeout=PATIENCE, context=trust)
    else:
        connection = http.client.HTTPConnection(place.host, place.port, timeout=PATIENCE)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()
