"""What a MySQL or MariaDB server, as it is set up now, gives to locks: read from its settings, in plain words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Assurance
from leased.stores._mysql_statements import AT_ONCE, NOW
from leased.stores._sql_record import SECOND

Ask: TypeAlias = Callable[[str], Awaitable[tuple[tuple[Any, ...], ...]]]
"""Runs a statement and gives its rows."""

_NAMES = (
    "version",
    "innodb_flush_log_at_trx_commit",
    "log_bin",
    "sync_binlog",
    "read_only",
    "innodb_read_only",
    "wsrep_on",
    "group_replication_group_name",
)
_IDENTITY = ("hostname", "port", "server_id", "server_uuid")
_COUNTS = ("wsrep_cluster_size", "Slaves_connected")
_LISTED = "SHOW GLOBAL {} WHERE Variable_name IN ({})"
_TRIES = 3
_ELSEWHERE = "connect to the primary, the server that takes writes"


async def read_clock(ask: Ask, *, place: str) -> float:
    """The server's clock, in seconds; `StoreNotUsable` where `SYSDATE()` is another name for `NOW()`.

    That tells when a statement began: after a wait for somebody's row it would revive a lease that has lapsed.
    """
    for _ in range(_TRIES):
        ((_, stands, instant),) = await ask(f"SELECT SLEEP(0.0001), SYSDATE(6) = NOW(6), {NOW}")
        if not stands:
            return float(instant) / SECOND
    raise StoreNotUsable(
        f"{place} runs with sysdate-is-now: no statement can tell the time after a wait",
        hint="start the server without that option",
    )


async def read_settings(ask: Ask) -> dict[str, str]:
    """What a server says of itself, by name in small letters."""
    names = ", ".join(f"'{name}'" for name in (*_NAMES, *_IDENTITY))
    counts = ", ".join(f"'{name}'" for name in _COUNTS)
    rows = (*await ask(_LISTED.format("VARIABLES", names)), *await ask(_LISTED.format("STATUS", counts)))
    return {str(name).lower(): str(value) for name, value in rows}


def at_once(found: dict[str, str]) -> str:
    """What to say before a statement that may not wait for a lock; empty where that cannot be said."""
    return AT_ONCE if "MariaDB" in found.get("version", "") else ""


def refuse_read_only(found: dict[str, str], *, place: str) -> None:
    """Raise `StoreUnavailable` on a server that is read-only: accounts of some rights may write even there."""
    if _read_only(found):
        raise StoreUnavailable(
            f"{place} is read-only: a replica, or a primary that was replaced", applied=False, hint=_ELSEWHERE
        )


def identity(found: dict[str, str]) -> tuple[str, ...]:
    """Which server that is."""
    return tuple(found.get(name, "") for name in _IDENTITY)


def standing(found: dict[str, str], *, verified: bool | None) -> Assurance:
    """What these settings amount to. `verified` says whether the server had to prove who it is; `None` without TLS."""
    logs, cluster, alone = _logs(found), _in_cluster(found), is_alone(found)
    replicas = _replicas(found)
    read_only = _read_only(found)
    at_once = found.get("innodb_flush_log_at_trx_commit") == "1" and (not logs or found.get("sync_binlog") == "1")
    notes = [found.get("version", "of an unknown version")]
    if cluster:
        nodes = f"a cluster of {found.get('wsrep_cluster_size', 'several')} nodes"
        notes.append(f"{nodes}: a lease is granted once all of them have it, but each judges expiry by its own clock")
        notes.append("direct all clients at one node and keep the clocks of all in step; check fencing tokens")
    elif not alone:
        known = f"{replicas} replicas are connected" if replicas is not None else "replicas cannot be seen from here"
        notes.append(f"{known}: one that takes over may lack the last grants")
    if not at_once:
        notes.append(
            "a loss of power can undo the last grants: set innodb_flush_log_at_trx_commit"
            f"{' and sync_binlog' if logs else ''} to 1"
        )
    if read_only:
        notes.append("this server is read-only: it grants nothing")
    if verified is False:
        notes.append("the connection is encrypted, but the server does not have to prove who it is")
    exclusive = "volatile" if not at_once else "primary" if alone and not read_only else "until-failover"
    return Assurance(
        exclusive=exclusive,
        early_loss=exclusive != "primary",
        durable="survives kill and power loss: on disk before the answer"
        if at_once
        else "survives a kill of the server",
        takeover=f"the clock of the {'node that is asked' if cluster else 'server'}, in UTC",
        fence="rises while the clock of the server is not set back over the loss of its data",
        notes=tuple(notes),
    )


def is_alone(found: dict[str, str]) -> bool:
    """Whether it has neither replicas nor other nodes beside it now."""
    return not _in_cluster(found) and _replicas(found) == "0"


def _logs(found: dict[str, str]) -> bool:
    return found.get("log_bin", "ON") in ("ON", "1")


def _in_cluster(found: dict[str, str]) -> bool:
    return found.get("wsrep_on") in ("ON", "1") or bool(found.get("group_replication_group_name"))


def _replicas(found: dict[str, str]) -> str | None:
    """How many are connected; `None` where that cannot be seen."""
    return found.get("slaves_connected") if _logs(found) else "0"


def _read_only(found: dict[str, str]) -> bool:
    """Whether it takes no writes from accounts without special rights; newer servers know several kinds of that."""
    return any(found.get(name, "OFF") not in ("OFF", "0") for name in ("read_only", "innodb_read_only"))
