"""From the name of a registry to the registry: a file, a server that replicas share, a list. It asks nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.errors import InvalidRequest
from leased.server.keys import Hasher, pepper_beside, pepper_in
from leased.server.registry import Registry
from leased.server.registry_file import PUBLIC_PEPPER, FileRegistry
from leased.server.registry_names import kind_of, path_of
from leased.server.registry_postgres import PostgresRegistry
from leased.server.registry_redis import RedisRegistry
from leased.server.registry_sqlite import SqliteRegistry
from leased.server.usage import Shelf
from leased.targets import hide_secrets

TIMEOUT = 2.0
"""Seconds that a call to a registry may take."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a registry is, and the file with the key of its hash, as somebody named them. Never show the URL."""

    url: str = field(repr=False)
    key: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """A registry, how keys are hashed in it, and where budgets are that replicas share, if they do."""

    registry: Registry
    hasher: Hasher
    shelf: Shelf | None = None


def open_registry(place: Place, *, begin: bool, timeout: float = TIMEOUT) -> Opened:
    """The registry of a place. `begin`: whether one is made where a server, or the key file of one, has none yet.

    Raises `InvalidRequest` for what cannot be a registry, `StoreNotUsable` where a file or driver is missing.
    """
    kind, path = kind_of(place.url), path_of(place.url)
    if kind == "sqlite":
        hasher = Hasher(pepper_in(place.key, make=begin) if place.key else pepper_beside(path))
        return Opened(SqliteRegistry(path, timeout=timeout), hasher)
    if kind == "file":
        hasher = Hasher(pepper_in(place.key, make=False) if place.key else PUBLIC_PEPPER)
        return Opened(FileRegistry(path), hasher)
    if not place.key:
        raise InvalidRequest(
            f"the registry {hide_secrets(place.url)} needs a key file, the same for all who use it",
            hint="name it by --registry-key; 'leased keys create' makes it where there is none",
        )
    hasher = Hasher(pepper_in(place.key, make=begin))
    opened = PostgresRegistry if kind == "postgres" else RedisRegistry
    registry = opened(place.url, mark=hasher.mark, begin=begin, timeout=timeout)
    return Opened(registry, hasher, registry)
