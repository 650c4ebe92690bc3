"""Everything that can be set of the lock service, with its default and the reason. It opens nothing."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args

from leased.checks import check_span, shown
from leased.errors import InvalidRequest
from leased.policy import MAX_TTL, OPERATION_TIMEOUT

PREFIX = "LEASED_SERVE_"
"""Every setting can be given in the environment: this and its name in capitals."""

Keys = Literal["strict", "any"]
Ui = Literal["off", "read", "act"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one service process; times are in seconds. The text below each says what it is and why."""

    store: str = field(default="memory:", repr=False)
    """URL of the store that decides who holds a key; `leased serve` takes it as `--url` or `--store`."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other than a loopback address needs credentials, or `insecure`."""

    port: int = 8370
    """Port to listen on; 0 takes a free one."""

    insecure: bool = False
    """Serve everybody who can connect, from any address, without credentials. Never where strangers can."""

    registry: str = field(default="", repr=False)
    """Where credentials, rule sets and the audit log are: the path of an SQLite file, for one process; the URL of a
    PostgreSQL or Redis server, for replicas; or a TOML file, to read only. Empty: nobody is asked who he is."""

    registry_key: str = ""
    """File with the key under which API keys are hashed, the same for all replicas. Needed where the registry is a
    URL; an SQLite file has its own beside it."""

    registry_timeout: float = 2.0
    """How long a request waits for one call to the registry, be it a server or a file that another process has in use.
    Those after it go by what is known, see `registry_grace`, or are refused at once, until it answers again."""

    registry_grace: float = 60.0
    """How long credentials and rules that are known stay in use while the registry does not answer: so long can a key
    that was revoked meanwhile still work. Whoever is not known is refused at once."""

    project_requests: int = 600
    """Requests a minute of each project, all callers and operations together; a holder costs 180/ttl of them."""

    member_attempts: int = 600
    """Attempts an hour of each member to acquire."""

    failed_logins: int = 60
    """Requests a minute without a valid credential from each address; further ones are answered 429."""

    audit_required: bool = True
    """Whether a forced release that cannot be written to the audit log is refused. Changes of credentials and rules are
    refused in any case."""

    jwt_issuer: str = ""
    """Whose tokens (JWT) are believed: their `iss`. Empty: none are, only API keys."""

    jwt_audience: str = ""
    """For whom tokens must be made: this must be in their `aud`."""

    jwt_keys: str = ""
    """Where the issuer's public keys are: the https URL of a key set (JWKS), or a file with one."""

    jwt_algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    """By which algorithms tokens may be signed; shared secrets are none of them."""

    jwt_project: str = ""
    """The project that tokens belong to. Empty: the one that `jwt_project_claim` names."""

    jwt_project_claim: str = "project"
    """The claim with the project."""

    jwt_user_claim: str = "sub"
    """The claim with the user id."""

    jwt_role_claim: str = "role"
    """The claim with the role: owner, admin or member. Any other value is that of a member."""

    jwt_groups_claim: str = "groups"
    """The claim with the groups: a list of names, or of objects with `name` and `kind`."""

    jwt_group_kind: str = "group"
    """The kind of groups that are named without one."""

    timeout: float = OPERATION_TIMEOUT
    """How long one call to the store may take."""

    max_wait_slice: float = 25.0
    """How long one request may be kept waiting: less than the 30 s after which many proxies cut an idle one. The caller
    asks again for the rest."""

    wait_linger: float = 2.0
    """How long a caller who is to ask again keeps his place in the line without asking."""

    max_waiters: int = 10_000
    """Claims that wait at once in this process; more are answered 429."""

    max_waiters_each: int = 1_000
    """Claims that wait at once for one principal; more are answered 429. Without credentials the other one counts."""

    keys: Keys = "strict"
    """Which keys callers with credentials may use. `strict`: 1 to 128 letters, digits, `.`, `_`, `:` and `-`, so that
    rules and logs read the same everywhere. `any`: as in the library."""

    min_ttl: float = 5.0
    """Shortest ttl of callers with credentials: what is shorter costs more renewals than it is worth."""

    max_ttl: float = 86_400.0
    """Longest ttl of members and functions, and the longest time that they keep a key closed with `holdAtLeastMs`."""

    max_service_ttl: float = MAX_TTL
    """The same for service credentials."""

    max_lock_delay: float = 60.0
    """Longest `lockDelayMs` of callers with credentials."""

    max_event_streams: int = 100
    """Streams of `/v1/events` that are open at once; more are answered 429. Each project may have a quarter of them."""

    event_queue: int = 1_000
    """Events kept for a reader who is slow; after that he is told how many he has missed."""

    heartbeat: float = 15.0
    """How often an idle stream of events says that it is alive, and the credential of each one is looked at again."""

    head_timeout: float = 10.0
    """How long a client may take to send a request: its head, and then its body."""

    idle_timeout: float = 75.0
    """How long a connection is kept open between requests; longer than proxies keep theirs."""

    max_connections: int = 20_000
    """Connections that are open at once; more are closed at once."""

    drain: float = 10.0
    """How long a service that shuts down waits for requests that have begun."""

    allowed_hosts: tuple[str, ...] = ()
    """Further names by which a service without credentials may be called, and by which browsers may call any for its
    dashboard, beside those of the loopback address: a web page must not reach it under a name of its own. Names alone,
    without scheme and port, such as `locks.example.com` or `[2001:db8::1]`; they count for every port."""

    ui: Ui = "read"
    """What the dashboard at `/ui` is for. `read`: to look. `act`: to release by force, hold keys and manage credentials
    and rules as well, as far as whoever signs in may. `off`: there is none. Programs are not concerned."""

    ui_session: float = 3600.0
    """How long a browser stays signed in that no longer shows the dashboard; 12 hours after signing in that is over in
    any case. The cookie stands for the credential and does not hold it."""

    history: int = 20
    """Holds of each key that are kept for its history, in the registry where that can be written, else in memory; 0
    keeps none."""

    history_total: int = 100_000
    """Holds of all keys that are kept for that; the oldest go. In a registry each replica lets a hundredth more come
    together first."""

    proxy_hops: int = 0
    """How many trusted proxies stand before the service: the caller's address is then the so-many-th from the right of
    `X-Forwarded-For`. 0: it is that of the connection, whatever a caller writes."""

    metrics_token: str = field(default="", repr=False)
    """Who shows this as a bearer token may read `/metrics` of a service with credentials; empty: nobody may. A service
    without credentials shows them to everybody."""

    tls_certificate: str = ""
    """PEM file with the certificate and its chain; with it the service speaks TLS."""

    tls_key: str = ""
    """PEM file with the key of the certificate, if it is not in the same file."""

    tls_client_authority: str = ""
    """PEM file with the authorities of client certificates; with it only clients that have one are served."""

    log_requests: bool = False
    """Log each request as a line of JSON; warnings are logged in any case."""

    @property
    def open(self) -> bool:
        """Whether nobody is asked for credentials."""
        return not self.registry


_SPANS: dict[str, tuple[float, float]] = {
    "timeout": (0.01, 300.0),
    "registry_timeout": (0.01, 300.0),
    "registry_grace": (0.0, 86_400.0),
    "max_wait_slice": (0.05, 3600.0),
    "wait_linger": (0.0, 60.0),
    "min_ttl": (0.001, MAX_TTL),
    "max_ttl": (0.001, MAX_TTL),
    "max_service_ttl": (0.001, MAX_TTL),
    "max_lock_delay": (0.0, MAX_TTL),
    "heartbeat": (0.05, 3600.0),
    "head_timeout": (0.05, 3600.0),
    "idle_timeout": (0.05, 86_400.0),
    "drain": (0.0, 3600.0),
    "ui_session": (60.0, 43_200.0),
}
_NUMBERS: dict[str, tuple[int, int]] = {
    "port": (0, 65_535),
    "project_requests": (1, 1_000_000_000),
    "member_attempts": (1, 1_000_000_000),
    "failed_logins": (1, 1_000_000_000),
    "max_waiters": (0, 1_000_000),
    "max_waiters_each": (0, 1_000_000),
    "max_event_streams": (0, 100_000),
    "event_queue": (1, 1_000_000),
    "max_connections": (1, 1_000_000),
    "proxy_hops": (0, 10),
    "history": (0, 1_000),
    "history_total": (0, 10_000_000),
}

_HOST_NAME = re.compile(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]", re.ASCII)
"""What the `Host` of a request can be once its port is cut off."""


def read_settings(environment: Mapping[str, str], **given: object) -> Settings:
    """The settings of the environment, and over them those that were given. Raises `InvalidRequest`."""
    names = {one.name for one in fields(Settings)}
    unknown = [name for name in environment if name.startswith(PREFIX) and name[len(PREFIX) :].lower() not in names]
    if unknown:
        meant = get_close_matches(unknown[0], [PREFIX + name.upper() for name in names], n=1)
        hint = f"did you mean {meant[0]}?" if meant else f"one is {PREFIX}PORT"
        raise InvalidRequest(f"{unknown[0]} is no setting of the service", hint=hint)
    values: dict[str, Any] = {
        name: environment[PREFIX + name.upper()] for name in names if PREFIX + name.upper() in environment
    }
    values.update((name, value) for name, value in given.items() if value is not None)
    return check_settings(replace(Settings(), **{name: _read(name, value) for name, value in values.items()}))


def check_settings(settings: Settings) -> Settings:
    """The settings themselves, or `InvalidRequest` for those that cannot go together."""
    if settings.open and not settings.insecure and not is_loopback(settings.host):
        raise InvalidRequest(
            f"without credentials the service listens on a loopback address only, and {shown(settings.host)} is none",
            hint="name a --registry with credentials, or say --insecure if everybody who can connect may do everything",
        )
    if not settings.open and settings.store.partition(":")[0].lower() in ("http", "https"):
        raise InvalidRequest(
            "a service with credentials cannot keep its locks in another lock service, which refuses its keys: they "
            "name the project by a sign that callers may not use",
            hint="name the store of that one, or leave out the --registry: its credentials count then",
        )
    if settings.min_ttl > min(settings.max_ttl, settings.max_service_ttl):
        raise InvalidRequest(
            f"min_ttl {settings.min_ttl:g} is above the longest ttl, max_ttl {settings.max_ttl:g} and max_service_ttl "
            f"{settings.max_service_ttl:g}",
            hint="lower the first, or raise both others",
        )
    if any((settings.jwt_issuer, settings.jwt_audience, settings.jwt_keys)):
        if not all((settings.jwt_issuer, settings.jwt_audience, settings.jwt_keys)):
            raise InvalidRequest(
                "tokens need all of jwt_issuer, jwt_audience and jwt_keys", hint="set all three, or none of them"
            )
        if settings.open:
            raise InvalidRequest(
                "tokens need a registry", hint="name its file by --registry: rules and audit are there"
            )
    if (settings.tls_key or settings.tls_client_authority) and not settings.tls_certificate:
        raise InvalidRequest("TLS needs a certificate", hint="name its file by tls_certificate")
    for name in settings.allowed_hosts:
        if not _HOST_NAME.fullmatch(name):
            raise InvalidRequest(
                f"allowed_hosts: {shown(name)!r} is not the name of a host",
                hint="write it as browsers send it, without scheme and port: locks.example.com, or [2001:db8::1]",
            )
    return settings


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(name: str, value: object) -> Any:
    kind = next(one.type for one in fields(Settings) if one.name == name)
    readers: dict[str, Callable[[str, Any], object]] = {
        "bool": _read_flag,
        "int": _read_number,
        "float": lambda name, value: check_span(value, what=name, least=_SPANS[name][0], most=_SPANS[name][1]),
        "tuple[str, ...]": lambda _, value: _read_list(value.split(",") if isinstance(value, str) else value),
        "Keys": lambda name, value: _read_word(name, value, words=get_args(Keys)),
        "Ui": lambda name, value: _read_word(name, value, words=get_args(Ui)),
    }
    return readers[str(kind)](name, value) if str(kind) in readers else str(value)


def _read_list(parts: Iterable[str]) -> tuple[str, ...]:
    """The parts without the space around them, and without those of which nothing is left."""
    return tuple(stripped for part in parts if (stripped := part.strip()))


def _read_flag(name: str, value: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}
    word = str(value).lower()
    if word not in words:
        raise InvalidRequest(f"{name} is yes or no, not {shown(value)!r}")
    return words[word]


def _read_number(name: str, value: object) -> int:
    least, most = _NUMBERS[name]
    text = str(value)
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise InvalidRequest(f"{name} {shown(value)!r} is no whole number from {least} to {most}")
    return int(text)


def _read_word(name: str, value: object, *, words: tuple[str, ...]) -> str:
    if value not in words:
        raise InvalidRequest(f"{name} {shown(value)!r} is none of {', '.join(words)}")
    return str(value)
