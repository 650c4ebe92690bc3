"""Reads the URL of a lock service apart: where it is, which credential is shown, what TLS trusts. It opens nothing."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from leased.errors import InvalidRequest
from leased.targets import Options, hide_secrets

API_KEY = "LEASED_API_KEY"
"""The environment variable with the credential for a service whose URL has none."""

_PORTS = {"http": 80, "https": 443}
_TLS_FILES = ("ca", "cert", "cert_key")
_PATH = re.compile(r"[!-~]*")
_CREDENTIAL = re.compile(r"[!-~]+")
_MOST_CREDENTIAL = 8_192


@dataclass(frozen=True, slots=True)
class Address:
    """Where a lock service is. `path` stands before all of its paths; `credential` is a secret.

    `ca` is a file with the authorities that are trusted instead of the system's, `cert` and `cert_key` those with
    which this side shows who it is. `direct`: no proxy that the environment names leads there.
    """

    host: str
    port: int
    tls: bool
    path: str
    shown: str
    credential: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None
    cert_key: str | None = None
    direct: bool = False

    @property
    def authority(self) -> str:
        """Host and port as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether it is on this machine."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        """As it may stand in a message."""
        return self.shown


def read_address(url: str, options: Options) -> Address:
    """What a URL says, and the environment where it names no credential; `InvalidRequest` for what is wrong in it."""
    place = hide_secrets(url)
    parts, port = _split(url, place)
    tls = parts.scheme == "https"
    host = _host(parts, place)
    files = {name: options.own[name] for name in _TLS_FILES if options.own.get(name)}
    if files and not tls:
        raise InvalidRequest(
            f"leased_{next(iter(files))} is for https://, and the URL is {place}",
            hint="write https://, or leave it out",
        )
    if "cert_key" in files and "cert" not in files:
        raise InvalidRequest("leased_cert_key needs leased_cert beside it", hint="name the file with the certificate")
    insecure = options.own_number("insecure", least=0, most=1, default=0) == 1
    if not tls and not insecure and not is_loopback(host):
        raise InvalidRequest(
            f"{place} is not on this machine, and http:// would carry tokens where others can read them",
            hint="use https://, or leased_insecure=1 on a network that you trust",
        )
    return Address(
        host=host,
        port=port or _PORTS[parts.scheme],
        tls=tls,
        path=parts.path.rstrip("/"),
        shown=place.rstrip("/"),
        credential=_credential(parts, place),
        ca=files.get("ca"),
        cert=files.get("cert"),
        cert_key=files.get("cert_key"),
    )


def place_of(url: str) -> str:
    """Where that is, the same for every way to write it."""
    parts, port = _split(url, hide_secrets(url))
    return f"{parts.scheme}://{parts.hostname}:{port or _PORTS[parts.scheme]}{parts.path.rstrip('/')}"


def _split(url: str, place: str) -> tuple[SplitResult, int | None]:
    form = "a lock service is named as https://HOST:PORT"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"the URL {place} is wrong: {_without_values(error)}", hint=form) from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise InvalidRequest(f"the URL {place} names no host and port", hint=form)
    if parts.query:
        raise InvalidRequest(f"the URL {place} has a parameter that does not begin with leased_", hint=form)
    if parts.fragment or not _PATH.fullmatch(parts.path):
        raise InvalidRequest(f"the URL {place} has a fragment, or a path with more than plain characters", hint=form)
    return parts, port


def _without_values(error: ValueError) -> str:
    """What urllib says is wrong, without what it quotes from the URL."""
    return str(error).partition("'")[0].partition(" as ")[0].strip() or "it cannot be read"


def _host(parts: SplitResult, place: str) -> str:
    host = parts.hostname or ""
    try:
        return host if ":" in host else host.encode("idna").decode("ascii")
    except UnicodeError:
        raise InvalidRequest(
            f"the URL {place} names a host that no name server can know",
            hint="labels between dots have 1 to 63 characters",
        ) from None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _credential(parts: SplitResult, place: str) -> str | None:
    if parts.username:
        raise InvalidRequest(
            f"the URL of {place} names a user, and a lock service knows credentials only",
            hint=f"write https://:KEY@HOST, or set {API_KEY}",
        )
    given = unquote(parts.password) if parts.password else os.environ.get(API_KEY)
    if not given:
        return None
    if len(given) > _MOST_CREDENTIAL or not _CREDENTIAL.fullmatch(given):
        where = "the URL" if parts.password else API_KEY
        raise InvalidRequest(
            f"the credential in {where} is none: it has {len(given):,} characters, and 1 to {_MOST_CREDENTIAL:,} are "
            "allowed, all plain and without blanks",
            hint="take the whole key that 'leased keys create' printed, and nothing else",
        )
    return given
