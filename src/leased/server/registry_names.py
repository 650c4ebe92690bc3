"""What the name of a registry says of it: its kind, and what replicas share through it. It opens nothing."""

from __future__ import annotations

import re
from typing import Literal

from leased.errors import InvalidRequest
from leased.targets import hide_secrets
from leased.wire import Body

RegistryKind = Literal["sqlite", "postgres", "redis", "file"]

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)
_KINDS: dict[str, RegistryKind] = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "valkeys": "redis",
    "redis+unix": "redis",
    "sqlite": "sqlite",
}


def kind_of(name: str) -> RegistryKind:
    """What a path or URL leads to. Raises `InvalidRequest` for URLs of other things."""
    found = _SCHEME.match(name)
    if found is None:
        return "file" if name.endswith(".toml") else "sqlite"
    kind = _KINDS.get(found[1].lower())
    if kind is None:
        raise InvalidRequest(
            f"a registry cannot be at {hide_secrets(name)!r}", hint="name a file, postgresql://… or redis://…"
        )
    return kind


def path_of(name: str) -> str:
    """The path of a file."""
    return name.partition(":")[2] if name.lower().startswith("sqlite:") else name


def sharing_of(name: str) -> Body:
    """What all processes of a service with this registry have in common, as its capabilities tell it."""
    if not name:
        return {"credentials": "none", "budgets": "none", "requestIds": "none"}
    common = "all replicas" if kind_of(name) in {"postgres", "redis"} else "each replica"
    return {"credentials": common, "budgets": common, "requestIds": common}
