"""`leased serve`: the lock service in the foreground, until a signal ends it."""

from __future__ import annotations

import gc
import logging
import sys
from contextlib import suppress
from importlib.util import find_spec

from leased.cli.session import Session
from leased.cli.settings import Place
from leased.errors import InvalidRequest, LeasedError, StoreNotUsable
from leased.server.settings import PREFIX, Settings, is_loopback, read_settings
from leased.targets import hide_secrets

_NEEDED = ("cel_expr_python", "httptools", "jwt", "msgspec", "uvicorn")


def serve(session: Session) -> int:
    """Serve until TERM or INT; what has begun is finished first."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise StoreNotUsable(f"the service needs {missing[0]}", hint="pip install 'leased[server]'")
    given = session.arguments
    session.warn_of_registry()
    place = _place(session)
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
        ui=given.ui,
    )
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    return _serve(session, settings)


def _place(session: Session) -> Place:
    """The store to serve: the one of an option, else of the service's own setting, else of every other command."""
    given, named = session.arguments, session.environment.get(f"{PREFIX}STORE")
    if named and not (given.place or given.url):
        return Place(named, f"{PREFIX}STORE")
    place = session.place()
    registry = given.registry or session.environment.get(f"{PREFIX}REGISTRY")
    if registry and place.named_by == "LEASED_URL" and place.url.lower().startswith(("http:", "https:")):
        raise InvalidRequest(
            "LEASED_URL names another lock service, and a service with credentials cannot keep its locks there",
            hint="unset it, or name the store by --store",
        )
    return place


def _serve(session: Session, settings: Settings) -> int:
    from leased.server.access import make_app
    from leased.server.serve import address_of, listen, make_server

    empty = _empty_registry(settings)
    with listen(settings) as listening:
        address = address_of(settings, listening)
        server = make_server(make_app(settings), settings)
        say = session.output.talk
        say(f"leased serves {address} from {hide_secrets(settings.store)}; ctrl-c ends it")
        if settings.open:
            say("nobody is asked for credentials: everybody who can connect may do everything")
        if not settings.tls_certificate and not is_loopback(settings.host):
            say("there is no TLS: without a proxy that adds it, credentials and tokens cross the network in the clear")
        if settings.ui != "off":
            only = "" if settings.ui == "act" else ", to look at; with --ui act it can act"
            say(f"its dashboard is {address}/ui/{only}")
        if empty:
            say(f"nobody can use it yet: {empty} has no API keys; 'leased keys create --registry {empty}' makes one")
        gc.collect()
        gc.freeze()  # what is here now stays: looking through it again and again would only delay answers
        server.run(sockets=[listening])
    return 0


def _empty_registry(settings: Settings) -> str:
    """The file that is to be the registry, if it has no API key and nobody comes with tokens of others either: most
    often its name is misspelled. Else nothing."""
    from leased.server.registry_names import kind_of, path_of
    from leased.server.registry_sqlite import has_credentials

    if not settings.registry or settings.jwt_issuer or kind_of(settings.registry) != "sqlite":
        return ""
    path = path_of(settings.registry)
    with suppress(LeasedError):  # what is wrong with it is told when it is opened
        return "" if has_credentials(path, timeout=settings.registry_timeout) else path
    return ""
