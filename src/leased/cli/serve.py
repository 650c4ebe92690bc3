"""`leased serve`: the lock service in the foreground, until a signal ends it."""

from __future__ import annotations

import gc
import logging
import sys
from importlib.util import find_spec

from leased.cli.session import Session
from leased.errors import StoreNotUsable
from leased.server.settings import Settings, is_loopback, read_settings
from leased.targets import hide_secrets

_NEEDED = ("cel_expr_python", "httptools", "jwt", "msgspec", "uvicorn")


def serve(session: Session) -> int:
    """Serve until TERM or INT; what has begun is finished first."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise StoreNotUsable(f"the service needs {missing[0]}", hint="pip install 'leased[server]'")
    given = session.arguments
    place = session.place()
    settings = read_settings(
        session.environment,
        store=place.url,
        host=given.host,
        port=given.port,
        registry=given.registry,
        registry_key=given.registry_key,
        insecure=True if given.insecure else None,
        tls_certificate=given.tls_certificate,
        tls_key=given.tls_key,
        tls_client_authority=given.tls_client_authority,
        log_requests=True if given.log_requests else None,
    )
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    return _serve(session, settings)


def _serve(session: Session, settings: Settings) -> int:
    from leased.server.access import make_app
    from leased.server.serve import address_of, listen, make_server

    with listen(settings) as listening:
        address = address_of(settings, listening)
        server = make_server(make_app(settings), settings)
        say = session.output.talk
        say(f"leased serves {address} from {hide_secrets(settings.store)}; ctrl-c ends it")
        if settings.open:
            say("nobody is asked for credentials: everybody who can connect may do everything")
        if not settings.tls_certificate and not is_loopback(settings.host):
            say("there is no TLS: without a proxy that adds it, credentials and tokens cross the network in the clear")
        gc.collect()
        gc.freeze()  # what is here now stays: looking through it again and again would only delay answers
        server.run(sockets=[listening])
    return 0
