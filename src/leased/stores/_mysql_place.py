"""Where the URL of a MySQL or MariaDB store leads, and as whom. It opens nothing."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from leased.checks import shown
from leased.errors import InvalidRequest, StoreNotUsable
from leased.targets import hide_secrets

PORT = 3306
# `charset` changes nothing: it stands in many URLs that were written for other libraries.
_PARAMETERS = ("unix_socket", "charset", "ssl", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify")
_EXAMPLE = "such as mysql://user:password@host:3306/database"
_ESCAPED = f"{_EXAMPLE}; in a password write %2F for /, %3F for ?, %23 for #, %40 for @, %5B for [ and %25 for %"


@dataclass(frozen=True, slots=True)
class Tls:
    """How the connection is encrypted; `verify` says whether the server has to prove that it is the host."""

    verify: bool = True
    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """What drivers take; `StoreNotUsable` if a file cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.authorities)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, keyfile=self.key)
        except OSError as error:  # an ssl.SSLError is one, too
            files = ", ".join(filter(None, (self.authorities, self.certificate, self.key)))
            raise StoreNotUsable(
                f"the files of the TLS parameters cannot be used: {files}: {error}",
                hint="ssl_ca, ssl_cert and ssl_key name PEM files that this user may read",
            ) from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class Place:
    """A database on a server, as one user. `shown` may stand in messages."""

    host: str
    port: int
    socket: str | None
    user: str
    password: str = field(repr=False)
    database: str
    tls: Tls | None
    shown: str

    @property
    def address(self) -> str:
        """The server and the database, however the URL spells them; no secret."""
        where = f"unix:{self.socket}" if self.socket else f"{self.host.lower()}:{self.port}"
        return f"{where}/{self.database}"

    @property
    def private(self) -> bool:
        """Whether nobody on the way can read along."""
        return self.socket is not None or self.tls is not None


def place(url: str) -> Place:
    """Read a URL; `InvalidRequest` says what is wrong with it."""
    hidden = hide_secrets(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # which says what it stumbled over: that may be a part of the password
        raise InvalidRequest(
            f"{hidden} cannot be read: its host or its port, a number up to 65535, is none", hint=_ESCAPED
        ) from None
    if "@" in parts.path + parts.query or "#" in url:
        raise InvalidRequest(f"{hidden} cannot be read: there is '#', or '@' after the host", hint=_ESCAPED)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in given:
        if name not in _PARAMETERS:
            raise InvalidRequest(
                f"the URL has the unknown parameter {shown(name)}", hint=f"known are {', '.join(_PARAMETERS)}"
            )
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise InvalidRequest(f"{hidden} names no database: the tables of the store live in one", hint=_EXAMPLE)
    if port == 0:
        raise InvalidRequest(f"{hidden} has the port 0", hint="write one from 1 to 65535, or none for 3306")
    socket = given.get("unix_socket") or None
    tls = _tls(given)
    if socket is not None and tls is not None:
        raise InvalidRequest("a unix socket has no TLS", hint="remove unix_socket or what begins with ssl")
    return Place(
        host=unquote(parts.hostname or "localhost"),
        port=port or PORT,
        socket=socket,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=database,
        tls=tls,
        shown=hidden,
    )


def _tls(given: dict[str, str]) -> Tls | None:
    """The TLS of the parameters; naming a file asks for it, too."""
    files = {name: given.get(name) or None for name in ("ssl_ca", "ssl_cert", "ssl_key")}
    named = any(files.values()) or "ssl_verify" in given
    wanted = _flag(given, "ssl", default=named)
    verify = _flag(given, "ssl_verify", default=True)
    if not wanted:
        if named:
            raise InvalidRequest("ssl=false and parameters for TLS exclude each other", hint="remove one of them")
        return None
    if files["ssl_key"] and not files["ssl_cert"]:
        raise InvalidRequest(
            "ssl_key is the key of a certificate, and ssl_cert names none",
            hint="name the certificate's file by ssl_cert",
        )
    return Tls(verify, authorities=files["ssl_ca"], certificate=files["ssl_cert"], key=files["ssl_key"])


def _flag(given: dict[str, str], name: str, *, default: bool) -> bool:
    words: Callable[[str], bool | None] = {"true": True, "1": True, "false": False, "0": False}.get
    value = words(given[name].lower()) if name in given else default
    if value is None:
        raise InvalidRequest(f"{name} is {shown(given[name])!r} in the URL", hint="write true or false")
    return value
