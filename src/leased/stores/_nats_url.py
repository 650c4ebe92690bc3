"""Reads the URL of a bucket of NATS apart: servers, credentials, TLS, name and settings. It opens nothing."""

from __future__ import annotations

import re
import ssl
from collections.abc import Hashable
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from leased.checks import shown
from leased.errors import InvalidRequest, StoreNotUsable
from leased.stores._drivers import driver
from leased.targets import Options, hide_secrets

DEFAULT_BUCKET = "leased"
PORT = 4222
TLS_SCHEME = "nats+tls"
_FORM = "write nats://[USER:PASSWORD@]HOST[:PORT][,HOST…][/BUCKET], nats+tls://… for TLS, and %40 for @"
_BUCKET = re.compile(r"[A-Za-z0-9_-]{1,200}")
_INBOX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_TOKEN = re.compile(rb"-BEGIN NATS USER JWT-+\n([\w.-]+)\n")
_SEED = re.compile(rb"-BEGIN USER NKEY SEED-+\n([A-Z2-7]+)\n")
_TLS_FILES = ("ca", "cert", "cert_key")


@dataclass(frozen=True, slots=True)
class Address:
    """What a URL says. Credentials are a user and password, a token (`user` alone), or what is in the named files."""

    servers: tuple[tuple[str, int], ...]
    bucket: str
    replicas: int | None
    tls: bool
    shown: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    credentials: str | None = None
    nkey: str | None = None
    inbox: str = "_INBOX"
    ca: str | None = None
    cert: str | None = None
    cert_key: str | None = None

    def __str__(self) -> str:
        """As it may stand in a message."""
        return self.shown

    @property
    def stream(self) -> str:
        """The name of the stream below the bucket."""
        return f"KV_{self.bucket}"

    @property
    def listening(self) -> Hashable:
        """What watching connections must have in common to be one. Never show it."""
        files = (self.credentials, self.nkey, self.ca, self.cert, self.cert_key)
        return ("nats", self.servers, self.bucket, self.tls, self.user, self.password, self.inbox, *files)


def read_address(url: str, options: Options) -> Address:
    """What a URL says; `InvalidRequest` names what is wrong with it, without its secrets."""
    place = hide_secrets(url)
    parts = _split(url, place)
    logins, _, hosts = parts.netloc.rpartition("@")
    user, _, password = logins.partition(":")
    files = {name: options.own[name] for name in (*_TLS_FILES, "credentials", "nkey") if options.own.get(name)}
    tls = parts.scheme == TLS_SCHEME
    if given := next((name for name in _TLS_FILES if name in files and not tls), None):
        raise InvalidRequest(
            f"leased_{given} is for {TLS_SCHEME}://, and the URL is {place}",
            hint=f"write {TLS_SCHEME}://, or leave it out",
        )
    if "cert_key" in files and "cert" not in files:
        raise InvalidRequest("leased_cert_key needs leased_cert beside it", hint="name the file with the certificate")
    if len([way for way in (logins, files.get("credentials"), files.get("nkey")) if way]) > 1:
        raise InvalidRequest(f"the URL of {place} names credentials in two ways", hint="leave one of them")
    inbox = options.own.get("inbox", "_INBOX")
    if not _INBOX.fullmatch(inbox):
        raise InvalidRequest(f"leased_inbox={shown(inbox)} is no prefix of subjects", hint="such as _INBOX_jobs")
    replicas = options.own_number("replicas", least=1, most=5, default=0)
    return Address(
        servers=tuple(_server(host, place) for host in hosts.split(",")),
        bucket=_bucket(parts.path),
        replicas=replicas or None,
        tls=tls,
        shown=place,
        user=unquote(user) or None,
        password=unquote(password) if ":" in logins else None,
        inbox=inbox,
        **files,
    )


def place_of(url: str) -> str:
    """The bucket that a URL means, however it is spelled."""
    place = hide_secrets(url)
    parts = _split(url, place)
    servers = sorted(_server(host, place) for host in parts.netloc.rpartition("@")[2].split(","))
    return f"{','.join(f'{host}:{port}' for host, port in servers)}/{_bucket(parts.path)}"


def trust_of(address: Address) -> ssl.SSLContext | None:
    """What TLS there trusts and shows; `StoreNotUsable` where a named file is of no use."""
    if not address.tls:
        return None
    named = f"leased_ca={address.ca}"
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.cert is not None:
            named = f"leased_cert={address.cert}"
            # Without a password given, the library would ask for one on the terminal.
            context.load_cert_chain(address.cert, address.cert_key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise StoreNotUsable(
            f"{named} cannot be used: {error}", hint="it has to be a PEM file that this process may read"
        ) from error
    return context


def check_proof(address: Address) -> None:
    """Raise `StoreNotUsable` where a file that proves who connects is of no use; its text is never shown.

    The driver reads it too, and would read on for ever where the line that it looks for is missing.
    """
    parameter, name = ("leased_nkey", address.nkey) if address.nkey else ("leased_credentials", address.credentials)
    if not name:
        return
    nkeys = driver("nkeys", extra="nats")
    try:
        with open(name, "rb") as file:
            text = file.read()
        if not address.nkey:
            text = _part(text, _TOKEN) and _part(text, _SEED)
        nkeys.from_seed(bytearray(text.strip()))
    except (OSError, ValueError, TypeError, nkeys.NkeysError) as error:
        why = f": {error}" if isinstance(error, OSError) else ""
        hint = "it has to be the seed of a user" if address.nkey else "it has to be what `nsc generate creds` writes"
        raise StoreNotUsable(f"{parameter}={name} cannot be used{why}", hint=hint) from None


def _part(text: bytes, pattern: re.Pattern[bytes]) -> bytes:
    found = pattern.search(text)
    if found is None:
        raise ValueError(pattern)
    return found[1]


def _split(url: str, place: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:  # whose text may show the URL whole
        raise InvalidRequest(f"the URL {place} cannot be read", hint=_FORM) from None
    if "@" in parts.path or "@" in parts.fragment or ("@" in parts.query and "@" not in parts.netloc):
        raise InvalidRequest(f"the URL {place} cannot be read", hint=_FORM)
    if parts.query or parts.fragment:
        raise InvalidRequest(f"the URL {place} has a parameter that does not begin with leased_", hint=_FORM)
    return parts


def _server(text: str, place: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "localhost", parts.port
    except ValueError:  # what it names may be the end of a password
        raise InvalidRequest(f"the URL {place} names no host and port", hint=_FORM) from None
    if port == 0 or any(character <= " " for character in host):
        raise InvalidRequest(f"the URL {place} names no host and port", hint=_FORM)
    return host, PORT if port is None else port


def _bucket(path: str) -> str:
    name = path.strip("/") or DEFAULT_BUCKET
    if not _BUCKET.fullmatch(name):
        raise InvalidRequest(
            f"{shown(name)!r} is no name of a bucket", hint="1 to 200 ASCII letters, digits, '_' and '-'"
        )
    return name
