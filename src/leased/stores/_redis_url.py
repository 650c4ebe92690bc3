"""Reads a Redis URL apart: where servers are, who logs in, and with which TLS. It opens nothing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from leased.checks import shown
from leased.errors import InvalidRequest
from leased.stores._drivers import driver
from leased.targets import hide_secrets

PORT, SENTINEL_PORT = 6379, 26379
_ESCAPE = "write / ? # @ within a password as %2F %3F %23 %40"

# What a URL for redis-py may carry although it makes no difference here: bytes are compared, whatever a client decodes
# to; time-outs, retries and the number of connections are this store's own.
_WITHOUT_EFFECT = {
    "decode_responses",
    "encoding",
    "encoding_errors",
    "health_check_interval",
    "legacy_responses",
    "max_connections",
    "protocol",
    "retry_on_error",
    "retry_on_timeout",
    "socket_connect_timeout",
    "socket_read_size",
    "socket_timeout",
    "timeout",
}
_OURS = ("db", "client_name", "sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True)
class Node:
    """Where one server listens; without a port the host is the path of a Unix socket."""

    host: str
    port: int | None

    def __str__(self) -> str:
        """As it may stand in a message."""
        return self.host if self.port is None else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """Who logs in; nobody by name where both are `None`."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """What a URL says. `nodes`: the server, the sentinels, or some of a cluster; `options` are for the driver."""

    kind: Literal["server", "sentinel", "cluster"]
    nodes: tuple[Node, ...]
    login: Login
    database: int
    name: str
    tls: bool
    service: str
    sentinel_login: Login
    options: Mapping[str, Any] = field(repr=False)
    shown: str

    @property
    def listening(self) -> Hashable:
        """What listening connections must have in common to be one: everything but the database. Never show it."""
        options = tuple(sorted(self.options.items()))
        return ("redis", self.kind, self.tls, self.nodes, self.service, self.login, self.sentinel_login, options)


def read_address(url: str) -> Address:
    """The address in a URL; `InvalidRequest` names what is wrong with it, without its secrets."""
    scheme, _, kind = url.partition(":")[0].lower().partition("+")
    try:
        parts = urlsplit(url)
    except ValueError:  # whose text and trace may show the URL whole
        raise InvalidRequest(f"the URL {hide_secrets(url)!r} cannot be read", hint=_form(kind)) from None
    if _breaks_off(parts, kind):
        raise InvalidRequest(f"the URL {hide_secrets(url)!r} cannot be read", hint=_ESCAPE)
    try:
        given = driver("redis.connection", extra="redis").parse_url(f"redis://localhost?{parts.query}")
    except ValueError as error:
        raise InvalidRequest(f"a parameter of {hide_secrets(url)!r} is wrong: {error}") from error
    credentials, _, places = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    path = [unquote(part) for part in parts.path.split("/") if part]
    service = path.pop(0) if kind == "sentinel" and path else ""
    socket = "/" + "/".join(path) if kind == "unix" else ""
    if socket:
        path.clear()
    database = _database(given.get("db", path.pop(0) if path else 0), url)
    if (
        path
        or (socket and places)
        or socket == "/"
        or (kind == "sentinel" and not service)
        or (kind == "cluster" and database)
    ):
        raise InvalidRequest(f"the URL {hide_secrets(url)!r} does not have the form", hint=_form(kind))
    port = SENTINEL_PORT if kind == "sentinel" else PORT
    return Address(
        kind=_kind(kind),
        nodes=(Node(socket, None),) if socket else tuple(_node(place, url, port=port) for place in places.split(",")),
        login=Login(unquote(username) or None, unquote(password) or None),
        database=database,
        name=_name(str(given.get("client_name", "leased"))),
        tls=scheme in ("rediss", "valkeys"),
        service=service,
        sentinel_login=Login(given.get("sentinel_username"), given.get("sentinel_password")),
        options=_options(given, url),
        shown=hide_secrets(url),
    )


def place_of(url: str) -> str:
    """Where the URL leads, the same however it is spelled: servers, service and database, without secrets."""
    kind = url.partition(":")[0].lower().partition("+")[2]
    parts = urlsplit(url)
    places = [place.strip().lower() for place in parts.netloc.rpartition("@")[2].split(",")]
    port = SENTINEL_PORT if kind == "sentinel" else PORT
    nodes = sorted(
        place if place.rpartition("]")[2].count(":") else f"{place or 'localhost'}:{port}" for place in places
    )
    path = [unquote(part) for part in parts.path.split("/") if part]
    named = path.pop(0) if kind == "sentinel" and path else "/".join(path) if kind == "unix" else ""
    inner = path[0] if path and kind != "unix" else "0"
    database = dict(parse_qsl(parts.query)).get("db", inner)  # as `read_address`
    return f"{kind}:{','.join(nodes)}/{named}/{database.lstrip('0') or '0'}"


def _breaks_off(parts: SplitResult, kind: str) -> bool:
    """Whether a password has a `/`, `?` or `#` in it: then what looks like a path or parameter is the rest of it."""
    misplaced = "@" in parts.fragment or ("@" in parts.query and "@" not in parts.netloc)
    return misplaced or ("@" in parts.path and kind != "unix")


def _kind(kind: str) -> Literal["server", "sentinel", "cluster"]:
    return "sentinel" if kind == "sentinel" else "cluster" if kind == "cluster" else "server"


def _form(kind: str) -> str:
    forms = {
        "sentinel": "redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST…]/SERVICE[/DATABASE]",
        "unix": "redis+unix://[USER:PASSWORD@]/PATH/TO/SOCKET[?db=DATABASE]",
        "cluster": "redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST…]; a cluster has one database only",
    }
    return forms.get(kind, "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]")


def _database(value: object, url: str) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest(f"{shown(text)!r} in {hide_secrets(url)!r} is no database", hint="databases have numbers")
    return int(text)


def _name(text: str) -> str:
    """A name that a server takes."""
    if not all("!" <= character <= "~" for character in text):
        raise InvalidRequest(
            f"the client_name {shown(text)!r} is no name that a server takes",
            hint="write printable ASCII characters without spaces",
        )
    return text


def _node(place: str, url: str, *, port: int) -> Node:
    try:
        parts = urlsplit(f"//{place}")
        return Node(unquote(parts.hostname or "localhost"), port if parts.port is None else parts.port)
    except ValueError:  # what it names may be the end of a password
        raise InvalidRequest(
            f"the URL {hide_secrets(url)!r} names no host and port",
            hint=f"the port is a number; {_ESCAPE}",
        ) from None


def _options(given: Mapping[str, Any], url: str) -> dict[str, Any]:
    """The parameters that the driver shall have."""
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith("ssl_") or name == "socket_keepalive":
            options[name] = value
        elif name not in _OURS and name != "host" and name not in _WITHOUT_EFFECT:
            raise InvalidRequest(
                f"the URL {hide_secrets(url)!r} has the unknown parameter {shown(name)}",
                hint="known are db, client_name, socket_keepalive and those of redis-py that begin with ssl_",
            )
    return options
