"""From the name of a registry to the registry: a file, a server that replicas share, a list. It asks nothing."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field

from leased.errors import InvalidRequest, StoreNotUsable
from leased.server.keys import PEPPER_LENGTH, Hasher, key_beside, pepper_beside, pepper_in
from leased.server.registry import Registry
from leased.server.registry_file import PUBLIC_PEPPER, FileRegistry
from leased.server.registry_names import kind_of, path_of
from leased.server.registry_postgres import PostgresRegistry
from leased.server.registry_redis import RedisRegistry
from leased.server.registry_sqlite import SqliteRegistry, has_credentials
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

    Raises `InvalidRequest` for what cannot be a registry, `StoreNotUsable` where a file or driver is missing. No key
    file is made for a registry that has API keys already: it was lost, and none would be valid under another one.
    """
    kind, path = kind_of(place.url), path_of(place.url)
    if kind == "sqlite":
        if begin or not place.key:
            _check_not_lost(place.key or key_beside(path), path, timeout=timeout)
        hasher = Hasher(pepper_in(place.key, make=begin) if place.key else pepper_beside(path))
        return Opened(SqliteRegistry(path, timeout=timeout), hasher)
    if kind == "file":
        hasher = Hasher(pepper_in(place.key, make=False)) if place.key else Hasher(PUBLIC_PEPPER, public=True)
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


def _check_not_lost(key_file: str, path: str, *, timeout: float) -> None:
    """Raise `StoreNotUsable` if the registry has API keys, but the file is missing under which they are hashed."""
    if os.path.exists(key_file) or not has_credentials(path, timeout=timeout):
        return
    if os.path.exists(key_file):  # somebody has just made both
        return
    anew = f"(umask 077; head -c {PEPPER_LENGTH} /dev/urandom > {shlex.quote(key_file)})"
    raise StoreNotUsable(
        f"{key_file} is missing: the API keys in the registry {path} are hashed with it, and without it none is valid",
        hint=f"restore it from a backup; to begin anew on purpose, with every API key of before invalid: {anew}",
    )
