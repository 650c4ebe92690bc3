"""From a URL to a store: the table of schemes, the options, refusals that help. It opens nothing before first use."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, urlencode

from leased.checks import check_key, check_span, did_you_mean, shown
from leased.errors import InvalidRequest, StoreNotUsable
from leased.model import EXCLUSIVITY, Assurance, exclusivity_rank
from leased.observe import Observer
from leased.policy import CLOCK_MARGIN, OPERATION_TIMEOUT, SKEW_MARGIN
from leased.queue import Lines
from leased.store import Clock, Store

Face = Literal["blocking", "async"]

MAX_CLOCK_MARGIN = 0.4
MAX_OPERATION_TIMEOUT = 300.0
ENTRY_POINT_GROUP = "leased.stores"


@dataclass(frozen=True, slots=True)
class Options:
    """What a store is opened with besides its URL. Times are in seconds.

    `own` has the `leased_…` parameters that only this store knows, as text.
    """

    clock: Clock
    timeout: float = OPERATION_TIMEOUT
    namespace: str = ""
    clock_margin: float = CLOCK_MARGIN
    skew_margin: float = SKEW_MARGIN
    takeover: Literal["margin", "observe"] = "margin"
    require: str | None = None
    observer: Observer | None = None
    own: Mapping[str, str] = field(default_factory=dict)

    def own_number(self, name: str, *, least: int, most: int, default: int) -> int:
        """A whole number among `own`; `InvalidRequest` for anything else."""
        text = self.own.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
            raise InvalidRequest(f"leased_{name}={shown(text)} is no whole number from {least} to {most}")
        return int(text)


class Opener(Protocol):
    """What a store module offers (also by the entry-point group `leased.stores`): a store for this URL and face."""

    def __call__(self, url: str, *, face: Face, options: Options) -> Store:
        """The store; nothing is opened yet."""
        ...


@dataclass(frozen=True, slots=True)
class _Scheme:
    """A built-in store: its module, whether concurrent operations are joined into batches, and its own parameters.

    `keeps_line`: it has a line of its own for claims that wait.
    """

    module: str
    joined: bool = True
    parameters: tuple[str, ...] = ()
    keeps_line: bool = False


_REDIS = _Scheme("leased.stores.redis", parameters=("wait", "pool"))
_POSTGRES = _Scheme("leased.stores.postgres", parameters=("table", "pool"))
_MYSQL = _Scheme("leased.stores.mysql", parameters=("table", "pool"))
_ETCD = _Scheme("leased.stores.etcd", parameters=("pool", "ca", "cert", "cert_key"))
_NATS = _Scheme("leased.stores.nats", parameters=("replicas", "credentials", "nkey", "inbox", "ca", "cert", "cert_key"))
_HTTP = _Scheme("leased.stores.http", keeps_line=True, parameters=("pool", "insecure", "ca", "cert", "cert_key"))

_SCHEMES: dict[str, _Scheme] = {
    "memory": _Scheme("leased.stores.memory", joined=False),
    "sqlite": _Scheme("leased.stores.sqlite"),
    "redis": _REDIS,
    "rediss": _REDIS,
    "valkey": _REDIS,
    "valkeys": _REDIS,
    "redis+unix": _REDIS,
    "redis+cluster": _REDIS,
    "rediss+cluster": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+sentinel": _REDIS,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "dynamodb": _Scheme("leased.stores.dynamodb", parameters=("region", "endpoint", "pool")),
    "etcd": _ETCD,
    "etcds": _ETCD,
    "nats": _NATS,
    "nats+tls": _NATS,
    "https": _HTTP,
    "http": _HTTP,
}

_PORTS = {"6379": "redis", "5432": "postgresql", "3306": "mysql", "2379": "etcd", "4222": "nats", "8370": "http"}
_PLACE = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")
_TEXT_OPTIONS = ("timeout", "namespace", "clock_margin", "skew_margin", "takeover", "require")

_lines: weakref.WeakValueDictionary[tuple[str, ...], Lines] = weakref.WeakValueDictionary()

_lines_mutex = threading.Lock()


def _forget_parents() -> None:
    global _lines_mutex
    _lines_mutex = threading.Lock()
    _lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)


@dataclass(frozen=True, slots=True)
class Target:
    """A URL read apart: `url` is what the store gets, `shown` what logs and errors may show."""

    url: str
    scheme: str
    shown: str
    options: Options


def read_url(url: str, options: Options, **given: object) -> Target:
    """Take the `leased_…` parameters out of the URL and check all options; a name given both ways is refused."""
    if not url:
        raise InvalidRequest(f"a store is named by a URL, not {shown(url)!r}", hint="such as 'sqlite:locks.db'")
    try:
        url.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            f"the URL {hide_secrets(url)!r} has bytes that are no text", hint="write it in UTF-8, or escape them: %FF"
        ) from None
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) or (os.name == "nt" and len(scheme) == 1):
        raise InvalidRequest(
            f"{hide_secrets(url)!r} has no scheme",
            hint=_server_meant(url) or "for a file write 'sqlite:PATH', for this process 'memory:'",
        )
    before, _, query = url.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    mine = {name.removeprefix("leased_"): value for name, value in pairs if name.startswith("leased_")}
    if mine:
        rest = urlencode([pair for pair in pairs if not pair[0].startswith("leased_")])
        url = f"{before}?{rest}" if rest else before
    defaults = {option.name: option.default for option in fields(Options)}
    builtin = _SCHEMES.get(scheme)
    own: dict[str, str] = {}
    for name, value in mine.items():
        if name not in _TEXT_OPTIONS:
            if builtin is None or name in builtin.parameters:
                own[name] = value
                continue
            known = ", ".join(f"leased_{option}" for option in (*_TEXT_OPTIONS, *builtin.parameters))
            raise InvalidRequest(f"the URL has the unknown parameter leased_{shown(name)}", hint=f"known are {known}")
        if given.get(name, defaults.get(name)) != defaults.get(name):
            raise InvalidRequest(f"{name} is given twice: as leased_{name} in the URL and as an argument")
        given[name] = value
    return Target(url, scheme, hide_secrets(url), _check_options(replace(options, own=own), given))


def open_store(target: Target, *, face: Face) -> Store:
    """The store of a target; a scheme that is not built in is looked up among the installed entry points."""
    builtin = _SCHEMES.get(target.scheme)
    opener: Opener
    if builtin is not None:
        opener = import_module(builtin.module).open
    else:
        from importlib.metadata import entry_points  # half of all that importing leased would load

        found = [point for point in entry_points(group=ENTRY_POINT_GROUP) if point.name == target.scheme]
        if not found:
            raise _unknown_scheme(target)
        opener = found[0].load()
    store = opener(target.url, face=face, options=target.options)
    if store.mode not in ("any", face):
        raise StoreNotUsable(f"the store of {target.shown} is {store.mode} and was opened for {face} callers")
    if builtin is not None and builtin.joined:
        from leased.join import Joined

        return Joined(store, target.options.clock, keeps_line=builtin.keeps_line)
    return store


def schema_of(target: Target) -> str:
    """The statements that make what a store needs on its server; `InvalidRequest` where it needs nothing made."""
    builtin = _SCHEMES.get(target.scheme)
    if builtin is None:
        raise InvalidRequest(f"what the store of {target.shown} needs is known to its author")
    schema = getattr(import_module(builtin.module), "schema", None)
    if schema is None:
        raise InvalidRequest(f"the store of {target.shown} needs no schema", hint="it can be used at once")
    return str(schema(target.url, options=target.options))


def lines_of(target: Target) -> Lines:
    """The lines of local waiters of one store, shared by every client of it in this process."""
    builtin = _SCHEMES.get(target.scheme)
    place = target.url if builtin is None else f"{builtin.module}:{import_module(builtin.module).place_of(target.url)}"
    key = (place, target.options.own.get("table", ""), target.options.namespace)
    with _lines_mutex:
        lines = _lines.get(key)
        if lines is None:
            lines = _lines[key] = Lines()
        return lines


def check_assurance(assurance: Assurance, require: str | None, *, shown_url: str) -> None:
    """Raise `StoreNotUsable` if the store gives less than what is required of exclusion, as far as that is known."""
    if require is not None and assurance.known and exclusivity_rank(assurance.exclusive) < exclusivity_rank(require):
        notes = f": {'; '.join(assurance.notes)}" if assurance.notes else ""
        raise StoreNotUsable(
            f"{shown_url} gives exclusivity {assurance.exclusive!r}, and {require!r} is required{notes}",
            hint="use a stronger store, or require less",
        )


def hide_secrets(url: str) -> str:
    """The URL without user, password and parameters, fit for logs and messages.

    Where a password may have been written that ends the place too early (with `/`, `?` or `#` in it) only the scheme is
    shown.
    """
    parts = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^?]*)(.*)", url, re.DOTALL)
    if parts is None:
        return "…" if "@" in url else shown(url.partition("?")[0])
    scheme, authority, path, beyond = parts.groups()
    if "@" in path + beyond:
        return f"{scheme}:…"
    if authority is None:
        return shown(f"{scheme}:{path}")
    place = authority.rpartition("@")[2]
    if not all(_PLACE.fullmatch(part) for part in place.split(",")):
        return f"{scheme}:…"
    return shown(f"{scheme}://{place}{path.partition('#')[0]}")


def _check_options(options: Options, given: dict[str, object]) -> Options:
    checks: dict[str, Callable[[Any], object]] = {
        "timeout": lambda value: check_span(value, what="timeout", least=0.01, most=MAX_OPERATION_TIMEOUT),
        "namespace": lambda value: check_key(value, what="namespace") if value != "" else "",
        "clock_margin": _check_margin,
        "skew_margin": lambda value: check_span(value, what="skew_margin", most=3600.0),
        "takeover": lambda value: _check_word(value, what="takeover", words=("margin", "observe")),
        "require": lambda value: _check_word(value, what="require", words=EXCLUSIVITY[1:]),
    }
    checked: dict[str, Any] = {
        name: checks[name](value) for name, value in given.items() if value is not None or name != "require"
    }
    return replace(options, **checked)


def _check_margin(value: object) -> float:
    try:
        margin = float(value)  # type: ignore[arg-type]  # anything that is no number is refused
    except (TypeError, ValueError):
        margin = -1.0
    if isinstance(value, bool) or not 0 <= margin <= MAX_CLOCK_MARGIN:
        raise InvalidRequest(f"clock_margin {shown(value)} is outside 0 to {MAX_CLOCK_MARGIN}", hint="0.02 means 2 %")
    return margin


def _check_word(value: object, *, what: str, words: tuple[str, ...]) -> str:
    if value not in words:
        raise InvalidRequest(f"{what} {shown(value)!r} is none of {', '.join(words)}")
    return str(value)


def _unknown_scheme(target: Target) -> InvalidRequest:
    meant = _server_meant(target.url) or did_you_mean(target.scheme, _SCHEMES)
    known = ", ".join(f"{name}:" for name in _SCHEMES)
    return InvalidRequest(
        f"no store is known for the scheme {shown(target.scheme)!r}", hint=meant or f"known are {known}"
    )


def _server_meant(url: str) -> str | None:
    """A hint where the URL is a host and a port without what listens there, else `None`."""
    server = re.fullmatch(r"[A-Za-z0-9.-]+:([0-9]{1,5})(/[\w.-]*)?", url)
    if server is None:
        return None
    scheme = _PORTS.get(server[1])
    if scheme is None:
        return "write what listens there before it: redis://, postgresql://, mysql://, …"
    return f"did you mean {scheme}://{shown(url)}?"
