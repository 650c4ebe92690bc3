"""Reads the URL of an etcd cluster apart: where its members are, who logs in, what TLS trusts. It opens nothing."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from leased.errors import InvalidRequest
from leased.stores._http_url import Address as Member
from leased.targets import Options, hide_secrets

PORT = 2379

_TLS_FILES = ("ca", "cert", "cert_key")
_FORM = "etcd://[USER:PASSWORD@]HOST[:PORT][,HOST…], or etcds:// with TLS"
_ESCAPE = "write / ? # @ within a password as %2F %3F %23 %40"


@dataclass(frozen=True, slots=True)
class Login:
    """Who logs in; the password is a secret."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """What a URL says: the members that are asked, in this order at first, and who asks."""

    members: tuple[Member, ...]
    login: Login | None
    shown: str

    @property
    def listening(self) -> Hashable:
        """What watching connections must have in common to be one. Never show it."""
        return ("etcd", self.members, self.login)

    def __str__(self) -> str:
        """As it may stand in a message."""
        return self.shown


def read_address(url: str, options: Options) -> Address:
    """The address in a URL; `InvalidRequest` names what is wrong with it, without its secrets."""
    shown = hide_secrets(url)
    try:
        parts = urlsplit(url)
    except ValueError:  # whose text and trace may show the URL whole
        raise InvalidRequest(f"the URL {shown} cannot be read", hint=_FORM) from None
    tls = parts.scheme == "etcds"
    if "@" in parts.path + parts.query + parts.fragment:
        raise InvalidRequest(f"the URL {shown} cannot be read", hint=_ESCAPE)
    if parts.query:
        raise InvalidRequest(f"the URL {shown} has a parameter that does not begin with leased_", hint=_FORM)
    credentials, _, places = parts.netloc.rpartition("@")
    if not places or parts.path not in ("", "/") or parts.fragment:
        raise InvalidRequest(f"the URL {shown} does not have the form", hint=_FORM)
    files = {name: options.own[name] for name in _TLS_FILES if options.own.get(name)}
    if files and not tls:
        raise InvalidRequest(
            f"leased_{next(iter(files))} is for etcds://, and the URL is {shown}",
            hint="write etcds://, or leave it out",
        )
    if "cert_key" in files and "cert" not in files:
        raise InvalidRequest("leased_cert_key needs leased_cert beside it", hint="name the file with the certificate")
    members = [_member(place, url, tls=tls, files=files) for place in places.split(",")]
    return Address(tuple(dict.fromkeys(members)), _login(credentials, shown), shown.rstrip("/"))


def place_of(url: str) -> str:
    """Where the URL leads, the same however it is spelled: the members in order, without secrets."""
    places = urlsplit(url).netloc.rpartition("@")[2].lower().split(",")
    return ",".join(sorted({place if place.rpartition("]")[2].count(":") else f"{place}:{PORT}" for place in places}))


def _member(place: str, url: str, *, tls: bool, files: dict[str, str]) -> Member:
    host, port = None, None
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port
        host = host and (host if ":" in host else host.encode("idna").decode("ascii"))
    except ValueError:  # what it names may be the end of a password
        host = None
    if not host or port == 0:
        hint = f"the port is a number; {_ESCAPE}"
        raise InvalidRequest(f"the URL {hide_secrets(url)} names no host and port", hint=hint)
    where = f"etcd at [{host}]:{port or PORT}" if ":" in host else f"etcd at {host}:{port or PORT}"
    ca, cert, cert_key = (files.get(name) for name in _TLS_FILES)
    return Member(host, port or PORT, tls=tls, path="", shown=where, direct=True, ca=ca, cert=cert, cert_key=cert_key)


def _login(credentials: str, shown: str) -> Login | None:
    if not credentials:
        return None
    name, colon, password = credentials.partition(":")
    if not name or not colon or not password:
        raise InvalidRequest(f"the URL of {shown} has a user without a password, or no user", hint=_FORM)
    return Login(unquote(name), unquote(password))
