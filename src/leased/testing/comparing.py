"""Giving commands, as values, to a store, and comparing its answers with those expected; no rule is stated here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, is_dataclass

from leased.model import Contended, Status
from leased.store import Store, one
from leased.testing.model import Answer, Command, ForceRelease, ShowList, ShowStatus

TIMEOUT = 5.0
"""Seconds each call may take."""


async def ask(store: Store, command: Command) -> Answer:
    """Give a command, as a value, to a store."""
    match command:
        case ForceRelease(key, fencing_token):
            return await store.force_release(key, fencing_token=fencing_token, timeout=TIMEOUT)
        case ShowStatus(key):
            return await store.status(key, timeout=TIMEOUT)
        case ShowList(prefix, after, limit):
            return await store.list(prefix, after=after, limit=limit, timeout=TIMEOUT)
        case _:
            return await one(store, command, timeout=TIMEOUT)


def alike(found: object, wanted: object, *, slack: float = 0.0, skipped: Collection[str] = ()) -> bool:
    """Whether an answer is the expected one: times up to `slack`, fields named in `skipped` not at all.

    A refusal may show nothing where the key is free, a page may end early unless it is empty, and `waiters` is what a
    store happens to know.
    """
    match found, wanted:
        case float() | int(), float():
            return abs(found - wanted) <= slack
        case list(), list():
            pairs = zip(found, wanted, strict=False)
            fits = bool(found) == bool(wanted) and len(found) <= len(wanted)
            return fits and all(alike(a, b, slack=slack, skipped=skipped) for a, b in pairs)
        case Contended(None, ended), Contended(Status(state="free"), expected):
            return ended == expected
        case _ if is_dataclass(found) and not isinstance(found, type) and type(found) is type(wanted):
            names = [field.name for field in fields(found) if field.name != "waiters" and field.name not in skipped]
            return all(alike(getattr(found, n), getattr(wanted, n), slack=slack, skipped=skipped) for n in names)
        case _:
            return type(found) is type(wanted) and found == wanted
