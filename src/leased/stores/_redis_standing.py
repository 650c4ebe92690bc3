"""What a Redis server, as configured now, really gives: asked on each new connection, in words of `Assurance`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leased.model import Assurance
from leased.stores._redis_wire import ServerError, packed

_SETTINGS = ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync")

QUESTIONS = (packed(b"INFO", b"replication"), *(packed(b"CONFIG", b"GET", name.encode()) for name in _SETTINGS))
"""The commands to send."""

_FENCE = (
    "rises through restarts, fail-overs and loss of data, unless the server's clock then stands behind the last grant"
)
_TAKEOVER = "the server's clock"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the server told; a setting that could not be read is `None`."""

    replica: bool
    replicas: int | None  # 1 where there are none now, but were lately: one that is cut off can still take over
    settings: Mapping[str, str | None]


def read_facts(answers: Sequence[Any]) -> Facts:
    """The facts in the answers to `QUESTIONS`. Raises one of `SENSELESS` for what is no answer to them."""
    info, *settings = answers
    for answer, kind in zip(answers, (bytes, list, list, list, list), strict=True):
        if not isinstance(answer, kind | ServerError):
            raise TypeError(answer)
    lines = (
        dict(line.split(":", 1) for line in info.decode(errors="replace").splitlines() if ":" in line)
        if _is_text(info)
        else {}
    )
    return Facts(
        replica=lines.get("role") == "slave",
        replicas=_replicas(lines),
        settings={name: _setting(answer) for name, answer in zip(_SETTINGS, settings, strict=True)},
    )


def _replicas(lines: Mapping[str, str]) -> int | None:
    if "connected_slaves" not in lines:
        return None
    backlog = lines.get("repl_backlog_active", "0").strip()  # kept for those who come back, for an hour by default
    return max(int(lines["connected_slaves"]), int(backlog == "1"))


def read_assurance(facts: Facts, *, kind: str, confirmations: int) -> Assurance:
    """What these facts mean for a store on such an address, whose grants wait for so many replicas."""
    settings = facts.settings
    notes: list[str] = []
    unread = [name for name, value in settings.items() if value is None]
    evicts = settings["maxmemory"] not in (None, "0") and settings["maxmemory-policy"] not in (None, "noeviction")
    durable = settings["appendonly"] == "yes" and settings["appendfsync"] == "always"
    fails_over = kind != "server" or facts.replicas != 0
    if evicts:
        exclusive = "volatile"
        notes.append(
            f"maxmemory-policy {settings['maxmemory-policy']} may evict locks: set it to noeviction, or use a server "
            "that is no cache"
        )
    elif unread:
        exclusive = "unknown"
    elif fails_over or not durable:
        exclusive = "until-failover"
    else:
        exclusive = "primary"
    if unread:
        notes.append(f"the server does not let this user read its settings {', '.join(unread)} (CONFIG GET)")
    if fails_over:
        notes.append("replication is asynchronous: a fail-over can lose a lease just granted, and two may then hold it")
    if confirmations:
        notes.append(
            f"a grant counts once {confirmations} of the replicas have it; a fail-over to another can still lose it"
        )
    if not durable and not unread:
        notes.append(
            "a crash or restart of the server can lose leases; appendonly yes with appendfsync always does not"
        )
    return Assurance(
        exclusive=exclusive,
        early_loss=exclusive != "primary",
        durable=_durable(settings),
        takeover=_TAKEOVER,
        fence=_FENCE,
        notes=tuple(notes),
    )


def _durable(settings: Mapping[str, str | None]) -> str:
    if settings["appendonly"] is None or settings["appendfsync"] is None:
        return "unknown"
    if settings["appendonly"] != "yes":
        return "nothing certain survives a restart of the server: it keeps no append-only file"
    if settings["appendfsync"] == "always":
        return "every answer survives a restart of the server"
    return f"a restart of the server can lose the last moments: appendfsync is {settings['appendfsync']}"


def _setting(answer: Any) -> str | None:
    if isinstance(answer, list) and len(answer) == 2 and _is_text(answer[1]):
        return str(answer[1].decode(errors="replace"))
    return None


def _is_text(answer: Any) -> bool:
    return isinstance(answer, bytes)
