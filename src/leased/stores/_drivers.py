"""Importing a driver when a store is opened, or saying which extra brings it. It imports nothing before that."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from leased.errors import StoreNotUsable


def driver(name: str, *, extra: str) -> Any:
    """The module of that name; `StoreNotUsable` with the command that installs it, where it is missing or broken."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        missing = isinstance(error, ModuleNotFoundError) and error.name == package
        why = "is not installed" if missing else f"cannot be imported: {error}"
        raise StoreNotUsable(
            f"this store needs the package {package}, which {why}", hint=f"pip install 'leased[{extra}]'"
        ) from error
