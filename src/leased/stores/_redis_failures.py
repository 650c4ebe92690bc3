"""What an error of a Redis server means for whoever asked: whether it ran, and whether another try can help."""

from __future__ import annotations

import re

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._redis_connection import Cut
from leased.stores._redis_wire import NotRedis, ServerError

# What passes by itself; the server had not begun. Others are unknown to us: then nobody knows whether it ran.
_TRANSIENT = {
    "BUSY": "a script of somebody else keeps the server busy",
    "CLUSTERDOWN": "the cluster is down",
    "LOADING": "the server is loading its data",
    "MASTERDOWN": "the replica has lost its primary",
    "MISCONF": "the server cannot save its data and takes no writes",
    "NOREPLICAS": "the server has too few replicas and takes no writes",
    "OOM": "the server's memory is full, and its policy evicts nothing",
    "READONLY": "the server is a replica now",
    "TRYAGAIN": "the cluster is moving this key",
    "UNBLOCKED": "the server was interrupted",
}
_LASTING = {
    "CROSSSLOT": ("the server spreads one lock over slots", "is something in between that changes keys?"),
    "DENIED": ("the server is in protected mode", "give it a password, or let it listen on this address only"),
    "MOVED": ("the server is part of a cluster", "write redis+cluster:// instead of redis://"),
    "NOAUTH": ("the server wants a password", "write redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST"),
    "NOPERM": ("the user may not do this", "docs/stores/redis says which commands and keys the store needs"),
    "WRONGPASS": ("the server refuses user or password", "look at user and password in the URL"),
    "WRONGTYPE": ("a name of the lock is taken by other data", "use a namespace, or another database"),
}
_WITHIN_SCRIPT = re.compile(r"^ERR Error running script.*?: -?([A-Z]+) ", re.DOTALL)
_SHOWN = 120


def code_of(error: ServerError) -> str:
    """The word by which the server names the error, also of one within a script."""
    within = _WITHIN_SCRIPT.match(error.text)
    return within.group(1) if within else error.text.partition(" ")[0]


def refused(error: ServerError, where: object) -> StoreUnavailable:
    """The error for what a server at `where` refused."""
    code = code_of(error)
    if code in _TRANSIENT:
        return StoreUnavailable(f"{where}: {_TRANSIENT[code]} ({code})", applied=False)
    if code in _LASTING:
        what, hint = _LASTING[code]
        return StoreNotUsable(f"{where}: {what} ({code})", hint=hint)
    # What follows would be what was sent: keys, or even a password.
    text = error.text.partition(", with args")[0][:_SHOWN]
    if "DB index" in text:
        return StoreNotUsable(
            f"{where}: {text}", hint="the URL names a database that the server does not have; 0 is always there"
        )
    if "AUTH" in text and "without any password" in text:
        return StoreNotUsable(
            f"{where}: the server has no password set, and the URL has one",
            hint="leave the password out, or is it another server?",
        )
    lasting = ("unknown command", "SELECT is not allowed", "AUTH")
    if any(word in text for word in lasting):
        return StoreNotUsable(f"{where}: {text}", hint="is this a Redis or Valkey server that allows scripts?")
    if "max number of clients" in text:
        return StoreUnavailable(f"{where}: {text}", applied=False)
    return StoreUnavailable(f"{where}: {text}", applied=None)


def cut_off(cut: Cut, where: object, *, hint: str | None = None) -> StoreUnavailable:
    """The error for a command whose answer did not come."""
    applied = None if cut.sent else False
    if isinstance(cut.__cause__, NotRedis):
        return StoreNotUsable(f"{where}: {cut.why}", applied=applied, hint="is this the right port?")
    return StoreUnavailable(f"{where}: {cut.why}", applied=applied, hint=hint)


def senseless(where: object, *, applied: bool | None = None) -> StoreUnavailable:
    """The error for an answer of the right form that says nothing which could be asked for."""
    return StoreUnavailable(
        f"{where}: an answer that makes no sense", applied=applied, hint="is this a Redis or Valkey server?"
    )
